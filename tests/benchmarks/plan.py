"""What `plan --calibrate` on 5,000 rows says of 20,000 rows and of the whole ICD-10-CM corpus.

Prediction, written before measuring: memory of every process and disk within 30%; time within a
factor of 2, because the first 5,000 rows need not be as long as the others, and because a machine
that others use is not as fast from one minute to the next.

    python -m tests.benchmarks.plan FOLDER [--sizes 20000 73002] [--set KEY=VALUE ...]

Every step is a process of its own, as a user would start it. The corpus is made in FOLDER.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from jobs.planning.calibrate import held
from tests.benchmarks.machine import describe, hardware
from tests.benchmarks.steady import dualdiv

CALIBRATED = 5_000
SIZES = (20_000, 73_002)
WITHIN = 0.3
ROOT = Path(__file__).parents[2]
# About the run itself, and of one size for any corpus.
OWN = ("log", "manifest.json")


@dataclass(frozen=True)
class Found:
    """One number, predicted and measured.

    Attributes:
        rows: Rows of the run.
        what: `memory`, `disk` or `time`.
        name: Of which process, kind or stage.
        predicted: Bytes or seconds.
        measured: The same.
    """

    rows: int
    what: str
    name: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Predicted by measured."""
        return self.predicted / self.measured if self.measured else 1.0

    @property
    def holds(self) -> bool:
        """Whether it is within what was promised; time promises nothing."""
        return self.what == "time" or abs(self.ratio - 1) <= WITHIN


def icd_config(folder: Path) -> str:
    """The quickstart on the whole corpus, with one Stage 1 and no LLM to wait for."""
    if not (folder / "icd10" / "corpus.parquet").exists():
        dualdiv("prepare", "icd10", "--out", str(folder / "icd10"))
    plain = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())
    plain["out"] = str(folder / "out")
    for table in ("corpus", "queries"):
        plain[table]["path"] = str(folder / "icd10" / f"{table}.parquet")
    plain["arms"] = [{"name": "coverage", "stage1": "coverage"}]
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return str(path)


def measure(folder: Path, *, sizes: tuple[int, ...], settings: tuple[str, ...] = ()) -> list[Found]:
    """Calibrate once, then predict and run every size.

    Args:
        folder: For corpus, rates and outputs.
        sizes: Rows of the runs.
        settings: `KEY=VALUE` of the config.
    """
    config, rates = icd_config(folder), str(folder / "rates.json")
    changes = [word for one in settings for word in ("--set", one)]
    more = [config, *changes, "--rates", rates, "--json"]
    dualdiv("plan", *more, "--calibrate", str(CALIBRATED), "--until", "select")
    found = []
    for rows in sizes:
        out = folder / f"out-{rows}"
        told = json.loads(dualdiv("plan", *more, "--limit", str(rows), "--out", str(out)))
        started = time.monotonic()
        dualdiv("select", config, *changes, "--limit", str(rows), "--out", str(out))
        wall_s = time.monotonic() - started
        found += compared(told, out, wall_s=wall_s, rows=rows)
    return found


def compared(told: dict, out: Path, *, wall_s: float, rows: int) -> list[Found]:
    """What a plan said beside what the run left."""
    manifest = json.loads((out / "manifest.json").read_text())
    real, said = held(manifest["stages"]), told["memory_bytes"]
    found = [Found(rows, "memory", name, said[name], real[name]) for name in real]
    files = [file for file in out.rglob("*") if file.is_file()]
    there = sum(f.stat().st_size for f in files if f.relative_to(out).parts[0] not in OWN)
    disk = sum(told["disk"].values()) - told["disk"]["prompts"]
    found.append(Found(rows, "disk", "all", disk, there))
    seconds = {name: told["seconds"][name] for name in ("ingest", "embed", "select")}
    for name, predicted in seconds.items():
        found.append(Found(rows, "time", name, predicted, manifest["timings_s"][name]))
    total = sum(seconds.values()) + told["seconds"]["start"]
    found.append(Found(rows, "time", "start to end", total, wall_s))
    return found


def table(found: list[Found]) -> str:
    """Markdown: a line a number."""
    lines = ["| rows | what | of | predicted | measured | ratio |", "|---|---|---|---|---|---|"]
    for one in found:
        unit, size = ("s", 1.0) if one.what == "time" else ("MiB", 2.0**20)
        numbers = [f"{n / size:,.1f} {unit}" for n in (one.predicted, one.measured)]
        cells = [f"{one.rows:,}", one.what, one.name, *numbers, f"{one.ratio:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and say whether the bars hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    found = measure(
        arguments.folder.absolute(), sizes=tuple(arguments.sizes), settings=tuple(arguments.set)
    )
    print(f"{describe(hardware())}\n\n{table(found)}\n")
    broken = [one for one in found if not one.holds]
    for one in broken:
        print(f"BROKEN: {one.what} of {one.name} at {one.rows:,} rows: ratio {one.ratio:.2f}")
    print(f"memory and disk within {WITHIN:.0%}: {'no' if broken else 'yes'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
