"""What screening costs in quality and saves in time, on real and on awkward vectors.

    python -m tests.benchmarks.screening --cache FOLDER [--steps ratio growth ...]

Every selection has a process of its own with two threads; every f is computed by `judge`, on all
rows, never by the code that selected. Ratios are those of g, which counts coverage from its
baseline of -1 a row: (C / N + 1) at lam 0. A random set has .8 to .9 of the best g already, so
the lift, (f - f_random) / (f_exact - f_random), stands beside each ratio, and f itself too.

| step | what |
|---|---|
| ratio | screened (leaders judged on all of V) against exact, N 100,000, k 300, lam 0 and above |
| growth | seconds of screened from N 25,000 to 200,000 and the exponent of N |
| certificate | the proved bound at lam 0, N 20,000, k 100 |
| corpora | screened against exact on three real corpora and on three made to be awkward |
| lambda | fixed lambda against the rules that change it: coverage, log-determinant, distance |

Predictions, for two AVX2 cores of about 115 GFLOP/s, written before measuring:

- ratio, lam 0: exact is 4.5 passes of 7.7 TFLOP, 300 s; screened one pass on 8,192 points and a
  pass or less on all, 60 to 90 s: .25 of the time, g .9997, lift .998, overlap .8. lam above 0
  has more passes, exact 400 s. Log-determinant 1 to 2% of the time.
- growth: 1.05 to 1.1 (the sample of 8,192 is a third of 25,000 points, which favours the small).
  With a middle sample from 65,536 points on, one unseen copy: 14 s at 25,000, 110 s at 200,000.
- certificate: .91 raw, .45 above random.
- corpora: all above .999 but heavy duplicates, where the sample has few of each text: .998.
- lambda: a share of .2 and a fixed lam of the same end value differ by less than .002 in
  coverage; a floor on distance is met, and costs coverage.
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.judge import Worth, lift, overlap, random_picks, worth
from tests.benchmarks.processes import alone
from tests.benchmarks.report import Bar, Results, bars, head, table
from tests.benchmarks.vectors import ADVERSARIAL, adversarial, default_corpus, ground

CHOOSE = "tests.benchmarks.ours:choose"
EXACT = {"mode": "exact"}
RULES: dict[str, dict[str, Any]] = {
    "linear from 0": {"rule": {"kind": "linear", "start": 0.0}},
    "linear to 0": {"rule": {"kind": "linear", "end": 0.0}},
    "share .1": {"rule": {"kind": "share", "target": 0.1}},
    "share .3": {"rule": {"kind": "share", "target": 0.3}},
    "distance .9": {"rule": {"kind": "distance", "target": 0.9}},
}
RATIO = ["f", "g", "lift", "overlap", "seconds", "time"]


def main() -> None:
    """Measure the steps asked for, and print their tables and bars."""
    asked = _arguments()
    results = Results(asked.results)
    print(head("Screened against exact"))
    held: list[Bar] = []
    for name in asked.steps:
        text, found = STEPS[name](asked, results)
        print(f"### {name}\n\n{text}\n", flush=True)
        held += found
    print(bars(held))


def selected(
    results: Results, path: Path, k: int, *, effort: dict[str, Any], **rest: Any
) -> dict[str, Any]:
    """One selection in a process of its own, or what the file of results has of it.

    Args:
        results: The file.
        path: Vectors.
        k: Picks.
        effort: Fields of `Effort`.
        rest: `objective`, and `turn` for another measurement of the same.
    """
    objective, turn = rest.get("objective", {}), rest.get("turn", 0)
    key = {"choose": path.name, "k": k, "effort": effort, "objective": objective, "turn": turn}
    arguments = {"path": str(path), "k": k, "effort": effort, "objective": objective}
    return results.get(key, lambda: alone(CHOOSE, arguments | {"warm": True}))


def ratio(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Quality and time of screened against exact, in turns, `repeats` times each."""
    n, k = asked.n, asked.k
    path = ground(n, asked.cache, asked.corpus)
    lines, held = [], []
    for lam in asked.lam:
        objective = {"lam": lam}
        pairs = [
            [
                selected(results, path, k, effort=effort, objective=objective, turn=turn)
                for effort in (EXACT, _screened(asked, asked.m1))
            ]
            for turn in range(asked.repeats)
        ]
        line = compared(path, pairs, lam)
        share = median(one["log_det_s"] / one["seconds"] for _, one in pairs)
        lines.append((lam, *line, share if lam else None))
        at = f"N {n:,}, k {k}, lam {lam:g}"
        held += [
            Bar(f"{at}: screened / exact, g", line[RATIO.index("g")], 0.999, True),
            Bar(f"{at}: screened / exact, seconds", line[RATIO.index("time")], 1 / 3, False),
        ]
        if lam:
            held.append(Bar(f"{at}: log-determinant's share of screened", share, 0.05, False))
    return table(["lam", *RATIO_COLUMNS, "log-det share"], lines), held


