"""vLLM behind the `Llm` protocol; the only file that imports it."""

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inference.fetching import fetched
from inference.llm import Completion, EngineSpec, RowError, Sampling
from inference.models import revision
from inference.prompt_tokens import Tokenizer
from inference.status import Status

# In one process, with one thread that is not pinned: many small actors share the cores.
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    # Standard output belongs to results.
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
_CPU_DEFAULTS: dict[str, object] = {
    "max_num_seqs": 64,
    "enforce_eager": True,
    # The default of 128 leaves up to 127 shared tokens out of the prefix cache.
    "block_size": 32,
    # A 135M model in float32 takes 46 KiB a token: room for 64 prompts of 180 tokens.
    "kv_cache_memory_bytes": 512 << 20,
}
_GPU_DEFAULTS: dict[str, object] = {
    "max_num_seqs": 256,
    "gpu_memory_utilization": 0.9,
    "enforce_eager": False,
}
_CPU_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def arguments(spec: EngineSpec, *, gpu: bool) -> dict[str, object]:
    """Return the arguments of `vllm.LLM`: the device's defaults under what the spec sets.

    Args:
        spec: settings; None takes the default.
        gpu: whether a GPU is there.
    """
    chosen = {
        "max_num_seqs": spec.max_num_seqs,
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "tensor_parallel_size": spec.tensor_parallel_size,
        "enforce_eager": spec.enforce_eager,
        "kv_cache_memory_bytes": spec.kv_cache_memory_bytes,
        "block_size": spec.block_size,
        "revision": spec.revision,
    }
    return {
        "model": spec.model,
        "dtype": spec.dtype if gpu or spec.dtype != "auto" else cpu_dtype(),
        "max_model_len": spec.max_model_len,
        "enable_prefix_caching": True,
        # Request times and cached tokens come with the statistics.
        "disable_log_stats": False,
        **(_GPU_DEFAULTS if gpu else _CPU_DEFAULTS),
        **{name: value for name, value in chosen.items() if value is not None},
        **spec.extra,
    }


def cpu_dtype(cpuinfo: str = "/proc/cpuinfo") -> str:
    """Return bfloat16 where the CPU multiplies it by itself, else float32.

    Emulated bfloat16 took six times as long as float32 on an AVX2 machine.
    """
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as lines:
            flags = {word for line in lines for word in line.split()}
    except OSError:
        return "float32"
    return "bfloat16" if flags & _CPU_BFLOAT16_FLAGS else "float32"


def start_vllm(spec: EngineSpec) -> "Vllm":
    """Start vLLM on the GPU if there is one, else on the CPU.

    Raises:
        FileNotFoundError: the model is a path that does not exist.
        LookupError: a hub model that is not here and cannot be fetched.
    """
    import torch

    if os.path.isabs(spec.model) and not os.path.isdir(spec.model):
        raise FileNotFoundError("there is no such model folder; check the engine's model path")
    if not os.path.isdir(spec.model):
        # Engines begin together, and each would ask the hub for all of its files.
        folder = fetched(spec.model, revision(spec.model, spec.revision))
        spec = replace(spec, model=str(folder), revision=None)

    gpu = torch.cuda.is_available()
    for name, value in {**_ENVIRONMENT, **({} if gpu else _CPU_ENVIRONMENT)}.items():
        os.environ.setdefault(name, value)
    chosen = arguments(spec, gpu=gpu)
    if not gpu:
        os.environ["OMP_NUM_THREADS"] = str(spec.n_threads)
        torch.set_num_threads(spec.n_threads)
        # One small function of the sampler is compiled otherwise: 14 s, and a C++ compiler needed.
        torch._dynamo.config.disable = bool(chosen["enforce_eager"])
    return Vllm(chosen, device="cuda" if gpu else "cpu")


def _mend_module_scan() -> None:
    """Let vLLM scan a process that has numba loaded.

    On a CPU vLLM looks at `vars()` of everything in every loaded module and expects a dict, but
    llvmlite's library handle answers any attribute, `__dict__` included, with a function.
    """
    try:
        from vllm.triton_utils import dispatcher
    except ImportError:
        return

    def vars_or_nothing(value: object) -> Mapping[str, object]:
        found: object = vars(value)
        return found if isinstance(found, Mapping) else {}

    dispatcher.vars = vars_or_nothing


