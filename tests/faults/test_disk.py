"""A disk that is full, a part that rotted, a part that is gone."""

import contextlib
import subprocess

import pytest

from tests.faults.driving import EMBEDDED, candidates, ended, found, reason, shown, start, vectors
from tests.faults.test_nodes_lost import AFTER_EMBED

pytestmark = pytest.mark.ray


@contextlib.contextmanager
def small_disk(folder, *, mib):
    """A file system of some MiB on a folder, and a way to make it larger."""
    options = ["mount", "-t", "tmpfs", "-o"]
    folder.mkdir(exist_ok=True)
    if subprocess.run([*options, f"size={mib}m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield lambda more: subprocess.run(
            ["mount", "-o", f"remount,size={more}m", folder], check=True
        )
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_ends_with_4_and_what_was_wanted_and_the_run_goes_on_with_room(
    nodes, calm, tmp_path, begun
):
    with small_disk(tmp_path / "disk", mib=8) as enlarge:
        project = begun("embeddings", *AFTER_EMBED, root=tmp_path / "disk")
        filler = project.root / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        with filler.open("rb+") as file:
            # Room for some parts, and not for all.
            file.truncate(max(0, filler.stat().st_size - 160 * 1024))
        told = ended(start(project, "embed", nodes), code=4)
        last = reason(told)
        assert last.startswith("ClusterError: "), told
        assert "no space left" in last
        assert str(project.out) in last
        assert len(found(project, EMBEDDED)) < len(found(calm, EMBEDDED))
        enlarge(64)
        ended(start(project, "embed", nodes))
        assert vectors(project) == vectors(calm)


def test_a_part_that_rotted_ends_with_3_and_its_name_and_is_made_anew_when_removed(
    nodes, calm, begun
):
    project = begun("candidates")
    # Parts of the queries are smaller.
    rotten = max(
        found(project, "embeddings/*/*/part.parquet"), key=lambda path: path.stat().st_size
    )
    data = bytearray(rotten.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    rotten.write_bytes(data)
    told = ended(start(project, "select", nodes), code=3)
    assert f"DataError: {rotten}: cannot be read" in told, told
    marker = rotten.with_name("part.done.json")
    assert f"Remove {marker.relative_to(project.out)} and run again" in told
    marker.unlink()
    ended(start(project, "select", nodes))
    assert vectors(project) == vectors(calm)
    assert candidates(project) == candidates(calm)


def test_parts_that_are_gone_are_made_anew_and_no_others(nodes, calm, begun):
    project = begun()
    gone = [
        *found(project, "embeddings/*/*/part.parquet")[5:6],
        *found(project, "corpus/*/part-*.parquet")[:1],
        *found(project, "prompts/*/part.parquet")[:1],
    ]
    for path in gone:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in found(project, "embeddings/*/*/part.*")}
    ended(start(project, "assemble", nodes))
    after = {path: path.stat().st_mtime_ns for path in before}
    changed = {path for path in before if before[path] != after[path]}
    assert {path.parent for path in changed} <= {gone[0].parent}
    assert vectors(project) == vectors(calm)
    assert candidates(project) == candidates(calm)
    assert shown(project) == shown(calm)
