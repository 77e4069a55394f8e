"""A measurement in a process of its own: asked again while warm, under a memory limit.

`python -m tests.benchmarks.processes LIMIT_BYTES` reads one JSON request a line and answers each
with one line. It imports nothing but the standard library until it is asked to, because a
contender's interpreter has none of this project's packages.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Taken away from the process: a shell that sets them would hold back one contender only.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "Unable to allocate", "cannot allocate memory")


class Worker:
    """One process; `ask` runs a function in it and waits.

    Args:
        python: Interpreter.
        limit_bytes: Address space it may have (RLIMIT_AS); None sets no limit.
        environment: Variables beside those of this process.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        limit_bytes: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            [python, "-m", "tests.benchmarks.processes", str(limit_bytes or 0)],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k not in THREADS} | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def ask(self, call: str, arguments: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Run `module:function` with these arguments.

        Returns:
            `result` and `peak_bytes`, or `error`: a few words for a table. After an error the
            process is gone.
        """
        request = json.dumps({"call": call, "arguments": arguments}) + "\n"
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return {"error": self._died()}
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            if not ready.select(timeout_s):
                self.close()
                return {"error": f"over {timeout_s:g} s"}
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._died()}
        if "error" in answer:
            self.close()
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _died(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        if any(words in text for words in OUT_OF_MEMORY):
            return "out of memory"
        last = text.strip().splitlines()[-1:] or ["no message"]
        return f"exit {code}: {last[0]}"


def alone(
    call: str, arguments: dict[str, Any], *, timeout_s: float = 7200.0, **options: Any
) -> dict[str, Any]:
    """Run one function in a fresh process; its result, with `peak_bytes` beside it.

    Raises:
        RuntimeError: It failed.
    """
    with Worker(**options) as worker:
        answer = worker.ask(call, arguments, timeout_s=timeout_s)
    if "error" in answer:
        raise RuntimeError(f"{call}{arguments}: {answer['error']}\n{answer.get('trace', '')}")
    return {**answer["result"], "peak_bytes": answer["peak_bytes"]}


def main(limit_bytes: int) -> None:
    """Answer requests until there are no more."""
    if limit_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    # Whatever a contender prints must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_answer(**json.loads(line))) + "\n")
        answers.flush()


def _answer(call: str, arguments: dict[str, Any]) -> dict[str, Any]:
    module, _, function = call.partition(":")
    try:
        result = getattr(importlib.import_module(module), function)(**arguments)
    except MemoryError:
        return {"error": "out of memory"}
    except Exception as error:
        import traceback

        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    answer = {"result": result, "peak_bytes": _peak_bytes()}
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # a waiting process must not hold what it no longer needs
    return answer


def _peak_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
