"""An LLM engine that survives over-long prompts, poisonous rows and its own death."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inference.llm import Completion, EngineError, EngineSpec, Llm, RowError, Sampling
from inference.prompt_tokens import Tokenizer, encode
from inference.status import Status

__all__ = ["Completion", "EngineError", "EngineSpec", "RowError", "Sampling", "VllmEngine"]

log = logging.getLogger(__name__)

# A crash of the engine by itself is tried once more before the row is given up.
_TRIES_ALONE = 2
_MAX_START_FAILURES = 3
# So many rows given up with no success between them: is it the engine? A short prompt tells.
_PROBE_EVERY_ROWS = 5
_MAX_ROWS_LOST_IN_A_ROW = 50
_PROBE = "a"
_START_PAUSE_S = 1.0

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
        self._settings = dict(self._live().settings)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def settings(self) -> Mapping[str, object]:
        """What the engine runs with, for the manifest."""
        return self._settings

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

    def forget(self) -> None:
        """Empty the prefix cache, so that what is counted as cached from now on is shared anew.

        An engine that cannot is closed; the next call starts another, whose cache is empty.
        """
        if self._llm is None:
            return
        try:
            self._llm.forget()
        except Exception as error:
            log.warning("engine: the prefix cache was not emptied, starting anew: %r", error)
            self.close()

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
            self._suspect_engine(error)
            detail = f"the engine died on this prompt alone {_TRIES_ALONE} times: {error!r}"
            lost = Completion(prompt_tokens=n, status=Status.ENGINE_CRASH, detail=detail)
        batch.done[request.position] = batch.lost[request.row] = lost

    def _suspect_engine(self, error: Exception) -> None:
        """End the run if so many rows in turn died that the engine must be at fault."""
        n = self._lost_in_a_row
        if n % _PROBE_EVERY_ROWS or (n < _MAX_ROWS_LOST_IN_A_ROW and self._answers_probe()):
            return
        raise EngineError(
            f"model {self.spec.model}: the engine died on {n} rows in turn, each alone and "
            f"{_TRIES_ALONE} times, with no success between them; last error: {error!r}. "
            f"The engine or its settings are at fault, not the rows"
        ) from error

    def _answers_probe(self) -> bool:
        """Tell whether the engine still completes a harmless prompt."""
        ids = encode(self._tokenizer, _PROBE)
        try:
            self._live().generate([ids], [Sampling(max_tokens=1)])
        except EngineError:
            raise
        except Exception:
            self.close()
            self.n_rebuilds += 1
            return False
        return True

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