class Vllm:
    """A started vLLM.

    Args:
        chosen: arguments of `vllm.LLM`.
        device: cuda or cpu, for the settings.
    """

    def __init__(self, chosen: Mapping[str, object], *, device: str) -> None:
        import vllm

        _mend_module_scan()
        self.settings: dict[str, object] = {
            **chosen,
            "device": device,
            # The distribution's name differs between builds, so importlib.metadata is no help.
            "vllm": vllm.__version__,
        }
        self._llm: Any = vllm.LLM(**chosen)
        self.settings["cache_tokens"] = _cache_tokens(self._llm)
        self.tokenizer: Tokenizer = self._llm.get_tokenizer()

    def check(self, token_ids: Sequence[int], sampling: Sampling) -> None:
        """Raise RowError for an empty prompt, which vLLM refuses with the whole batch."""
        if not token_ids:
            raise RowError("the prompt has no tokens")

    def generate(
        self, token_ids: Sequence[Sequence[int]], sampling: Sequence[Sampling]
    ) -> list[Completion]:
        """Return one completion per prompt, in order.

        Raises:
            RowError: vLLM refuses a prompt; nothing was run.
        """
        from vllm.exceptions import VLLMClientError

        try:
            outputs = self._llm.generate(
                [{"prompt_token_ids": list(ids)} for ids in token_ids],
                [_parameters(one) for one in sampling],
                use_tqdm=False,
            )
        except VLLMClientError as error:
            # vLLM has no class of its own for over-long prompts.
            too_long = "maximum" in str(error) and "length" in str(error)
            status = Status.TOO_LONG if too_long else Status.REJECTED
            raise RowError(str(error), status=status) from error
        return [_completion(output) for output in outputs]

    def forget(self) -> None:
        """Empty the prefix cache; nothing runs between two batches, so that vLLM can."""
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not empty its prefix cache: requests are still running")

    def close(self) -> None:
        """Shut the engine down, so that another can start in this process."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        gc.collect()
        cleanup_dist_env_and_memory()


def _cache_tokens(llm: Any) -> int | None:  # noqa: ANN401
    """Return how many tokens vLLM can keep, if it says."""
    cache = llm.llm_engine.vllm_config.cache_config
    n_blocks, block_size = cache.num_gpu_blocks, cache.block_size
    return n_blocks * block_size if n_blocks and block_size else None


def _parameters(sampling: Sampling) -> Any:  # noqa: ANN401
    """Return vLLM's SamplingParams."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    wanted = sampling.logprob_token_ids
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        stop=list(sampling.stop) or None,
        structured_outputs=(
            StructuredOutputsParams(choice=list(sampling.choices)) if sampling.choices else None
        ),
        logprob_token_ids=None if wanted is None else list(wanted),
        prompt_logprobs=0 if sampling.prompt_logprobs or sampling.computed_logprobs else None,
        # None is vLLM's own choice: no cache where log-probabilities of the prompt are wanted.
        skip_reading_prefix_cache=False if sampling.computed_logprobs else None,
        detokenize=wanted is None,
    )


def _completion(output: Any) -> Completion:  # noqa: ANN401
    """Return what this project keeps of vLLM's RequestOutput."""
    answer = output.outputs[0]
    times = output.metrics
    return Completion(
        text=answer.text,
        finish_reason=answer.finish_reason or "",
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        output_tokens=len(answer.token_ids),
        engine_s=max(0.0, times.last_token_ts - times.scheduled_ts),
        queue_s=max(0.0, times.scheduled_ts - times.queued_ts),
        logprobs=_positions(answer.logprobs),
        prompt_logprobs=_prompt_positions(output),
    )


def _positions(logprobs: Any) -> tuple[dict[int, float], ...] | None:  # noqa: ANN401
    """Return token id -> log-probability per generated position."""
    if logprobs is None:
        return None
    return tuple({token: entry.logprob for token, entry in at.items()} for at in logprobs)


def _prompt_positions(output: Any) -> tuple[float | None, ...] | None:  # noqa: ANN401
    """Return the log-probability of every prompt token that follows a computed one.

    What vLLM lists for cached positions is whatever the memory held, or nothing, so that entries
    are counted from the end.
    """
    if output.prompt_logprobs is None:
        return None
    ids, entries = output.prompt_token_ids, output.prompt_logprobs
    first = (output.num_cached_tokens or 0) + 1
    known = [entries[at - len(ids)][ids[at]].logprob for at in range(first, len(ids))]
    return (*[None] * min(first, len(ids)), *known)
