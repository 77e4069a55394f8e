"""Thirty nights from the first empty pool on, by the command line, with annotators who err."""

import itertools
import random
from collections import Counter

import numpy as np
import pyarrow.parquet as pq

from jobs.ledger import Marker
from tests.jobs.nights.night_shift import Annotators, NightShift, right_label, text_of

NIGHTS, EXPIRE, A_NIGHT, QUIET = 30, 4, 36, (7, 14, 21, 28)
TOPICS, K1, LAM, RIDGE = 60, 4, 0.001, 1e-3


def objective(corpus, chosen):
    """f on the whole corpus, from its definition: mean of the largest cosines, and logdet M."""
    kernel = (1 - RIDGE) * chosen @ chosen.T + RIDGE * np.eye(len(chosen))
    return float((corpus @ chosen.T).max(axis=1).mean() + LAM * np.linalg.slogdet(kernel)[1])


def fresh_texts(rng, shift, night, n_topics):
    """Tonight's rows: new texts, and a few copies of what came, or went out, before."""
    texts = [text_of(rng, n_topics) for _ in range(A_NIGHT)]
    if night > 1:
        known = [row["text"] for row in shift.rows]
        sent = [row["input"] for row in shift.batches()[-1]]
        copies = [*rng.sample(known, 2), *rng.sample(sent, min(2, len(sent)))]
        texts += [text.upper() + "." for text in copies]
    return texts


def a_month(shift):
    """Run all nights; returns the pool of each, and how many files came back twice."""
    rng, annotators, pools, n_again = random.Random(3), Annotators(5, latest=EXPIRE), [], 0
    for night in range(1, NIGHTS + 1):
        if night not in QUIET:
            topics = min(TOPICS, 20 + 2 * night)
            shift.arrive(fresh_texts(rng, shift, night, topics), night=night)
        answers = annotators.back(night)
        if answers:
            path = shift.bring_back(f"night-{night:02d}", answers)
            if night % 5 == 0:
                assert shift.bring_back(f"again-{night:02d}", answers) != path
                n_again += 1
        manifest = shift.night()
        assert (manifest["result"], manifest["night"]["number"]) == ("done", night)
        annotators.take(shift.export(), night)
        pools.append(shift.pool())
        if night % 10 == 0:
            assert shift.night()["result"] == "nothing_new"
    return pools, n_again


def from_scratch(shift, n):
    """Ids that one run on the whole corpus chooses."""
    shift.config |= {"out": str(shift.root / "scratch"), "annotate": {}}
    shift.config["stage1"] = shift.config["stage1"] | {"k1": n}
    shift.out = shift.root / "scratch"
    (entry,) = shift.night("select")["selections"].values()
    return shift.ledger.read(Marker(**entry["candidates"]), ["id"])["id"].to_pylist()


def test_thirty_nights_label_each_row_once_and_cover_the_corpus_like_one_choice(
    tmp_path, monkeypatch
):
    shift = NightShift(tmp_path, monkeypatch)
    shift.config["annotate"]["expire_nights"] = EXPIRE
    shift.config["stage1"] |= {"k1": K1, "lambda": LAM}
    pools, n_again = a_month(shift)
    batches, pool = shift.batches(), pools[-1]
    assert len(batches) == NIGHTS

    times = Counter(row["id"] for batch in batches for row in batch)
    labelled = {row["id"] for row in pool}
    assert {times[row_id] for row_id in labelled} == {1}

    nights = {}
    for batch in batches:
        for row in batch:
            nights.setdefault(row["id"], []).append(row["night"])
    back = [some for some in nights.values() if len(some) > 1]
    assert back
    assert min(b - a for some in back for a, b in itertools.pairwise(some)) > EXPIRE

    hashes = [row["text_hash"] for batch in batches for row in batch if row["id"] in labelled]
    assert len(pool) == len(labelled) == len(set(hashes))
    assert all(row["label"] == right_label(row["input"]) for row in pool)
    for earlier, later in itertools.pairwise(pools):
        assert {row["id"] for row in earlier} <= {row["id"] for row in later}
    statuses = Counter()
    for path in sorted((shift.out / "labels").glob("*.parquet")):
        statuses.update(pq.read_table(path, columns=["status"])["status"].to_pylist())
    assert n_again
    assert sum(statuses.values()) > len(pool)

    vectors = shift.vectors()
    corpus = np.array(list(vectors.values()), np.float64)
    ids, rng = sorted(vectors), np.random.default_rng(0)

    def f(chosen):
        return objective(corpus, np.array([vectors[i] for i in chosen], np.float64))

    reached = f(labelled)
    best = f(from_scratch(shift, len(pool)))
    chance = np.mean([f(rng.choice(ids, len(pool), replace=False)) for _ in range(10)])
    lift = (reached - chance) / (best - chance)
    print(f"f {reached:.4f}, from scratch {best:.4f}, random {chance:.4f}, lift {lift:.3f}")
    print(f"{len(pool)} labelled of {sum(map(len, batches))} sent, {statuses}, {len(back)} twice")
    assert reached >= 0.98 * best > 0
    assert lift >= 0.9
