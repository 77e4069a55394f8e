"""What goes into an LLM engine and comes out, whatever engine it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inference.prompt_tokens import Tokenizer
from inference.status import Status


class EngineError(RuntimeError):
    """The engine cannot be started, or fails on every row."""


class RowError(Exception):
    """The engine refuses a prompt and is unharmed.

    Args:
        message: the engine's own.
        status: of the row: rejected or too_long.
    """

    def __init__(self, message: str, *, status: Status = Status.REJECTED) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class EngineSpec:
    """The engine's settings; None means the default of the device (`vllm_engine.arguments`).

    Args:
        model: folder or name of the model.
        revision: of the model, where it has any.
        dtype: `auto`: on a CPU float32 unless the CPU multiplies bfloat16 by itself.
        max_model_len: most tokens of prompt and answer together.
        max_num_seqs: most requests computed at a time.
        gpu_memory_utilization: fraction of the GPU's memory.
        tensor_parallel_size: GPUs that share the model.
        enforce_eager: do not compile or capture graphs.
        kv_cache_memory_bytes: memory of the prefix cache and running requests, in bytes.
        block_size: tokens of a cache block; on a CPU a multiple of 32.
        n_threads: CPU threads.
        extra: further arguments of `vllm.LLM`, taken as they are.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    max_model_len: int = 2048
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    tensor_parallel_size: int | None = None
    enforce_eager: bool | None = None
    kv_cache_memory_bytes: int | None = None
    block_size: int | None = None
    n_threads: int = 1
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Sampling:
    """How tokens of one answer are chosen, and which log-probabilities are wanted.

    Args:
        max_tokens: most tokens of the answer.
        temperature: 0 is greedy.
        seed: for temperatures above 0.
        stop: strings that end the answer; not part of it.
        choices: the answer is one of these strings.
        logprob_token_ids: report the log-probability of these tokens at every generated position.
        prompt_logprobs: report the log-probability of every prompt token (switches the prefix
            cache off for the request).
        computed_logprobs: report those of the prompt tokens after which the prefix cache held
            nothing, and leave it on.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    logprob_token_ids: tuple[int, ...] | None = None
    prompt_logprobs: bool = False
    computed_logprobs: bool = False


@dataclass(frozen=True)
class Completion:
    """What the engine made of one prompt.

    Args:
        text: the answer, untouched.
        finish_reason: `stop` or `length`; empty where nothing ran.
        prompt_tokens: tokens sent.
        cached_tokens: of these, read from the prefix cache.
        output_tokens: tokens generated.
        engine_s: seconds from first scheduled to finished.
        queue_s: seconds from arrival in the engine to first scheduled.
        status: ok, empty_output, too_long, rejected or engine_crash.
        detail: the numbers or the error, where the status is not ok.
        logprobs: per generated position, token id -> log-probability.
        prompt_logprobs: log-probability per prompt token; None for the first, and where the token
            before it came from the prefix cache.
    """

    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    engine_s: float = 0.0
    queue_s: float = 0.0
    status: Status = Status.OK
    detail: str = ""
    logprobs: tuple[Mapping[int, float], ...] | None = None
    prompt_logprobs: tuple[float | None, ...] | None = None


class Llm(Protocol):
    """A started engine: all of a batch, or an exception."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """What the engine runs with, for the manifest."""
        ...

    def check(self, token_ids: Sequence[int], sampling: Sampling) -> None:
        """Raise RowError if the engine would refuse this prompt."""
        ...

    def generate(
        self, token_ids: Sequence[Sequence[int]], sampling: Sequence[Sampling]
    ) -> list[Completion]:
        """Return one completion per prompt, in order."""
        ...

    def forget(self) -> None:
        """Empty the prefix cache."""
        ...

    def close(self) -> None:
        """Free memory and processes."""
        ...
