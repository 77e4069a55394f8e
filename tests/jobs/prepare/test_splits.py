"""The split of ours: whole groups, the shares of the classes, the same every time."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import ConfigError
from jobs.prepare.splits import held_out, split_off

SHARES = st.floats(0.05, 0.95)
CLASSES = st.sampled_from(["a", "b", "c", None])
MIXED = st.lists(st.tuples(CLASSES, st.sampled_from("pqrstuvwxyz")), min_size=1, max_size=40)
# A group has one class: its first letter.
PURE = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), min_size=1, max_size=40).map(
    lambda rows: [(label, f"{label}{number}") for label, number in rows]
)
FEW = settings(max_examples=30, deadline=None)


def flags_of(rows, share, seed):
    return held_out(
        [label for label, _ in rows], [group for _, group in rows], share=share, seed=seed
    )


@FEW
@given(MIXED, SHARES, st.integers(0, 5))
def test_no_group_is_torn_apart(rows, share, seed):
    sides = {}
    for (_, group), flag in zip(rows, flags_of(rows, share, seed), strict=True):
        assert sides.setdefault(group, flag) == flag


@FEW
@given(PURE, SHARES, st.integers(0, 5))
def test_each_class_has_its_share_to_within_half_of_its_largest_group(rows, share, seed):
    flags = flags_of(rows, share, seed)
    sizes, groups = Counter(label for label, _ in rows), Counter(rows)
    held = Counter(label for (label, _), flag in zip(rows, flags, strict=True) if flag)
    for name, size in sizes.items():
        largest = max(number for (label, _), number in groups.items() if label == name)
        assert abs(held[name] - share * size) <= largest / 2 + 1e-9


@FEW
@given(MIXED, SHARES, st.integers(0, 5))
def test_the_rarest_class_has_its_share_to_within_half_of_a_group_even_of_mixed_groups(
    rows, share, seed
):
    flags = flags_of(rows, share, seed)
    sizes = Counter(label for label, _ in rows)
    rarest = min(sizes, key=lambda name: (sizes[name], "" if name is None else f"={name}"))
    of_rarest = Counter(group for label, group in rows if label == rarest)
    held = sum(flag for (label, _), flag in zip(rows, flags, strict=True) if label == rarest)
    assert abs(held - share * sizes[rarest]) <= max(of_rarest.values()) / 2 + 1e-9


@FEW
@given(MIXED, SHARES, st.integers(0, 5), st.randoms())
def test_the_order_of_the_rows_does_not_matter(rows, share, seed, random):
    shuffled = random.sample(rows, len(rows))
    before = {g: f for (_, g), f in zip(rows, flags_of(rows, share, seed), strict=True)}
    after = {g: f for (_, g), f in zip(shuffled, flags_of(shuffled, share, seed), strict=True)}
    assert before == after


def test_another_seed_draws_another_split_and_the_same_seed_the_same():
    rows = [("a", f"g{at}") for at in range(100)]
    assert flags_of(rows, 0.2, 3) == flags_of(rows, 0.2, 3)
    assert flags_of(rows, 0.2, 3) != flags_of(rows, 0.2, 4)
    assert sum(flags_of(rows, 0.2, 3)) == sum(flags_of(rows, 0.2, 4)) == 20


def test_a_class_of_one_small_group_stays_where_most_rows_are():
    rows = [("rare", "r"), *(("a", f"g{at}") for at in range(9))]
    assert not flags_of(rows, 0.2, 0)[0]
    assert flags_of(rows, 0.8, 0)[0]


def rows_of(labels):
    return [{"label": one, "g": f"{at}", "split": "train"} for at, one in enumerate(labels)]


def test_only_rows_of_the_training_split_are_moved():
    rows = rows_of("aaaaaaaabb")
    rows[0]["split"] = "test"
    split_off(rows, by="g", into="dev", share=0.5, seed=0)
    assert rows[0]["split"] == "test"
    assert {row["split"] for row in rows[1:]} == {"train", "dev"}


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, 20.0])
def test_a_share_that_is_no_part_is_refused(share):
    with pytest.raises(ConfigError, match=r"--dev-share .*: wanted a part"):
        split_off(rows_of("aabb"), by="g", into="dev", share=share, seed=0)


def test_a_share_that_leaves_a_side_empty_is_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"of 3 rows in 3 groups it takes none"):
        split_off(rows_of("aaa"), by="g", into="test", share=0.01, seed=0)
