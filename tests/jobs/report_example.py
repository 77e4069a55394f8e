"""A report model with every part filled, made of invented rows."""

from collections import Counter

import numpy as np
import pandas as pd

from jobs.reporting.audit import audit, points_of
from jobs.reporting.cases import Answer, Record, cases_of
from jobs.reporting.metric_tables import (
    MEASURES,
    ORDER_SPREAD_SCHEMA,
    ORDERS_SCHEMA,
    to_arrow,
)
from jobs.reporting.metrics import Yardstick, answers_by_id, compare, summarise
from jobs.reporting.model import CandidateMap, Coverage, ReportModel, Sample
from jobs.reporting.noise import noise_rows, with_floors
from jobs.reporting.orders import spread_rows
from jobs.reporting.paired import Design, paired_tests
from jobs.reporting.projection import Projection
from jobs.reporting.slices import by_length, slice_differences, slice_rows
from jobs.reporting.sweeps import Sweep
from tests.jobs.metric_rows import summary_row

LABELS = [
    *("animals", "plants and fungi", "stones <script>alert(1)</script>", "weather at $5 & $6"),
    *("water", "a label so long that no chart can ever show all of it in one line of text"),
    *("tools", "music", "numbers", "towns", "cloth", "food"),
]
ARMS = {
    "zero-shot": (0.15, "none", "none"),
    "random+knn": (0.42, "random", "knn"),
    "coverage+knn": (0.45, "coverage", "knn"),
    "dual-div+knn": (0.55, "dual-div", "knn"),
    "dual-div": (0.25, "dual-div", "dual-div"),
}
PAIRS = [
    *(("random+knn", "zero-shot"), ("coverage+knn", "zero-shot"), ("coverage+knn", "random+knn")),
    *(("dual-div+knn", "zero-shot"), ("dual-div+knn", "random+knn"), ("dual-div", "random+knn")),
]


def outputs_of(n, right, *, seed, labels=LABELS, no_answer=0.04):
    """An output table of n rows with that share of right answers."""
    rng = np.random.default_rng(seed)
    gold = [labels[i % len(labels)] for i in range(n)]
    predicted = [g if rng.random() < right else str(rng.choice(labels)) for g in gold]
    failed = rng.random(n) < no_answer
    return pd.DataFrame(
        {
            "id": [f"q{i}" for i in range(n)],
            "demonstration_ids": [[f"r{i % 9}", f"r{i % 7}", "a"] for i in range(n)],
            "prompt_tokens": rng.integers(200, 300, n),
            "cached_tokens": rng.integers(0, 200, n),
            "output_tokens": rng.integers(1, 9, n),
            "prediction": [None if bad else p for bad, p in zip(failed, predicted, strict=True)],
            "gold": gold,
            "status": ["parse_error" if bad else "ok" for bad in failed],
            "engine_s": rng.gamma(2, 0.2, n),
            "queue_s": rng.gamma(2, 1.0, n),
        }
    )