def _screened(asked: argparse.Namespace, m1: int) -> dict[str, Any]:
    """Looked at on m1 points, leaders judged on all of V."""
    return {"mode": "screened", "m1": m1, "m2": "all", "z": asked.z, "unseen": asked.unseen}


RATIO_COLUMNS = [
    "f / f exact",
    "g / g exact",
    "lift",
    "overlap",
    "exact s, screened s",
    "time ratio",
]


def compared(path: Path, pairs: list[list[dict[str, Any]]], lam: float) -> tuple[Any, ...]:
    """Screened against exact in the order of RATIO; times are medians over the turns."""
    rows = np.load(path, mmap_mode="r")
    exact, screened = pairs[0]
    best = worth(rows, exact["picks"], lam=lam)
    found = worth(rows, screened["picks"], lam=lam)
    control = worth(rows, random_picks(len(rows), len(exact["picks"])), lam=lam)
    exact_s = median(one["seconds"] for one, _ in pairs)
    screened_s = median(one["seconds"] for _, one in pairs)
    return (
        found.f / best.f,
        found.g / best.g,
        lift(found.f, best.f, control.f),
        overlap(exact["picks"], screened["picks"]),
        f"{exact_s:.1f}, {screened_s:.1f} ({screened['mode']})",
        median(one[1]["seconds"] / one[0]["seconds"] for one in pairs),
    )


