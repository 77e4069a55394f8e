"""What the dependency audit says passed, found, and not run; the service is a stand-in."""

import datetime
import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TODAY = datetime.date(2026, 6, 1)
BAD = {
    **{"name": "left", "version": "1.0"},
    "vulns": [{"id": "PYSEC-1", "aliases": ["GHSA-1", "CVE-1"], "fix_versions": ["1.1"]}],
}
GOOD = {"name": "right", "version": "2.0", "vulns": []}


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(audit, tmp_path, monkeypatch, capsys):
    def _run(packages, exceptions=""):
        (tmp_path / "lock").write_text("left==1.0\nright==2.0+cpu\n# x==1\n")
        (tmp_path / "exceptions").write_text(exceptions)
        monkeypatch.setattr(audit, "ask", lambda pins: packages)
        code = audit.main(str(tmp_path / "lock"), str(tmp_path / "exceptions"), today=TODAY)
        return code, capsys.readouterr().out

    return _run


def test_nothing_known_passes(run):
    code, told = run([GOOD, GOOD])
    assert code == 0
    assert "2 of 2 packages, 0 advisories" in told


def test_an_advisory_fails_and_names_what_to_do(run):
    code, told = run([BAD, GOOD])
    assert code == 1
    assert "left 1.0: PYSEC-1, fixed in 1.1" in told


def test_no_answer_is_not_run_and_never_passed(run):
    code, told = run(None)
    assert code == 75
    assert "not run" in told
    assert "0 advisories" not in told


def test_a_service_that_knows_none_of_the_packages_has_not_answered(run):
    unknown = [{"name": name, "skip_reason": f"not found: {name} (1.0)"} for name in ("a", "b")]
    code, told = run(unknown)
    assert code == 75
    assert "2 packages were not looked at: not found" in told
    assert told.splitlines()[-1].startswith("audit: not run")


@pytest.mark.parametrize("name", ["PYSEC-1", "CVE-1"])
def test_a_written_exception_is_accepted_by_any_of_its_names(run, name):
    code, told = run([BAD, GOOD], f"# comment\n\n{name}  2026-08-01  only on Windows\n")
    assert code == 0
    assert "1 accepted" in told


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("CVE-1  2026-05-31  why", "was accepted until 2026-05-31"),
        ("CVE-1  2027-06-01  why", "more than half a year"),
        ("CVE-1  2026-08-01", "wanted ID, YYYY-MM-DD and a reason"),
        ("CVE-1", "wanted ID"),
    ],
)
def test_an_exception_without_date_or_reason_or_out_of_date_fails(run, line, message):
    code, told = run([GOOD], line)
    assert code == 1
    assert message in told


def test_an_exception_of_no_use_is_told(run):
    assert "CVE-7 is of no use" in run([GOOD], "CVE-7  2026-08-01  why")[1]


def test_a_tool_that_gives_no_json_is_no_answer(audit, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="ConnectionError: refused")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: failed)
    assert audit.ask("left==1.0\n") is None


def test_the_committed_list_is_in_order(audit):
    path = ROOT / ".ci" / "audit-exceptions.txt"
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    assert all(audit.LINE.fullmatch(line) for line in lines)


def test_every_pin_of_the_lock_is_asked_about(audit):
    lock = ROOT / "requirements-cpu.lock"
    lines = [line for line in lock.read_text().splitlines() if "==" in line and line[0] != "#"]
    assert audit.pinned(lock).count("\n") == len(lines)
