"""What a Stage 1 setting asks for beside a size, over several partitions: it is always kept."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import ConfigError, DataError
from jobs.ledger import Unit
from tests.jobs.selecting.embedded_corpus import EmbeddedCorpus, clustered, ids_for

N, P, EMPTY = 150, 4, 1
IDS = ids_for(N, partitions=P, without=[EMPTY])
SIDES = {
    "weight": [0.0 if i < 20 else 1.0 + 9.0 * (i % 3 == 0) for i in range(N)],
    "group": [None if i % 10 == 0 else f"g{i % 6}" for i in range(N)],
    "cost": [(None, 0.0, -1.0)[i // 15 % 3] if i % 15 == 4 else 1.0 + i % 4 for i in range(N)],
    "quality": [4.0 if i % 5 == 0 else None if i % 5 == 1 else 0.5 for i in range(N)],
}
GROUP, COST, QUALITY = (dict(zip(IDS, SIDES[name], strict=True)) for name in list(SIDES)[1:])
METHODS = ["dual-div", "coverage", "random"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return EmbeddedCorpus(folder, clustered(N), ids=IDS, partitions=P, **SIDES)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return EmbeddedCorpus(folder, clustered(N), ids=IDS, partitions=1, **SIDES)


@pytest.fixture(params=[1, P])
def either(request, corpus, alone):
    """The corpus in one partition, and in several."""
    return alone if request.param == 1 else corpus


def spent(ids):
    return sum(COST[row_id] for row_id in ids)


def of_groups(ids):
    return Counter(GROUP[row_id] for row_id in ids if GROUP[row_id] is not None)


# Costs.


@pytest.mark.parametrize("k1", [None, 4])
@pytest.mark.parametrize("method", METHODS)
def test_a_budget_is_kept_and_used(either, method, k1):
    found = either.select(k1=k1, budget=14.0, method=method)
    assert found.facts["spent"] == spent(found.ids) <= 14.0
    assert found.facts["k1_used"] == len(found.ids) <= (k1 or N)
    if k1 is None:  # what is left buys no row: the cheapest costs 1
        assert found.facts["spent"] > 13.0


def test_rows_without_a_cost_above_0_are_counted_and_never_bought(either):
    found = either.select(k1=None, budget=1000.0)
    free = [row_id for row_id in IDS if not COST[row_id] or COST[row_id] < 0]
    assert found.facts["excluded"] == {"no_cost": len(free)}
    assert sorted(found.ids) == sorted(set(IDS) - set(free))


def test_a_budget_below_the_cheapest_row_is_refused_with_both_numbers(either):
    with pytest.raises(DataError, match=r"budget = 0.5 buys no row: the cheapest costs 1\."):
        either.select(budget=0.5)


def test_a_budget_over_rows_without_costs_is_refused(tmp_path):
    corpus = EmbeddedCorpus(tmp_path, clustered(12), cost=[None] * 12)
    with pytest.raises(DataError, match="none has a cost above 0"):
        corpus.select(budget=5.0)


# Groups.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("most", [1, 3])
def test_no_group_gives_more_than_its_share_and_rows_without_a_group_are_free(either, method, most):
    found = either.select(k1=40, max_per_group=most, method=method)
    counts = of_groups(found.ids)
    alone_in_theirs = sum(GROUP[row_id] is None for row_id in IDS)
    assert max(counts.values()) == most
    assert len(found.ids) == min(40, 6 * most + alone_in_theirs)
    told = [text for text in found.run.progress.warnings if "of a full group" in text]
    assert bool(told) == (len(found.ids) < 40)


# Required rows.


@pytest.mark.parametrize("method", METHODS)
def test_required_rows_come_first_in_their_order_whatever_partition_they_live_in(either, method):
    homes = np.unique(either.where)[::-1].tolist()
    wanted = [IDS[np.flatnonzero(either.where == p)[5]] for p in homes] + [IDS[1]]
    found = either.select(k1=9, required=wanted, method=method)
    assert found.ids[: len(wanted)] == wanted
    assert len(set(found.ids)) == 9
    assert found.facts["required"] == len(wanted)


def test_nothing_but_required_rows_may_be_chosen(either):
    wanted = [IDS[5], IDS[4]]
    assert either.select(k1=2, required=wanted).ids == wanted


def test_required_rows_fill_their_groups_for_the_others(either):
    wanted = [i for i in IDS if GROUP[i] == "g1"][:2] + [i for i in IDS if GROUP[i] == "g2"][:1]
    found = either.select(k1=12, required=wanted, max_per_group=2)
    assert found.ids[:3] == wanted
    counts = of_groups(found.ids)
    assert counts["g1"] == 2
    assert max(counts.values()) == 2
    with pytest.raises(DataError, match="2 are of group 'g1', more than"):
        either.select(k1=12, required=wanted, max_per_group=1)


def test_required_rows_are_paid_for_first(either):
    wanted = [i for i in IDS if COST[i] == 4.0][:2]
    found = either.select(k1=None, budget=10.0, required=wanted)
    assert found.ids[:2] == wanted
    assert 9.0 < spent(found.ids) <= 10.0
    assert either.select(k1=None, budget=8.0, required=wanted).ids == wanted
    with pytest.raises(DataError, match=r"cost 8, more than stage1\.budget = 7"):
        either.select(k1=None, budget=7.0, required=wanted)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_required_rows_may_use_up_a_budget_whose_sum_is_rounded(tmp_path, partitions, method):
    corpus = EmbeddedCorpus(tmp_path, clustered(30), partitions=partitions, cost=[0.1] * 30)
    wanted = [corpus.ids[i] for i in (21, 3, 12)]
    assert sum([0.1] * 3) > 0.3
    found = corpus.select(k1=None, budget=0.3, required=wanted, method=method)
    assert found.ids == wanted
    assert found.facts["spent"] == pytest.approx(0.3)
    two = corpus.select(k1=None, budget=0.3, required=wanted[:2], method=method)
    assert two.ids[:2] == wanted[:2]
    assert len(two.ids) == 3
    with pytest.raises(DataError, match=r"cost 0.3, more than stage1\.budget = 0.2999"):
        corpus.select(k1=None, budget=0.2999, required=wanted, method=method)


def test_a_required_row_that_cannot_be_bought_or_is_not_there_is_named(either):
    free = next(row_id for row_id in IDS if COST[row_id] is None)
    with pytest.raises(DataError, match=f"'{free}' have no cost above 0"):
        either.select(budget=30.0, required=[IDS[0], free])
    with pytest.raises(DataError, match=r"stage1.required: 1 of 2 ids are no rows.*'nowhere'"):
        either.select(required=[IDS[0], "nowhere"])


def test_required_rows_count_in_what_partitions_choose(corpus):
    """The merged set is no worse than the required rows with the best of a search without them."""
    wanted = [IDS[90], IDS[2], IDS[55]]
    value = corpus.select(k1=9, required=wanted, lam=0.0).facts["objective"]
    rest = [i for i in corpus.select(k1=9, lam=0.0).ids if i not in wanted][:6]
    assert value >= corpus.select(k1=9, required=[*wanted, *rest], lam=0.0).facts["objective"]


# Forbidden rows.


@pytest.mark.parametrize("method", METHODS)
def test_forbidden_rows_are_never_chosen(either, method):
    first = either.select(k1=8, method=method).ids
    found = either.select(k1=8, method=method, forbidden=first)
    assert not set(found.ids) & set(first)
    assert len(found.ids) == 8


def test_forbidden_ids_that_no_row_has_are_told_each_time_and_stop_nothing(either):
    for resume in False, True:
        found = either.select(k1=3, forbidden=[IDS[0], "nowhere", "neither"], resume=resume)
        assert found.facts["forbidden_unknown"] == "'nowhere', 'neither'"
        assert any("'nowhere', 'neither'" in text for text in found.run.progress.warnings)
    assert either.select(k1=3, forbidden=[IDS[0]]).facts["forbidden_unknown"] is None


def test_too_few_rows_left_are_chosen_all_and_told(either):
    found = either.select(k1=10, forbidden=IDS[:-4])
    assert sorted(found.ids) == IDS[-4:]
    assert any("only 4 of 150 rows" in text for text in found.run.progress.warnings)


# What is annotated already.


@pytest.fixture
def annotated(either, tmp_path):
    """A first choice, copied away from the output tree."""
    first = either.select(k1=6)
    path = tmp_path / "candidates.parquet"
    path.write_bytes((first.folder / "candidates.parquet").read_bytes())
    return first.ids, str(path)


@pytest.mark.parametrize("method", METHODS)
def test_the_candidates_of_one_run_are_given_to_the_next_and_not_picked_twice(
    either, annotated, method
):
    ids, path = annotated
    found = either.select(k1=7, given=path, method=method)
    assert not set(found.ids) & set(ids)
    assert len(set(found.ids)) == 7
    assert found.facts["given"] == 6


def test_given_ids_and_given_vectors_are_the_same_thing(either, annotated, tmp_path):
    ids, path = annotated
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    by_file = either.select(k1=7, given=path)
    assert either.select(k1=7, given=str(tmp_path / "ids.txt")).answer == by_file.answer


def test_a_choice_goes_on_where_an_earlier_one_ended(alone, tmp_path):
    whole, first = alone.select(k1=12), alone.select(k1=6)
    path = tmp_path / "candidates.parquet"
    path.write_bytes((first.folder / "candidates.parquet").read_bytes())
    rest = alone.select(k1=6, given=str(path))
    assert first.ids + rest.ids == whole.ids
    total = first.facts["objective"] + rest.facts["objective"]
    assert total == pytest.approx(whole.facts["objective"], rel=1e-5)


def test_given_vectors_may_be_of_texts_that_are_not_in_the_corpus(either, tmp_path):
    first = either.select(k1=4)
    near = first.table.set_column(1, "id", pa.array([f"elsewhere {i}" for i in range(4)]))
    pq.write_table(near, tmp_path / "pool.parquet")
    found = either.select(k1=8, given=str(tmp_path / "pool.parquet"), lam=0.0)
    # What they cover need not be covered again: the picks themselves add nothing any more.
    assert not set(found.ids) & set(first.ids)


def test_vectors_of_another_encoder_are_refused_by_both_names(either, annotated):
    with pytest.raises(DataError, match="encoder mini-0123, this run's from other-9"):
        either.select(given=annotated[1], encoder_id="other-9")


def test_given_ids_that_are_no_rows_are_refused_by_name(either, tmp_path):
    (tmp_path / "ids.txt").write_text(f"{IDS[0]}\nnowhere\n")
    with pytest.raises(DataError, match=r"stage1.given: 1 of 2 ids.*'nowhere'"):
        either.select(given=str(tmp_path / "ids.txt"))
    with pytest.raises(ConfigError, match="no such file"):
        either.select(given=str(tmp_path / "gone.txt"))


# Weights and quality.


def test_heavy_rows_pull_the_choice_and_weights_of_0_do_no_harm(either):
    plain, weighted = either.select(k1=8), either.select(k1=8, weighted=True)
    assert plain.ids != weighted.ids
    assert weighted.facts["weight"] == sum(SIDES["weight"])
    assert plain.facts["weight"] is None

    def covered(ids):
        cosines = either.vectors @ either.rows(ids).T
        return np.array(SIDES["weight"]) @ cosines.max(axis=1)

    assert covered(weighted.ids) > covered(plain.ids)
    assert weighted.facts["coverage"] == pytest.approx(covered(weighted.ids), rel=1e-4)


def test_a_partition_without_any_weight_still_gives_candidates(tmp_path):
    corpus = EmbeddedCorpus(tmp_path, clustered(60), partitions=3)
    weights = [0.0 if p == 1 else 1.0 for p in corpus.where]
    corpus = EmbeddedCorpus(tmp_path, clustered(60), partitions=3, weight=weights)
    for setting in {}, {"mode": "screened", "m1": 8, "m2": 20, "certificate": "sampled"}:
        found = corpus.select(k1=6, weighted=True, **setting)
        assert found.facts["k1_used"] == 6
        assert found.facts["objective"] > found.facts["random_objective"]
    nothing = EmbeddedCorpus(tmp_path, clustered(60), partitions=3, weight=[0.0] * 60)
    with pytest.raises(DataError, match="add up to 0"):
        nothing.select(k1=6, weighted=True)


def test_quality_is_preferred_as_much_as_lambda_says(either):
    def mean(**setting):
        ids = either.select(k1=10, **setting).ids
        return np.mean([np.log(QUALITY[row_id] or 1.0) for row_id in ids])

    assert mean(lam=5.0, quality=True) > mean(lam=0.1, quality=True)
    assert mean(lam=5.0, quality=True) == pytest.approx(np.log(4.0))
    assert mean(lam=0.0, quality=True) == mean(lam=0.0)


# Where to end, and how lambda moves.


def test_a_choice_ends_before_the_first_pick_that_would_lower_f(alone, corpus):
    whole = alone.select(k1=40, lam=3.0)
    end = whole.facts["first_negative_gain"]
    assert 1 < end < 40
    assert alone.select(k1=40, lam=3.0, stop_at_negative=True).ids == whole.ids[:end]
    merged = corpus.select(k1=40, lam=0.5, stop_at_negative=True)
    assert 1 < merged.facts["k1_used"] < 40
    assert (merged.table["gain"].to_numpy() >= 0).all()


@pytest.mark.parametrize("ground", ["all", "sample"])
@pytest.mark.parametrize(("lam", "winner"), [(0.2, "merged"), (3.0, "local")])
def test_whichever_set_wins_no_pick_of_it_lowers_f(corpus, lam, winner, ground):
    spread = {"merge_ground": ground, "sample": 60}
    setting = {"k1": 60, "lam": lam, "m1": 40, "spread": spread}
    whole = corpus.select(**setting)
    found = corpus.select(**setting, stop_at_negative=True)
    assert found.facts["merge"] == winner
    assert whole.facts["first_negative_gain"] is not None
    assert 1 < found.facts["k1_used"] < 60
    assert (found.table["gain"].to_numpy() >= 0).all()
    assert found.facts["first_negative_gain"] is None
    assert found.facts["objective"] > whole.facts["objective"]


def test_a_choice_that_any_row_would_lower_is_refused_and_says_so(either):
    first = either.select(k1=20)
    path = either.root / "given.txt"
    path.write_text("\n".join(first.ids))
    with pytest.raises(DataError, match="or would lower the objective"):
        either.select(k1=5, given=str(path), lam=500.0, stop_at_negative=True)


def test_a_schedule_of_lambda_goes_from_one_end_to_the_other(either):
    rule = {"schedule": "geometric", "from": 4.0, "to": 0.25}
    found = either.select(k1=9, lam=rule)
    assert found.facts["lambda_rule"] == {"kind": "geometric", "from": 4.0, "to": 0.25}
    lams = found.table["lambda"].to_numpy()
    assert lams[0] == pytest.approx(4.0)
    assert lams[-1] == found.facts["lambda"] == pytest.approx(0.25)
    assert (np.diff(lams) < 0).all()


def test_a_higher_floor_on_the_distance_of_picks_moves_them_apart(either):
    def distance(**setting):
        rows = either.rows(either.select(k1=20, **setting).ids)
        return 1 - (rows @ rows.T)[np.triu_indices(len(rows), 1)].mean()

    without = float(distance(lam=0.0))
    low, high = (distance(lam={"min_distance": without + more}) for more in (0.05, 0.2))
    assert without + 0.01 < low <= high


def test_diversity_gets_the_share_of_the_gain_that_was_asked_for(either):
    def share(wanted):
        table = either.select(k1=40, lam={"share": wanted}).table.slice(20)
        lams, spread = table["lambda"].to_numpy(), table["diversity_gain"].to_numpy()
        paid, covered = (lams * (spread - np.log(1e-3))).sum(), table["coverage_gain"].to_numpy()
        return paid / (paid + covered.sum())

    assert share(0.5) == pytest.approx(0.5, abs=0.1)
    assert share(0.1) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("lam", ["auto", {"min_distance": 0.4}, 1.0])
@pytest.mark.parametrize("method", METHODS)
def test_all_wishes_at_once_are_kept_by_every_method(either, annotated, method, lam):
    wishes = {
        "k1": 14,
        "budget": 30.0,
        "max_per_group": 2,
        "required": [IDS[i] for i in (91, 7) if IDS[i] not in annotated[0]],
        "forbidden": [IDS[33], IDS[34]],
        "given": annotated[1],
        "weighted": True,
        "quality": True,
    }
    found = either.select(method=method, lam=lam, **wishes)
    required = wishes["required"]
    assert found.ids[: len(required)] == required
    assert not set(found.ids) & {*wishes["forbidden"], *annotated[0]}
    assert spent(found.ids) <= 30.0
    assert max(of_groups(found.ids).values()) <= 2
    assert len(found.ids) <= 14
    unit = Unit(found.marker.folder, "candidates", found.marker.fingerprint)
    assert either.ledger.find(unit) == found.marker
