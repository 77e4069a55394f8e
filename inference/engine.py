"""An LLM engine that survives over-long prompts, poisonous rows and its own death."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from inference.prompt_tokens import Tokenizer, encode
from inference.status import Status

log = logging.getLogger(__name__)

# A crash of the engine by itself is tried once more before the row is given up.
_TRIES_ALONE = 2
_MAX_START_FAILURES = 3
# So many rows given up with no success between them: it is the engine, not the rows.
_MAX_ROWS_LOST_IN_A_ROW = 5
_START_PAUSE_S = 1.0


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
    """

    max_tokens: int = 16
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    logprob_token_ids: tuple[int, ...] | None = None
    prompt_logprobs: bool = False


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
        prompt_logprobs: log-probability per prompt token; None for the first.
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

    def close(self) -> None:
        """Free memory and processes."""
        ...


Start = Callable[[EngineSpec], Llm]


@dataclass(frozen=True)
class _Request:
    """A prompt that waits for its completion."""

    position: int
    row: int
    token_ids: tuple[int, ...]
    sampling: Sampling


@dataclass
class _Batch:
    """Completions by position, and those of rows that were given up."""

    done: dict[int, Completion] = field(default_factory=dict)
    lost: dict[int, Completion] = field(default_factory=dict)


class VllmEngine:
    """Runs prompts, rebuilds the engine when it dies, and gives up single rows only.

    Args:
        spec: settings.
        start: starts the engine; another function in tests.
        start_pause_s: wait between failed starts, in seconds.

    Raises:
        EngineError: the engine does not start.
    """

    def __init__(
        self, spec: EngineSpec, *, start: Start | None = None, start_pause_s: float = _START_PAUSE_S
    ) -> None:
        self.spec = spec
        self.n_rebuilds = 0
        self._start = start or _start_vllm
        self._start_pause_s = start_pause_s
        self._lost_in_a_row = 0
        self._llm: Llm | None = None
        self._tokenizer = self._live().tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def settings(self) -> Mapping[str, object]:
        """What the engine runs with, for the manifest."""
        return self._live().settings

    def generate(
        self, prompts: Sequence[str], sampling: Sampling | Sequence[Sampling]
    ) -> list[Completion]:
        """Return one completion per prompt, in the order of the prompts.

        Args:
            prompts: texts.
            sampling: one for all, or one per prompt.

        Raises:
            EngineError: the engine does not start again, or fails on every row.
        """
        return self.generate_ids([encode(self._tokenizer, p) for p in prompts], sampling)

    def generate_ids(
        self,
        token_ids: Sequence[Sequence[int]],
        sampling: Sampling | Sequence[Sampling],
        *,
        rows: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Like `generate`, for prompts that are token ids already.

        Args:
            token_ids: prompts.
            sampling: one for all, or one per prompt.
            rows: the row each prompt belongs to, where a row has several: a row that is given up
                for one of them is not tried with the others.
        """
        each = [sampling] * len(token_ids) if isinstance(sampling, Sampling) else list(sampling)
        if len(each) != len(token_ids):
            raise ValueError(f"{len(token_ids)} prompts but {len(each)} samplings; give one each")
        batch = _Batch()
        waiting: list[_Request] = []
        owners = range(len(token_ids)) if rows is None else rows
        for position, (row, ids, one) in enumerate(zip(owners, token_ids, each, strict=True)):
            refused = self._refuse(ids, one)
            if refused is None:
                waiting.append(_Request(position, row, tuple(ids), one))
            else:
                batch.done[position] = refused
        # The engine does not sort: neighbours that share a prefix find it in the cache.
        waiting.sort(key=lambda request: (request.token_ids, request.position))
        self._run(waiting, batch)
        return [batch.done[position] for position in range(len(token_ids))]

    def close(self) -> None:
        """Free the engine's memory; a later call starts it again."""
        if self._llm is not None:
            llm, self._llm = self._llm, None
            try:
                llm.close()
            except Exception:
                log.warning("engine: closing a dead engine failed", exc_info=True)

    def _refuse(self, ids: Sequence[int], sampling: Sampling) -> Completion | None:
        """Return the completion of a prompt that must not be sent."""
        n = len(ids)
        limit = self.spec.max_model_len
        if n + sampling.max_tokens > limit:
            detail = f"{n} prompt + {sampling.max_tokens} answer tokens > max_model_len {limit}"
            return Completion(prompt_tokens=n, status=Status.TOO_LONG, detail=detail)
        try:
            self._live().check(ids, sampling)
        except RowError as error:
            return Completion(prompt_tokens=n, status=error.status, detail=str(error))
        return None

    def _run(self, requests: Sequence[_Request], batch: _Batch) -> None:
        """Run requests; where the engine dies, rebuild it and halve them."""
        batch.done.update((r.position, batch.lost[r.row]) for r in requests if r.row in batch.lost)
        requests = [request for request in requests if request.row not in batch.lost]
        if not requests:
            return
        error = self._try(requests, batch)
        if error is None:
            return
        if len(requests) > 1:
            middle = len(requests) // 2
            self._run(requests[:middle], batch)
            self._run(requests[middle:], batch)
            return
        for _ in range(_TRIES_ALONE - 1):
            if isinstance(error, RowError):
                break
            error = self._try(requests, batch)
            if error is None:
                return
        self._give_up(requests[0], error, batch)

    def _try(self, requests: Sequence[_Request], batch: _Batch) -> Exception | None:
        """Run requests once; a dead engine is dropped and its error returned."""
        llm = self._live()
        try:
            completions = llm.generate(
                [request.token_ids for request in requests],
                [request.sampling for request in requests],
            )
            if len(completions) != len(requests):
                raise RuntimeError(f"{len(requests)} prompts gave {len(completions)} completions")
        except RowError as error:
            return error
        except Exception as error:
            log.warning("engine: died on %d prompts, rebuilding: %r", len(requests), error)
            self.close()
            self.n_rebuilds += 1
            return error
        self._lost_in_a_row = 0
        for request, completion in zip(requests, completions, strict=True):
            batch.done[request.position] = _with_status(completion)
        return None

    def _give_up(self, request: _Request, error: Exception, batch: _Batch) -> None:
        """Label a row that the engine refuses, or that kills it by itself."""
        n = len(request.token_ids)
        if isinstance(error, RowError):
            lost = Completion(prompt_tokens=n, status=error.status, detail=str(error))
        else:
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= _MAX_ROWS_LOST_IN_A_ROW:
                raise EngineError(
                    f"model {self.spec.model}: the engine died on {self._lost_in_a_row} rows in "
                    f"turn, each alone and {_TRIES_ALONE} times, with no success between them; "
                    f"last error: {error!r}. The engine or its settings are at fault, not the rows"
                ) from error
            detail = f"the engine died on this prompt alone {_TRIES_ALONE} times: {error!r}"
            lost = Completion(prompt_tokens=n, status=Status.ENGINE_CRASH, detail=detail)
        batch.done[request.position] = batch.lost[request.row] = lost

    def _live(self) -> Llm:
        """Return the running engine; start one if there is none."""
        if self._llm is not None:
            return self._llm
        last: Exception | None = None
        for attempt in range(1, _MAX_START_FAILURES + 1):
            try:
                self._llm = self._start(self.spec)
                return self._llm
            except FileNotFoundError as error:
                raise EngineError(f"model {self.spec.model}: {error}") from error
            except Exception as error:
                log.warning("engine: start %d failed: %r", attempt, error)
                last = error
                time.sleep(self._start_pause_s)
        raise EngineError(
            f"model {self.spec.model}: the engine failed to start {_MAX_START_FAILURES} times; "
            f"last error: {last!r}. Check the model folder, max_model_len and memory"
        ) from last


def _start_vllm(spec: EngineSpec) -> Llm:
    """Start vLLM; imported late, because that takes ten seconds."""
    from inference.vllm_engine import start_vllm

    return start_vllm(spec)


def _with_status(completion: Completion) -> Completion:
    """Label an answer without text; whoever asked for log-probabilities wants no text."""
    scored = completion.logprobs is not None or completion.prompt_logprobs is not None
    if completion.status is Status.OK and not completion.text.strip() and not scored:
        return replace(completion, status=Status.EMPTY_OUTPUT, detail="the answer has no text")
    return completion
