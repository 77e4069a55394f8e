"""Side columns follow the ids, and what cannot be used is an error or is counted."""

import numpy as np
import pyarrow as pa
import pytest

from jobs.errors import DataError
from jobs.ledger import Ledger
from jobs.selecting.side_columns import group_codes, read_sides
from tests.jobs.selecting.embedded_parts import row_part


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path))


def test_columns_of_several_parts_come_in_the_order_of_the_ids(ledger):
    parts = [
        row_part(ledger, "a", ["x", "b"], weight=[2.0, None], group=["g", None]),
        row_part(ledger, "b", ["c", "a"], weight=[0.0, 3.5], group=["h", "g"]),
    ]
    sides = read_sides(ledger, parts, pa.array(["a", "b", "x"]), ["weight", "group"])
    assert sides.weight.tolist() == [3.5, 1.0, 2.0]
    assert sides.group.to_pylist() == ["g", None, "g"]
    assert (sides.cost, sides.quality, sides.pickable) == (None, None, None)


def test_a_row_without_a_usable_cost_cannot_be_bought_and_is_counted(ledger):
    costs = [1.5, None, 0.0, -2.0, float("nan"), float("inf")]
    part = row_part(ledger, "a", list("abcdef"), cost=costs)
    sides = read_sides(ledger, [part], pa.array(list("abcdef")), ["cost"])
    assert sides.cost.tolist() == [1.5, *[np.inf] * 5]
    assert sides.pickable.tolist() == [True, *[False] * 5]
    assert sides.no_cost == 5


def test_quality_is_two_log_r_and_nothing_for_a_row_without(ledger):
    part = row_part(ledger, "a", list("abc"), quality=[1.0, None, 3.0])
    sides = read_sides(ledger, [part], pa.array(list("abc")), ["quality"])
    assert sides.quality.tolist() == [0.0, 0.0, 2 * np.log(3.0)]


@pytest.mark.parametrize(
    ("column", "value"),
    [("weight", -1.0), ("weight", float("nan")), ("quality", 0.0), ("quality", float("inf"))],
)
def test_a_weight_or_quality_that_cannot_be_names_the_row(ledger, column, value):
    part = row_part(ledger, "a", ["a", "b"], **{column: [1.0, value]})
    with pytest.raises(DataError, match=rf"{column}: 1 rows .*'b'"):
        read_sides(ledger, [part], pa.array(["a", "b"]), [column])


def test_a_vector_without_a_row_is_an_error(ledger):
    part = row_part(ledger, "a", ["a"])
    with pytest.raises(DataError, match=r"r/a/part\.parquet: vectors without a row: 'z'"):
        read_sides(ledger, [part], pa.array(["a", "z"]), ["weight"])


def test_no_rows_have_no_columns(ledger):
    sides = read_sides(ledger, [], pa.array([], pa.string()), ["cost", "group", "weight"])
    assert (len(sides.cost), len(sides.group), len(sides.weight)) == (0, 0, 0)
    assert group_codes(sides.group).tolist() == []


def test_group_codes_are_the_same_in_every_partition():
    here = group_codes(pa.array(["g", None, "h", "g"]))
    there = group_codes(pa.chunked_array([["h"], [None, "é"]], pa.string()))
    assert here[0] == here[3] != here[2] == there[0]
    assert here[1] == there[1] == -1
    assert len({*here.tolist(), *there.tolist()}) == 4
    assert min(here[0], here[2], there[2]) >= 0
