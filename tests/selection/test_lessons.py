"""Which candidates teach a row, and how lessons are cut into batches."""

import numpy as np
import pytest

from selection.lessons import Lessons, batches_of, chosen, in_order

RANK = np.arange(9)


def pick(candidates, scores, *, rank=RANK, positives=2, negatives=2):
    rows = np.array([candidates]), np.array([scores], dtype=float)
    best, worst = chosen(*rows, tie_rank=rank, positives=positives, negatives=negatives)
    return best[0].tolist(), worst[0].tolist()


def lessons(m=4, n=6, d=3, **changes):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(m + n, d))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    places = np.array([rng.permutation(n)[:3] for _ in range(m)])
    given = {
        "rows": vectors[:m],
        "records": vectors[m:],
        "keys": rng.permutation(m).astype(np.uint64),
        "tie_rank": rng.permutation(n),
        "positives": places[:, :2],
        "negatives": places[:, 2:],
        "open": rng.random((m, n)) < 0.7,
    }
    return Lessons(**given | changes)


def test_the_best_and_the_worst_are_taken():
    assert pick([3, 1, 4, 0, 5], [-1, -5, -2, -3, -4]) == ([3, 4], [5, 1])


def test_of_few_candidates_at_most_half_help():
    assert pick([3, 1, 4], [-1, -5, -2]) == ([3, -1], [4, 1])
    assert pick([3, 1], [-5, -1]) == ([1, -1], [3, -1])
    assert pick([3], [-5]) == ([-1, -1], [-1, -1])


def test_candidates_without_a_score_and_empty_places_count_for_nothing():
    assert pick([3, 1, 4, -1], [np.nan, -5, -2, 7]) == ([4, -1], [1, -1])
    assert pick([-1, -1], [np.nan, np.nan]) == ([-1, -1], [-1, -1])


def test_equal_scores_teach_nothing_where_they_would_stand_on_both_sides():
    assert pick([3, 1, 4, 0], [-2, -2, -2, -2]) == ([-1, -1], [-1, -1])
    assert pick([3, 1, 4, 0], [-1, -2, -2, -3]) == ([-1, -1], [-1, -1])
    # Among the best the smaller rank is better, whatever the order given.
    rank = RANK[::-1]
    assert pick([3, 1, 4, 0], [-1, -1, -1, -3], rank=rank, positives=1, negatives=1) == ([4], [0])


def test_numbers_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="0 positives and 2 negatives"):
        pick([1, 2], [0, 1], positives=0)
    with pytest.raises(ValueError, match=r"epr\.scores: found shape \(1, 2\), wanted \(1, 3\)"):
        pick([1, 2, 3], [0, 1])


def test_whatever_the_order_the_lessons_are_the_same():
    plain = in_order(lessons())
    rng = np.random.default_rng(1)
    rows, records = rng.permutation(4), rng.permutation(6)
    moved = np.argsort(records)
    given = lessons()
    mixed = in_order(
        Lessons(
            given.rows[rows],
            given.records[records],
            given.keys[rows],
            given.tie_rank[records],
            moved[given.positives[rows]],
            moved[given.negatives[rows]],
            given.open[rows][:, records],
        )
    )
    for name in ("rows", "records", "keys", "tie_rank", "positives", "negatives", "open"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(mixed, name))


def test_rows_without_a_positive_are_passed_over():
    given = lessons()
    positives = given.positives.copy()
    positives[2] = -1
    kept = in_order(lessons(positives=positives))
    assert len(kept) == 3
    assert given.keys[2] not in kept.keys
    with pytest.raises(ValueError, match="found 4 rows, none with a positive and a negative"):
        in_order(lessons(positives=np.full((4, 2), -1)))


def test_a_batch_holds_what_its_rows_bring_and_marks_it_by_hand():
    eye = np.eye(4, dtype=np.float32)
    given = Lessons(
        rows=eye[:2],
        records=eye,
        keys=np.arange(2, dtype=np.uint64),
        tie_rank=np.arange(4),
        positives=np.array([[0], [3]]),
        negatives=np.array([[1], [1]]),
        # Row 0 may not see record 3, so the positive of row 1 does not count against it.
        open=np.array([[True, False, True, False], [True, True, True, True]]),
    )
    (batch,) = batches_of(in_order(given), 2)
    # Record 2 is nobody's; a row's own negative counts though it is not open.
    np.testing.assert_array_equal(batch.records, eye[[0, 1, 3]])
    np.testing.assert_array_equal(batch.positive, [[True, False, False], [False, False, True]])
    np.testing.assert_array_equal(batch.negative, [[False, True, False], [True, True, False]])
    alone = batches_of(in_order(given), 1)
    assert [len(one.records) for one in alone] == [2, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keys": np.arange(3, dtype=np.uint64)}, r"epr\.keys: found shape \(3,\), wanted \(4,\)"),
        ({"open": np.ones((4, 5), bool)}, r"epr\.open: found shape \(4, 5\), wanted \(4, 6\)"),
        ({"positives": np.full((4, 1), 6)}, r"epr\.positives: .* of -1 to 5"),
        ({"rows": np.eye(4, dtype=np.float32)}, r"wanted \(n, 3\)"),
    ],
)
def test_lessons_that_do_not_fit_together_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        in_order(lessons(**changes))
