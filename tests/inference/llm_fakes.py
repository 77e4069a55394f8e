"""A tokenizer of bytes with control tokens, and an engine that answers by rule or dies."""

from collections.abc import Callable, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from inference.engine import Completion, EngineSpec, Sampling

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")


def byte_tokenizer(*, chat: bool = True, bos: bool = False) -> PreTrainedTokenizerFast:
    """One token per byte and per control token, as byte-level BPE without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([*CONTROL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROL])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", vocab["<s>"])]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = CHAT if chat else None
    return fast


class FakeLlm:
    """Answers `rule(prompt text, sampling)`; a rule that raises is an engine that dies.

    A dead engine refuses all further work, as a real one does.
    """

    settings = {"device": "fake"}

    def __init__(self, rule: Callable[[str, Sampling], str], tokenizer=None) -> None:
        self.tokenizer = tokenizer or byte_tokenizer()
        self.rule = rule
        self.batches: list[list[str]] = []
        self.dead = False
        self.closed = False
        self.n_forgotten = 0

    def check(self, token_ids: Sequence[int], sampling: Sampling) -> None:
        """Accept everything."""

    def generate(self, token_ids, sampling) -> list[Completion]:
        if self.dead:
            raise RuntimeError("the engine is dead")
        texts = [self.tokenizer.decode(list(ids)) for ids in token_ids]
        self.batches.append(texts)
        try:
            answers = [self.rule(*pair) for pair in zip(texts, sampling, strict=True)]
        except ConnectionError:
            self.dead = True
            raise
        return [
            answer
            if isinstance(answer, Completion)
            else Completion(answer, "stop", len(ids), 0, len(answer))
            for answer, ids in zip(answers, token_ids, strict=True)
        ]

    def forget(self) -> None:
        self.n_forgotten += 1

    def close(self) -> None:
        self.closed = True


class Factory:
    """Starts fakes, or fails to, and remembers what it started."""

    def __init__(self, rule, *, failures: Sequence[int] = (), tokenizer=None) -> None:
        self.rule = rule
        self.failures = set(failures)
        self.tokenizer = tokenizer or byte_tokenizer()
        self.n_calls = 0
        self.started: list[FakeLlm] = []

    def __call__(self, spec: EngineSpec) -> FakeLlm:
        self.n_calls += 1
        if self.n_calls in self.failures:
            raise MemoryError(f"start {self.n_calls}")
        self.started.append(FakeLlm(self.rule, self.tokenizer))
        return self.started[-1]
