"""Known vulnerabilities of pinned packages: `python .ci/audit.py LOCK EXCEPTIONS`.

Exit code 0: asked, and nothing but what is excepted; 1: something, or an exception that is no
longer one; 75: not run, because the advisory service gave no answer. Not run is never passed.
"""

import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PASSED, FOUND, NOT_RUN = 0, 1, 75
MOST_DAYS = 184
# A mirror that has no advisories knows none of the packages, and that is no answer.
LEAST_SHARE = 0.9
LINE = re.compile(r"(\S+)\s+(\d{4}-\d\d-\d\d)\s+(\S.*)")


def read_exceptions(path: Path, today: datetime.date) -> tuple[dict[str, str], list[str]]:
    """Advisories that are accepted today, with the reason; and mistakes in the file."""
    accepted, mistakes = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line.strip())
        if found is None:
            mistakes.append(f"{path}:{number}: wanted ID, YYYY-MM-DD and a reason: {line!r}")
            continue
        name, until, why = found.groups()
        days = (datetime.date.fromisoformat(until) - today).days
        if days < 0:
            mistakes.append(f"{path}:{number}: {name} was accepted until {until} ({why})")
        elif days > MOST_DAYS:
            mistakes.append(f"{path}:{number}: {name}: {until} is more than half a year away")
        else:
            accepted[name] = why
    return accepted, mistakes


def pinned(lock: Path) -> str:
    """The pins of a lock file; local parts of versions are not known to advisories."""
    pins = re.findall(r"^([\w.-]+)==([\w.!]+)", lock.read_text(encoding="utf-8"), re.M)
    return "".join(f"{name}=={version}\n" for name, version in pins)


def ask(pins: str) -> list[dict] | None:
    """What pip-audit says of each package; None: the service gave no answer."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pins)
        file.flush()
        command = [str(Path(sys.executable).with_name("pip-audit")), "--requirement", file.name]
        command += ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
        try:
            done = subprocess.run(
                [*command, "--timeout", "15"], capture_output=True, text=True, timeout=300
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"audit: {error}", file=sys.stderr)
            return None
    try:
        return json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print("\n".join(done.stderr.strip().splitlines()[-1:]), file=sys.stderr)
        return None


def judge(packages: list[dict], accepted: dict[str, str]) -> tuple[list[str], set[str]]:
    """Findings that nobody accepted, one line each, and the exceptions that were of use."""
    found, used = [], set()
    for package in packages:
        for one in package.get("vulns", []):
            names = {one["id"], *one.get("aliases", [])}
            if names & set(accepted):
                used |= names & set(accepted)
                continue
            fixed = ", ".join(one.get("fix_versions", [])) or "no version yet"
            found.append(f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}")
    return found, used


def main(lock: str, exceptions: str, *, today: datetime.date | None = None) -> int:
    """Ask, judge, say; returns the exit code."""
    today = today or datetime.datetime.now(datetime.UTC).date()
    accepted, mistakes = read_exceptions(Path(exceptions), today)
    pins = pinned(Path(lock))
    packages = ask(pins)
    if packages is None:
        print("audit: not run: the advisory service gave no answer", *mistakes, sep="\n")
        return FOUND if mistakes else NOT_RUN
    skipped = [package for package in packages if "skip_reason" in package]
    found, used = judge(packages, accepted)
    for line in [*found, *mistakes]:
        print(f"audit: {line}")
    for name in sorted(set(accepted) - used):
        print(f"audit: exception {name} is of no use any more; take it out")
    asked = len(packages) - len(skipped)
    reasons = sorted({re.sub(r"[:(].*", "", package["skip_reason"]) for package in skipped})
    if skipped:
        print(f"audit: {len(skipped)} packages were not looked at: {'; '.join(reasons)}")
    print(
        f"audit: {asked} of {pins.count('==')} packages, {len(found)} advisories, {len(used)} "
        "accepted"
    )
    if found or mistakes:
        return FOUND
    if asked < LEAST_SHARE * pins.count("=="):
        print("audit: not run: the advisory service knows too few of the packages")
        return NOT_RUN
    return PASSED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
