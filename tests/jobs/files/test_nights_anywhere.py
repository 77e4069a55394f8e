"""A few nights with corpus and output in a bucket propose and label what they do on disk."""

import json
import random

import pytest

from jobs.storage import Store
from tests.jobs.nights.night_shift import Annotators, NightShift, text_of


class BucketShift(NightShift):
    """Nights whose corpus and output are in a bucket."""

    def __init__(self, root, monkeypatch, bucket):
        super().__init__(root, monkeypatch)
        self.bucket, self.out = bucket, f"{bucket}/out"
        self.config["out"] = self.out
        self.config["corpus"]["path"] = f"{bucket}/corpus/*.jsonl"

    @property
    def manifest(self):
        return json.loads(Store(self.out).read_bytes("manifest.json"))

    def arrive(self, texts, *, night, **columns):
        ids = super().arrive(texts, night=night, **columns)
        name = f"{night:04d}.jsonl"
        content = (self.root / "corpus" / name).read_bytes()
        Store(f"{self.bucket}/corpus").write_bytes(name, content)
        return ids


def a_week(shift):
    """What five nights propose, and the pool after each; on the last nothing is new."""
    rng, annotators, pools = random.Random(3), Annotators(5, latest=4), []
    for night in range(1, 5):
        shift.arrive([text_of(rng) for _ in range(30)], night=night)
        answers = annotators.back(night)
        if answers:
            shift.bring_back(f"night-{night}", answers)
        assert shift.night()["night"]["number"] == night
        annotators.take(shift.export(), night)
        pools.append([(row["id"], row["label"]) for row in shift.pool()])
    assert shift.night()["result"] == "nothing_new"
    return [[row["id"] for row in batch] for batch in shift.batches()], pools


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    return a_week(NightShift(tmp_path / "disk", monkeypatch))


def test_nights_in_a_bucket_are_those_on_disk(on_disk, tmp_path, monkeypatch, bucket):
    assert a_week(BucketShift(tmp_path / "bucket", monkeypatch, bucket)) == on_disk
    batches, pools = on_disk
    assert len(batches) == 4
    assert pools[-1]