def example_model(*, n_queries=200, n_map=1500):
    """The model: five arms, three Stage 1 methods, rejected rows, hostile texts."""
    yardstick = Yardstick(LABELS, {label: 900 // (i + 1) for i, label in enumerate(LABELS)})
    outputs = {
        name: outputs_of(n_queries, right, seed=i)
        for i, (name, (right, *_)) in enumerate(ARMS.items())
    }
    measured = [
        summarise(
            outputs[name],
            arm={
                **{"task": "things", "encoder": "minilm", "engine": "small", "arm": name},
                **{"stage1": stage1, "stage2": stage2, "k1": 100, "k": 4, "seed": 0},
            },
            yardstick=yardstick,
            wall={"rows_per_s": 4.2, "tokens_per_s": 1234.5},
        )
        for name, (_, stage1, stage2) in ARMS.items()
    ]
    summary = [m.summary for m in measured]
    rows = compare(outputs, task="things", pairs=PAIRS, yardstick=yardstick)
    noise = noise_rows(summary, [["random+knn", "coverage+knn"]])
    return ReportModel(
        title="dualdiv: things <b>bold</b>",
        facts={"run": "9f2c", "corpus": "1,500 rows", "queries": f"{n_queries} rows"},
        summary=pd.DataFrame(summary),
        confusion=pd.DataFrame([row for m in measured for row in m.confusion]),
        candidates=pd.DataFrame(
            [_measured(method) for method in ("random", "coverage", "dual-div")]
        ),
        comparisons=pd.DataFrame(with_floors(rows, noise, dict.fromkeys(ARMS, "small"))),
        noise=pd.DataFrame(noise),
        **_evidence(outputs, measured, noise),
        **_orders(),
        sweeps=[_sweep()],
        maps=[_map(n_map)],
        coverage=[_coverage()],
        stage1=[_selection(method) for method in ("random", "coverage", "dual-div")],
        epr=[_epr()],
        cases=_cases(),
        samples=[_sample(arm, i) for arm in ARMS for i in range(3)],
        rejected=[
            {"table": "corpus", "status": "rejected", "reason": "not_json", "n": 12},
            {"table": "corpus", "status": "empty", "reason": "empty_input", "n": 3},
            {"table": "queries", "status": "too_large", "reason": "too_large", "n": 1},
        ],
        rejected_examples=[
            {
                **{"table": "corpus", "source_file": "data/part-1.jsonl", "source_line": 17},
                **{"id": None, "reason": "not_json", "detail": "Expecting ',' at column 80"},
                "excerpt": '{"id": "x", "text": "<img src=http://example.invalid/x.png>"'
                + "y" * 120,
            }
        ],
        warnings=["3 of 200 queries have the same text as a corpus row."],
        config_yaml="out: runs/example\nseed: 0\ncorpus:\n  path: data/*.jsonl\n",
        versions={"dualdiv": "0.1.0", "numpy": np.__version__},
    )


def _evidence(outputs, measured, noise):
    """Tests, slices and audit of the example."""
    arms = {m.summary["arm"]: m.summary for m in measured}
    answers = {name: answers_by_id(table, LABELS) for name, table in outputs.items()}
    slicing = by_length({id_: int(id_[1:]) % 40 for id_ in answers["zero-shot"]})
    tests = paired_tests(
        outputs, arms=arms, design=Design(pairs=PAIRS, labels=LABELS, groups={}, noise=noise)
    )
    slices = [row for m in measured for row in m.slices]
    for name, arm in arms.items():
        slices += slice_rows(answers[name], slicing, arm=arm, labels=LABELS)
    differences = [
        row
        for a, b in PAIRS
        for row in slice_differences((answers[a], answers[b]), slicing, arm=arms[a], against=b)
    ]
    audits = [
        row
        for name, table in outputs.items()
        for row in audit(
            table,
            arm=arms[name],
            points=points_of(answers_by_id(table, LABELS)),
            record_labels={"a": LABELS[2]},
        )
    ]
    return {
        "paired_tests": pd.DataFrame(tests),
        "slices": pd.DataFrame(slices),
        "slice_differences": pd.DataFrame(differences),
        "audit": pd.DataFrame(audits),
    }


def _map(n):
    rng = np.random.default_rng(0)
    label = rng.choice(len(LABELS), size=n, p=np.arange(len(LABELS), 0, -1) / 78)
    angle = 2 * np.pi * label / len(LABELS)
    points = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(size=(n, 2)) * 0.7
    labels = [None if rng.random() < 0.05 else LABELS[i] for i in label]
    chosen = {
        method: np.sort(rng.choice(n, size=60, replace=False))
        for method in ("random", "coverage", "dual-div")
    }
    projection = Projection(points.astype(np.float32), "UMAP", "")
    return CandidateMap("minilm", projection, labels, chosen, n_corpus=90_000, n_sampled=n)


def _coverage():
    rng = np.random.default_rng(1)
    corpus = {label: 900 // (i + 1) for i, label in enumerate(LABELS)}
    share = np.array(list(corpus.values())) / sum(corpus.values())
    candidates = {
        method: dict(Counter(str(x) for x in rng.choice(LABELS, size=60, p=share)))
        for method in ("random", "coverage", "dual-div")
    }
    return Coverage("minilm", corpus, candidates)


def _measured(method):
    figures = {name: 0.125 + 0.01 * i for i, name in enumerate(MEASURES)}
    named = {"task": "things", "encoder": "minilm", "stage1": method, "arms": [f"{method}+knn"]}
    counts = {"k1": 100, "n_labelled": 60, "n_ground": 1500, "n_queries": 200, "n_rare": 0}
    notes = ["no label has fewer rows than half an even share, so none is rare"]
    return named | counts | figures | {"rare_class_recall": None, "notes": notes}


def _selection(method):
    return {
        **{"method": method, "encoder": "minilm", "mode": "exact-lazy", "N": 1500, "k1": 100},
        **{"k1_used": 60, "lambda": 1.0, "ridge": 0.001, "objective": 812.71234},
        **{"coverage": 900.1, "diversity": -87.4, "best_local_objective": 794.4},
        **{"random_objective": 690.2, "evaluations": 12345, "seconds": 3.21},
        **{"excluded": {"too_long": 2}, "seed": 0},
    }


def _sample(arm, number):
    return Sample(
        arm=arm,
        id=f"q{number}",
        status="ok" if number < 2 else "parse_error",
        prompt="Which kind of thing is it?\n\n"
        + "Input: a grey pebble\nAnswer: stones\n\n" * 8
        + "Input: <script>document.title='owned'</script>\nAnswer:",
        raw_output=" stones </pre><img src=x onerror=alert(1)>" if number else None,
        prediction=LABELS[2] if number < 2 else None,
        gold=LABELS[2],
    )


def _cases():
    """Two queries of every arm, and one that is not there."""
    answers = {
        arm: {
            id_: Answer(
                LABELS[2],
                LABELS[(i + at) % 3],
                "ok",
                ["a", "b", "gone"][: i % 4],
                (i + at) % 3 == 2,
            )
            for at, id_ in enumerate(("q0", "q1"))
        }
        for i, arm in enumerate(ARMS)
    }
    records = {
        "a": Record("a grey pebble <script>document.title='owned'</script>", LABELS[2]),
        "b": Record("a long word: " + "x" * 400, LABELS[1]),
    }
    queries = {"q0": "a black stone", "q1": "</pre><script>alert(1)</script>"}
    return cases_of("things", ["q0", "q1", "q9"], answers=answers, queries=queries, records=records)


def _epr():
    return {
        **{"arm": "dual-div+knn", "task": "things", "engine": "small", "rows": 60, "taught": 41},
        **{"prompts": 480, "not_scored": 0, "pairs": {"helpful": 123, "unhelpful": 118}},
        **{"loss": "1.200 to 0.700", "held_out": "1.210 to 1.150", "steps": 100, "shape": "9 x 9"},
    }


def _orders():
    """Two arms in 24 orders, and one in 120 of the orders of eight; the best arm has a floor."""
    rng = np.random.default_rng(2)
    rows, spread = [], []
    for arm, n, k, floor in (
        *(("dual-div+knn", 24, 4, 0.06), ("random+knn", 120, 8, None)),
        ("dual-div", 24, 4, 0.3),
    ):
        named = {"task": "things", "encoder": "minilm", "engine": "small", "arm": arm}
        middle, width = ARMS[arm][0], 0.01 if arm == "dual-div" else 0.05
        values = np.round(middle + rng.normal(size=n + 1) * width, 2)
        mine = [
            named
            | {"order": str(i), "own": i == 0, "n": 50, "n_predicted": 49, "score": 0.9 * value}
            | {"accuracy": value, "macro_f1": 0.9 * value, "metric": "macro_f1"}
            for i, value in enumerate(values)
        ]
        facts = {"k": k, "n_possible": float(np.prod(np.arange(1, k + 1))), "n_left_out": 0}
        noise = [
            {"arms": [arm], "varies": "seed", "engine": "small", "n": 3}
            | {f"{m}_{p}": floor for m in ("accuracy", "macro_f1") for p in ("range", "sd")}
        ]
        rows += mine
        facts |= {"n_fewer": 2, "changed": 0.4}
        spread += spread_rows(mine, facts, noise if floor else [])
    return {
        "orders": to_arrow(rows, ORDERS_SCHEMA).to_pandas(),
        "order_spread": to_arrow(spread, ORDER_SPREAD_SCHEMA).to_pandas(integer_object_nulls=True),
    }


def _sweep():
    """Three arms over k, of which one has its best in the middle and one shows nothing."""
    lines = {
        "dual-div+knn <b>": {1: 0.35, 2: 0.44, 4: 0.52, 8: 0.55, 10: 0.5},
        "random+knn at $5": {1: 0.3, 2: 0.33, 4: 0.42, 8: 0.41, 10: 0.43},
        "zero-shot": dict.fromkeys((1, 2, 4, 8, 10), 0.15),
    }
    rows = {
        name: [(k, summary_row(name, "things", "small", "", y, 0.9 * y)) for k, y in line.items()]
        for name, line in lines.items()
    }
    return Sweep("things", "stage2.k", rows)
