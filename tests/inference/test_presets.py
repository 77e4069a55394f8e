"""Every preset's prompt, pooling and length, against the literal computation of its model card."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from inference.encoder import Encoder
from inference.presets import PRESETS
from tests.inference.tiny_models import tiny_bert, tiny_gemma, tiny_gpt_neox

TEXTS = ["cough", "acute pain in the left knee", "fever " * 700, "a drug and a gene"]
IDS = ["3", "1", "2", "0"]


def tiny(name, *, model, query_model=None):
    return dataclasses.replace(PRESETS[name], model=str(model), query_model=query_model)


def hidden_states(folder, ids):
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()


def first_token(folder, text, *, limit):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=limit)["input_ids"]
    return unit(hidden_states(folder, ids)[0])


def appended_end_token(folder, text, *, limit):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=limit - 1)["input_ids"]
    return unit(hidden_states(folder, [*ids, tokenizer.eos_token_id])[-1])


def unit(vector):
    return vector / np.linalg.norm(vector)


def encoded(spec, role):
    return Encoder(spec, role).encode(TEXTS, ids=IDS)


def close(found, wanted):
    np.testing.assert_allclose(found.vectors, np.stack(wanted), atol=2e-5)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def test_bge_queries_carry_the_instruction_and_pool_the_first_token(bert):
    said = "Represent this sentence for searching relevant passages: "
    found = encoded(tiny("bge-large", model=bert), "query")
    close(found, [first_token(bert, said + text, limit=512) for text in TEXTS])
    assert found.truncated.tolist() == [False, False, True, False]


def test_bge_documents_carry_no_instruction(bert):
    found = encoded(tiny("bge-large", model=bert), "document")
    close(found, [first_token(bert, text, limit=512) for text in TEXTS])


def test_medcpt_queries_and_articles_each_use_their_own_model_and_length(bert, tmp_path):
    queries = tiny_bert(tmp_path, seed=7)
    spec = tiny("medcpt", model=bert, query_model=str(queries))
    close(encoded(spec, "query"), [first_token(queries, text, limit=64) for text in TEXTS])
    close(encoded(spec, "document"), [first_token(bert, text, limit=512) for text in TEXTS])
    assert Encoder(spec, "query").max_tokens == 64
    assert Encoder(spec, "document").max_tokens == 512


@pytest.mark.parametrize("build", [tiny_gpt_neox, tiny_gemma])
def test_bmretriever_pools_an_appended_end_token_behind_its_instructions(build, tmp_path):
    folder = build(tmp_path)
    spec = tiny("bmretriever-410m", model=folder)
    task = "Given a biomedical text, retrieve texts that are similar to it"
    queries = [f"{task}\nQuery: {text}" for text in TEXTS]
    passages = [f"Represent this passage\npassage: {text}" for text in TEXTS]
    close(
        encoded(spec, "query"),
        [appended_end_token(folder, text, limit=512) for text in queries],
    )
    found = encoded(spec, "document")
    close(found, [appended_end_token(folder, text, limit=512) for text in passages])
    n_bytes = len(passages[0])  # one token a byte, then the end token, and a start token in Gemma
    assert found.n_tokens[0] == n_bytes + (2 if build is tiny_gemma else 1)


@pytest.mark.model
def test_minilm_is_what_sentence_transformers_computes():
    from sentence_transformers import SentenceTransformer

    from inference.models import resolve

    texts = ["Cholera", "Typhoid fever, unspecified", "Fracture of the left knee"]
    bare = SentenceTransformer(str(resolve(PRESETS["minilm"].model)), device="cpu")
    found = Encoder(PRESETS["minilm"], "document").encode(texts, ids=["a", "b", "c"])
    wanted = bare.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(found.vectors, wanted, atol=1e-5)
