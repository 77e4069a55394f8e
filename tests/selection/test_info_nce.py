"""The loss of a learned map: by hand, against finite differences, against torch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.info_nce import Batch, loss, loss_and_gradient

E1, E2 = np.eye(2)


def drawn(seed, *, b=5, c=9, d=6):
    """A batch of unit vectors in which every record is positive, negative or neither for a row."""
    rng = np.random.default_rng(seed)
    rows, records = rng.normal(size=(b, d)), rng.normal(size=(c, d))
    kind = rng.integers(0, 3, (b, c))
    kind[:, 0], kind[:, 1] = 0, 1
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (rows, records)]
    return Batch(*unit, positive=kind == 0, negative=kind == 1)


def by_torch(weights, batch, temperature):
    """The definition, literally, with the gradient of autograd."""
    matrix = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    left = torch.nn.functional.normalize(torch.tensor(batch.rows) @ matrix.T)
    right = torch.nn.functional.normalize(torch.tensor(batch.records) @ matrix.T)
    scores = left @ right.T / temperature
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(batch.rows)):
        against = scores[i][torch.tensor(batch.negative[i])]
        each = [
            -scores[i, p] + torch.logsumexp(torch.cat([scores[i, p : p + 1], against]), 0)
            for p in np.flatnonzero(batch.positive[i])
        ]
        total = total + torch.stack(each).mean()
    total.backward()
    return float(total.detach()), matrix.grad.numpy()


def test_a_positive_on_the_row_and_a_negative_across_by_hand():
    batch = Batch(
        E1[None], np.array([E1, E2]), np.array([[True, False]]), np.array([[False, True]])
    )
    value, gradient = loss_and_gradient(np.eye(2), batch, temperature=1.0)
    assert value == pytest.approx(np.log(1 + np.exp(-1)))
    # Only the negative can turn: towards the row from either side, as often as it is mistaken.
    np.testing.assert_allclose(gradient, np.array([[0, 1], [1, 0]]) / (1 + np.e), atol=1e-15)


def test_two_positives_count_by_their_mean_and_never_against_each_other():
    records = np.array([E1, -E1, E2])
    positive, negative = np.array([[True, True, False]]), np.array([[False, False, True]])
    value = loss(np.eye(2), Batch(E1[None], records, positive, negative), temperature=0.5)
    assert value == pytest.approx((np.log1p(np.exp(-2)) + np.log1p(np.exp(2))) / 2)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), temperature=st.sampled_from([0.05, 0.3, 1.0]))
def test_value_and_gradient_are_those_of_autograd(seed, temperature):
    batch = drawn(seed)
    weights = np.random.default_rng(seed + 1).normal(size=(4, 6))
    value, gradient = loss_and_gradient(weights, batch, temperature=temperature)
    expected, slope = by_torch(weights, batch, temperature)
    assert value == pytest.approx(expected, rel=1e-10)
    assert loss(weights, batch, temperature=temperature) == value
    np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-9)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_gradient_is_that_of_finite_differences(seed):
    batch, step = drawn(seed, b=3, c=5, d=3), 1e-6
    weights = np.eye(3) + 0.3 * np.random.default_rng(seed).normal(size=(3, 3))
    _, gradient = loss_and_gradient(weights, batch, temperature=0.2)
    for place in np.ndindex(3, 3):
        ends = []
        for sign in (1, -1):
            moved = weights.copy()
            moved[place] += sign * step
            ends.append(loss(moved, batch, temperature=0.2))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_the_order_of_rows_and_records_changes_nothing():
    batch = drawn(7)
    rng = np.random.default_rng(0)
    rows, records = rng.permutation(5), rng.permutation(9)
    mixed = Batch(
        batch.rows[rows],
        batch.records[records],
        batch.positive[rows][:, records],
        batch.negative[rows][:, records],
    )
    for one, other in zip(
        loss_and_gradient(np.eye(6), batch, temperature=0.1),
        loss_and_gradient(np.eye(6), mixed, temperature=0.1),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_what_is_mapped_to_nothing_pulls_at_nothing():
    weights = np.array([[0.0, 1.0]])  # E1 is lost
    batch = Batch(
        E1[None], np.array([E1, E2]), np.array([[True, False]]), np.array([[False, True]])
    )
    value, gradient = loss_and_gradient(weights, batch, temperature=0.1)
    assert value == pytest.approx(np.log(2))
    np.testing.assert_array_equal(gradient, [[0, 0]])


def test_a_tiny_temperature_overflows_nowhere():
    value, gradient = loss_and_gradient(np.eye(6), drawn(1), temperature=1e-6)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
