"""Model folders of a few kilobytes, of the architectures of the encoder presets and the LLM."""

import string
from pathlib import Path

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GemmaConfig,
    GemmaModel,
    GPTNeoXConfig,
    GPTNeoXModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = ["the", "of", "a", "and", "in", "acute", "chronic", "cough", "fever", "pain"]
WORDS += ["left", "right", "knee", "arm", "drug", "gene", "protein"]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
END = "<|endoftext|>"


def tiny_bert(
    folder: Path, *, seed: int = 0, kind: type[BertModel] | type[BertForMaskedLM] = BertModel
) -> Path:
    """BERT with 2 layers of 32, words of WORDS and single letters, 512 positions."""
    letters = list(string.ascii_lowercase + string.digits + string.punctuation)
    pieces = [*_SPECIAL, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=512,
        initializer_range=0.3,
    )
    torch.manual_seed(seed)
    kind(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def tiny_splade(folder: Path, *, seed: int = 0) -> Path:
    """The tiny BERT with a head over its vocabulary, pooled as SPLADE does."""
    bert = tiny_bert(folder / "bert", seed=seed, kind=BertForMaskedLM)
    modules = [Transformer(str(bert), transformer_task="fill-mask"), SpladePooling("max")]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(folder / "splade"))
    return folder / "splade"


def _byte_tokenizer(*, bos: str | None) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: index for index, piece in enumerate([END, "<bos>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    names = {"bos_token": bos} if bos else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, model_max_length=2048, **names
    )


def tiny_gpt_neox(folder: Path) -> Path:
    """The architecture of BMRetriever-410M: no special tokens of its own, no pad token."""
    tokenizer = _byte_tokenizer(bos=None)
    config = GPTNeoXConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=2048,
        initializer_range=0.3,
    )
    torch.manual_seed(1)
    GPTNeoXModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_gemma(folder: Path) -> Path:
    """The architecture of BMRetriever-2B: a start token, and no end token of its own."""
    tokenizer = _byte_tokenizer(bos="<bos>")
    config = GemmaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=64,
        max_position_embeddings=2048,
        initializer_range=0.3,
    )
    torch.manual_seed(2)
    GemmaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_llama(folder: Path) -> Path:
    """An LLM that vLLM can run: one token a byte, answers that mean nothing."""
    tokenizer = _byte_tokenizer(bos="<bos>")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=64,
        max_position_embeddings=2048,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=0,
    )
    torch.manual_seed(3)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