def growth(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Seconds against N, screened and judged on all of V; exponent by least squares on logs."""
    seconds: dict[int, float] = {}
    effort, objective = _screened(asked, asked.m1), {"lam": max(asked.lam)}
    for n in asked.sizes:
        path = ground(n, asked.cache, asked.corpus)
        runs = [
            selected(results, path, asked.k, effort=effort, objective=objective, turn=turn)
            for turn in range(asked.repeats)
        ]
        seconds[n] = median(run["seconds"] for run in runs)
    exponent, _ = np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)
    text = table(["N", "seconds"], seconds.items()) + f"\n\ntime grows as N^{exponent:.3f}"
    at = f"N {min(seconds):,} to {max(seconds):,}, k {asked.k}, lam {max(asked.lam):g}"
    return text, [Bar(f"{at}: exponent of time", float(exponent), 1.15, False)]


def certificate(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """The proved bound of the exact mode, its ratio raw and above a random set."""
    n, k = asked.certificate_n, 100
    path = ground(n, asked.cache, asked.corpus)
    rows = np.load(path, mmap_mode="r")
    run = selected(results, path, k, effort=EXACT)
    found, control = worth(rows, run["picks"]), worth(rows, random_picks(n, k))
    bound = run["bound"]
    raw = (found.f + 1) / (bound + 1)
    above = lift(found.f, bound, control.f)
    columns = ["N", "k", "C / N", "random", "proved bound", "raw ratio", "above random"]
    text = table(columns, [(n, k, found.f, control.f, bound, raw, above)])
    return text, [Bar(f"N {n:,}, k {k}, lam 0: certificate, raw", raw, 0.9, True)]


def corpora(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Screened against exact on real corpora and on awkward vectors, at every lam."""
    paths = {}
    for corpus in asked.corpora:
        paths[corpus] = ground(asked.corpora_n, asked.cache, corpus)
    for name in ADVERSARIAL:
        paths[name] = adversarial(name, asked.corpora_n, asked.cache, asked.corpus)
    lines, held = [], []
    # A sample of 8,192 would be most of so few rows: a smaller one, so that it has to estimate.
    screened = _screened(asked, asked.corpora_m1)
    for name, path in paths.items():
        for lam in asked.lam:
            pair = [
                selected(results, path, asked.k, effort=effort, objective={"lam": lam})
                for effort in (EXACT, screened)
            ]
            line = compared(path, [pair], lam)
            n = len(np.load(path, mmap_mode="r"))
            lines.append((name, n, lam, *line))
            held.append(Bar(f"{name}, lam {lam:g}: screened / exact, g", line[1], 0.999, True))
    return table(["vectors", "N", "lam", *RATIO_COLUMNS], lines), held


def lambdas(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Fixed lambda against the rules that change it, by measures that no lambda enters."""
    n, k = asked.certificate_n, 100
    path = ground(n, asked.cache, asked.corpus)
    rows = np.load(path, mmap_mode="r")
    top = max(asked.lam) or 1e-4
    settings = {f"fixed {lam:.1e}": {"lam": lam} for lam in (0.0, top / 10, top, top * 10)}
    for name, setting in RULES.items():
        rule = dict(setting["rule"])
        if rule["kind"] == "linear":
            rule = {"start": top * 10, "end": top * 10} | rule
        settings[name] = {"lam": top, "rule": rule}
    lines = []
    for name, objective in settings.items():
        run = selected(results, path, k, effort={"mode": "auto"}, objective=objective)
        lines.append(_quality(name, worth(rows, run["picks"]), run["lam_end"], k))
    lines.append(_quality("random", worth(rows, random_picks(n, k)), None, k))
    columns = ["lambda", "C / N", "log-det a pick", "mean 1 - cosine", "last lambda"]
    return table(columns, lines), []


def _quality(name: str, found: Worth, lam: float | None, k: int) -> tuple[object, ...]:
    return name, found.coverage, found.log_det / k, found.distance, lam


STEPS = {
    "ratio": ratio,
    "growth": growth,
    "certificate": certificate,
    "corpora": corpora,
    "lambda": lambdas,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the vectors")
    parser.add_argument("--corpus", help="rct, icd, banking or ddi")
    parser.add_argument("--results", type=Path, help="JSON lines; what stands there is not redone")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--n", type=int, default=100_000, help="rows of `ratio`")
    parser.add_argument("--k", type=int, default=300)
    parser.add_argument("--m1", type=int, default=8_192)
    parser.add_argument("--z", type=float, default=1.0, help="standard errors added on m1 points")
    parser.add_argument("--unseen", type=float, default=1.0, help="copies the sample may miss")
    parser.add_argument("--sizes", type=int, nargs="+", default=[25_000, 50_000, 100_000, 200_000])
    parser.add_argument("--lam", type=float, nargs="+", default=[0.0, 1e-4], help="mean scale")
    parser.add_argument("--repeats", type=int, default=5, help="turns of `ratio` and `growth`")
    parser.add_argument("--certificate-n", type=int, default=20_000)
    parser.add_argument("--corpora", nargs="+", default=["rct", "icd", "banking"])
    parser.add_argument("--corpora-n", type=int, default=12_000)
    parser.add_argument("--corpora-m1", type=int, default=2_048)
    parser.add_argument("--quick", action="store_true", help="a few thousand rows, one turn")
    asked = parser.parse_args()
    asked.corpus = asked.corpus or default_corpus(asked.cache)
    if asked.quick:
        asked.n = asked.certificate_n = asked.corpora_n = 2_000
        asked.k, asked.repeats, asked.lam = 40, 1, [1e-4]
        asked.m1 = asked.corpora_m1 = 512
        asked.sizes, asked.corpora = [1_000, 2_000], [asked.corpus]
    return asked


if __name__ == "__main__":
    main()
