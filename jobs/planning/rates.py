"""How fast and how large: rates that were measured by `plan --calibrate`, or assumed."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import manifest
from jobs.config.load import Config
from jobs.errors import ConfigError
from jobs.storage import Store

NAME = "rates.json"
VERSION = 1
# Measured on two cores of an AMD EPYC without AVX-512, float32, in a second and core: rows read and
# rows put into partitions; tokens embedded with all-MiniLM-L6-v2, whose blocks have 10.6 million
# weights (a larger encoder is slower by its weights); prompt tokens read by SmolLM2-135M.
ASSUMED = {
    "read_rows": 8_000.0,
    "partition_rows": 40_000.0,
    "embed_tokens": 2_500.0,
    "prompt_tokens": 250.0,
}
EMBED_WEIGHTS = 10.6e6
# Assumed, not measured: one GPU does what so many of these cores do, 22 TFLOP/s to 55 GFLOP/s.
GPU_CORES = 400.0
# Ray and the workers of all stages, models loaded.
SECONDS_TO_START = 45.0
# A worker with Arrow and numpy, and one with torch and sentence-transformers too.
PROCESS_BYTES, ENCODER_PROCESS_BYTES = 300 * 2**20, 650 * 2**20


@dataclass(frozen=True)
class Rates:
    """What a plan rests on.

    Attributes:
        measured: As `plan --calibrate` wrote it; empty: nothing was measured.
        source: Where it was found, or `assumed`.
    """

    measured: dict[str, Any] = field(default_factory=dict)
    source: str = "assumed"

    def get(self, *keys: str) -> Any:
        """What was measured under these keys, None where it was not."""
        found: Any = self.measured
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def per_core(self, what: str) -> float:
        """Rows of ingest a core does in a second; `what` is a key of `ASSUMED`."""
        return float(self.get("ingest", what) or ASSUMED[what])

    def embed_tokens(self, name: str, *, weights: float, cpus: float, gpus: float) -> float:
        """Tokens that one worker embeds in a second.

        Args:
            name: Of the encoder.
            weights: In its blocks.
            cpus: Of the worker.
            gpus: Of the worker; above 0, it uses them instead.
        """
        assumed = ASSUMED["embed_tokens"] * EMBED_WEIGHTS / max(weights, 1.0)
        return self._pace(("encoders", name, "tokens_per_s"), assumed, cpus=cpus, gpus=gpus)

    def prompt_tokens(self, engine: str, *, cpus: float, gpus: float) -> float:
        """Prompt tokens that one worker's LLM reads in a second, answers included."""
        keys = ("engines", engine, "tokens_per_s")
        return self._pace(keys, ASSUMED["prompt_tokens"], cpus=cpus, gpus=gpus)

    def _pace(self, keys: tuple[str, ...], assumed: float, *, cpus: float, gpus: float) -> float:
        """By device: what was measured on one says nothing of the other but through GPU_CORES."""
        unit, count = ("gpu", gpus) if gpus else ("core", cpus)
        found = self.get(*keys, unit)
        if found is None and unit == "gpu":
            found = GPU_CORES * float(self.get(*keys, "core") or assumed)
        return float(found or assumed) * count

    def gpu_assumed(self) -> bool:
        """Whether no pace was measured on a GPU."""
        parts = [*(self.get("encoders") or {}).values(), *(self.get("engines") or {}).values()]
        return not any("gpu" in part.get("tokens_per_s", {}) for part in parts)

    def line(self) -> str:
        """Where the numbers come from, in words."""
        if not self.measured:
            return "rates: assumed, of two cores of an AMD EPYC; measure yours with --calibrate"
        return (
            f"rates: {self.source}, measured {self.measured['measured']} on "
            f"{self.measured['rows']:,} rows"
        )


def read_rates(config: Config, path: str | None) -> Rates:
    """The rates in a file, or those of the output; without either, none.

    Args:
        config: The resolved config.
        path: A local JSON file; None: `rates.json` of the output, where it is there.

    Raises:
        ConfigError: The file is not there, or is none of rates.
    """
    store = Store(config.out)
    if path is None:
        if not store.exists(NAME):
            return Rates()
        return _parsed(store.read_bytes(NAME), f"{config.out}/{NAME}")
    try:
        return _parsed(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"--rates {path}: cannot be read ({error.strerror}).") from None


def write_rates(config: Config, measured: dict[str, Any], path: str | None) -> Rates:
    """Keep what was measured.

    Args:
        config: The resolved config.
        measured: Plain data.
        path: As for `read_rates`.
    """
    measured = {"version": VERSION, "measured": manifest.now(), **measured}
    data = json.dumps(measured, indent=1).encode()
    if path is None:
        store = Store(config.out)
        store.create()
        store.write_bytes(NAME, data)
        return Rates(measured, f"{config.out}/{NAME}")
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise ConfigError(f"--rates {path}: cannot be written ({error.strerror}).") from None
    return Rates(measured, path)


def _parsed(data: bytes, where: str) -> Rates:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ConfigError(
            f"{where}: is no file of rates, version {VERSION}. Make one with plan --calibrate."
        )
    return Rates(found, where)
