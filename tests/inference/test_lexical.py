"""Recall by words: the formula, the words, and what a row may depend on."""

import math
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from inference.lexical import Bm25, words

TEXTS = ["cold cough", "cough cough fever", "knee pain", "", "pain in the left knee and arm"]
some_words = st.lists(st.sampled_from("abcdefg"), max_size=8).map(" ".join)
texts_and_queries = st.tuples(
    st.lists(some_words, max_size=12), st.lists(some_words, min_size=1, max_size=5)
)


def literal(texts, query, *, k1=1.5, b=0.75, method="lucene"):
    """BM25 as in Kamphuis et al. 2020, one term and one text at a time."""
    rows = [words(text) for text in texts]
    mean = sum(map(len, rows)) / len(rows)
    scores = np.zeros(len(texts))
    for i, row in enumerate(rows):
        for word in words(query):
            tf, df = row.count(word), sum(word in other for other in rows)
            if not tf:
                continue
            odds = (len(rows) - df + 0.5) / (df + 0.5)
            idf = {
                "lucene": math.log(1 + odds),
                "robertson": math.log(max(1, odds)),
                "atire": math.log(len(rows) / df),
            }[method]
            weight = tf / (tf + k1 * (1 - b + b * len(row) / mean))
            scores[i] += idf * weight * (k1 + 1 if method == "atire" else 1)
    return scores


def ranked(scores, r, rank, allowed=None):
    rounded = np.round(scores, 9)
    order = sorted(range(len(scores)), key=lambda i: (-rounded[i], rank[i]))
    return [i for i in order if rounded[i] > 0 and (allowed is None or allowed[i])][:r]


# The formula.


def test_two_texts_score_as_computed_by_hand():
    indices, scores = Bm25(["cold cough", "fever fever"]).top(["fever"], 2)
    # idf = log(1 + 1.5 / 1.5), tf = 2 in a text of mean length.
    assert indices.tolist() == [[1, -1]]
    assert scores[0, 0] == pytest.approx(math.log(2) * 2 / (2 + 1.5), abs=1e-9)
    assert np.isnan(scores[0, 1])


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire"])
@settings(deadline=None, max_examples=40)
@given(texts_and_queries)
def test_every_score_is_that_of_a_literal_loop(method, drawn):
    texts, queries = drawn
    indices, scores = Bm25(texts, k1=1.2, b=0.6, method=method).top(queries, 4)
    for row, query in enumerate(queries):
        if not texts or not any(words(text) for text in texts):
            assert (indices[row] == -1).all()
            continue
        wanted = literal(texts, query, k1=1.2, b=0.6, method=method)
        picks = ranked(wanted, 4, range(len(texts)))
        assert indices[row].tolist() == picks + [-1] * (4 - len(picks))
        np.testing.assert_allclose(scores[row, : len(picks)], wanted[picks], atol=1e-8)


def test_the_order_is_that_of_rank_bm25():
    rng = np.random.default_rng(0)
    terms = [f"w{i}" for i in range(60)]
    texts = [" ".join(rng.choice(terms, size=rng.integers(3, 12))) for _ in range(80)]
    queries = [" ".join(rng.choice(terms, size=4, replace=False)) for _ in range(20)]
    theirs = BM25Okapi([text.split() for text in texts], k1=1.5, b=0.75)
    # It replaces the weights of words in more than half of the texts; there are none here.
    assert max(Counter(w for text in texts for w in set(text.split())).values()) < 40
    indices, scores = Bm25(texts, method="robertson").top(queries, 10)
    for row, query in enumerate(queries):
        wanted = theirs.get_scores(query.split()) / 2.5
        picks = ranked(wanted, 10, range(80))
        assert indices[row, : len(picks)].tolist() == picks
        np.testing.assert_allclose(scores[row, : len(picks)], wanted[picks], atol=1e-8)


# Words.


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Acute  Cough.", ["acute", "cough"]),
        ("HER-2", ["her-2", "her", "2"]),
        ("IL-2R,", ["il-2r", "il", "2r"]),
        ("FROM table_name", ["from", "table_name", "table", "name"]),
        ("users.name", ["users.name", "users", "name"]),
        ("Straße ﬁx", ["strasse", "fix"]),
        ("потеря – слуха", ["потеря", "слуха"]),
        (" ?! ", []),
    ],
)
def test_words_are_folded_and_identifiers_count_whole_and_in_parts(text, wanted):
    assert words(text) == wanted


def test_stop_words_and_stems_are_what_the_caller_says():
    short = {"stop_words": {"the", "of"}, "stem": lambda word: word[:4]}
    assert words("The sounds of sounding", **short) == ["soun", "soun"]


@pytest.mark.parametrize(("query", "best"), [("her-2", 1), ("il-2r", 3), ("table_name", 4)])
def test_an_identifier_finds_the_text_that_has_it_whole(query, best):
    texts = ["her arm 2", "HER-2 positive", "IL 2R", "IL-2R receptor", "table_name", "name table"]
    assert Bm25(texts).top([query], 1)[0][0, 0] == best


# What a row may depend on.


@settings(deadline=None, max_examples=60)
@given(texts_and_queries, st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_rows_are_distinct_allowed_and_do_not_depend_on_batch_or_order(drawn, r, seed):
    texts, queries = drawn
    rng = np.random.default_rng(seed)
    allowed = rng.random((len(queries), len(texts))) < 0.7
    rank = rng.permutation(len(texts))
    index = Bm25(texts, tie_rank=rank)
    indices, scores = index.top(queries, r, allowed)
    for row, query in enumerate(queries):
        picks = indices[row][indices[row] >= 0]
        shared = [bool({*words(text)} & {*words(query)}) for text in texts]
        share = np.flatnonzero(np.array(shared, bool) & allowed[row]).tolist()
        assert len(set(picks.tolist())) == len(picks) == min(r, len(share))
        assert set(picks.tolist()) <= set(share)
        assert (np.isnan(scores[row]) == (indices[row] < 0)).all()
        alone = index.top([query], r, allowed[row : row + 1])
        np.testing.assert_array_equal(alone[0][0], indices[row])
        np.testing.assert_array_equal(alone[1][0], scores[row])


def test_the_words_order_within_a_query_changes_no_bit():
    index = Bm25(TEXTS)
    a, b = index.top(["pain knee left arm cough", "cough arm left knee pain"], 5)[1]
    np.testing.assert_array_equal(a, b)


def test_equal_scores_go_to_the_smaller_tie_rank():
    index = Bm25(["cough"] * 4, tie_rank=np.array([3, 1, 0, 2]))
    assert index.top(["cough"], 3)[0].tolist() == [[2, 1, 3]]


def test_the_hash_seed_of_the_process_changes_nothing():
    code = (
        "from inference.lexical import Bm25;"
        f"print([a.tolist() for a in Bm25({TEXTS!r}).top(['knee pain fever cough arm'], 5)])"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


# Bad input.


def test_empty_queries_and_unknown_words_have_empty_rows():
    indices, scores = Bm25(TEXTS).top(["", " ?", "unknown words", "knee"], 2)
    assert indices.tolist() == [[-1, -1], [-1, -1], [-1, -1], [2, 4]]
    assert np.isnan(scores[:3]).all()


@pytest.mark.parametrize("texts", [[], [""], ["", "?!"]])
def test_a_pool_without_words_recalls_nothing(texts):
    indices, _ = Bm25(texts).top(["knee"], 3)
    assert indices.tolist() == [[-1, -1, -1]]


def test_no_queries_give_no_rows():
    indices, scores = Bm25(TEXTS).top([], 3)
    assert indices.shape == scores.shape == (0, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k1": -1.0}, "k1 -1.0"),
        ({"b": 1.5}, "b 1.5"),
        ({"b": float("nan")}, "b nan"),
        ({"method": "tfidf"}, "'tfidf'.*lucene, robertson, atire"),
        ({"tie_rank": np.arange(2)}, r"\(2,\) for 5 texts"),
    ],
)
def test_settings_outside_their_range_are_refused_with_the_value(wrong, message):
    with pytest.raises(ValueError, match=message):
        Bm25(TEXTS, **wrong)


def test_a_mask_of_another_shape_and_r_of_0_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 4\), wanted \(1, 5\)"):
        Bm25(TEXTS).top(["knee"], 2, np.ones((1, 4), bool))
    with pytest.raises(ValueError, match="r 0"):
        Bm25(TEXTS).top(["knee"], 0)
