"""`dualdiv status`: what an output holds, against what its manifest says, and who works on it."""

import json
import time
from typing import Any

from jobs import lock, manifest
from jobs.errors import DataError
from jobs.ledger import Ledger, Marker, Unit
from jobs.storage import Store
from jobs.watching import watch

# Entry of the manifest -> stage that writes it.
STAGE_ENTRIES = {
    "tables": "ingest",
    "embeddings": "embed",
    "selections": "select",
    "night": "select",
    "pool": "annotate",
    "sparse": "rank",
    "epr": "rank",
    "demonstrations": "rank",
    "prompts": "assemble",
    "order_prompts": "assemble",
    "outputs": "generate",
    "order_outputs": "generate",
    "metrics": "evaluate",
    "report": "report",
}


def status(out: str, *, quiet: bool) -> dict[str, Any]:
    """Read the manifest, probe every part it lists, and say what is there.

    Args:
        out: Output folder.
        quiet: Only return, print nothing.

    Returns:
        Plain data: result, stage, lock holder, what a live run is at (`now`), parts and rows per
        stage, missing parts, rejected rows by reason.

    Raises:
        DataError: No manifest there.
    """
    store = Store(out)
    found = manifest.load(store)
    holder = lock.holder(store)
    if not found and holder is None:
        if store.exists(manifest.NAME):
            raise DataError(
                f"{store.where(manifest.NAME)}: cannot be read as a manifest. Run the same command "
                "again: it is written anew from what is there."
            )
        raise DataError(f"{store.place}: no {manifest.NAME} there; is it the output of a run?")
    ledger, now = Ledger(out), _now(store, holder)
    stages = {
        name: _stage(ledger, found[name]) | {"earlier": stage not in found.get("made", [])}
        for name, stage in STAGE_ENTRIES.items()
        if name in found
    }
    answer = {
        "out": store.place,
        "run_id": found.get("run_id"),
        "result": _result(found, holder),
        "stage": found.get("stage"),
        "working_on": found.get("working_on"),
        "message": found.get("message"),
        "holder": holder,
        "now": now,
        "stages": stages,
        "tables": {
            name: entry["counts"]
            for name, entry in found.get("tables", {}).items()
            if "counts" in entry
        },
        "arms": {name: _arm(ledger, entry) for name, entry in found.get("outputs", {}).items()},
        "warnings": list(
            dict.fromkeys([*found.get("warnings", []), *(now or {}).get("warnings", [])])
        ),
    }
    if not quiet:
        print("\n".join(_lines(answer)))
    return answer


def _result(found: dict[str, Any], holder: dict[str, Any] | None) -> str:
    result = str(found.get("result", "starting"))
    if result == "running" and not (holder and holder["live"]):
        return "stopped half-way; the same command goes on"
    return result


def _now(store: Store, holder: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a live run wrote of itself last, with its age; None where there is none, or not yet."""
    if not (holder and holder["live"]):
        return None
    try:
        found = json.loads(store.read_bytes(watch.NAME))
    except (DataError, ValueError):
        return None
    if found.get("run_id") != holder["run_id"]:
        return None
    found["age_s"] = round(max(0.0, time.time() - found["written_s"]), 1)
    return dict(found)


def markers_in(entry: Any) -> list[Marker]:
    """Every marker that a part of the manifest holds, in its order."""
    if isinstance(entry, dict):
        if {"folder", "name", "fingerprint", "checksum"} <= set(entry):
            return [Marker(**{key: entry[key] for key in Marker.__dataclass_fields__})]
        return [marker for value in entry.values() for marker in markers_in(value)]
    if isinstance(entry, list):
        return [marker for value in entry for marker in markers_in(value)]
    return []


def _stage(ledger: Ledger, entry: Any) -> dict[str, Any]:
    markers = {marker.table: marker for marker in markers_in(entry)}
    markers = {name: one for name, one in markers.items() if not name.startswith("rejected/")}
    units = {t: Unit(m.folder, m.name, m.fingerprint) for t, m in markers.items()}
    found = ledger.find_all(units.values())
    missing = [t for t, m in markers.items() if not _same(found[units[t]], m)]
    return {
        "parts": len(markers),
        "rows": sum(marker.rows for marker in markers.values()),
        "bytes": sum(marker.bytes for marker in markers.values()),
        "missing": missing,
    }


def _same(found: Marker | None, marker: Marker) -> bool:
    return found is not None and found.checksum == marker.checksum


def _arm(ledger: Ledger, entry: Any) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for marker in markers_in(entry):
        for name, number in marker.stats.get("status", {}).items():
            counts[name] = counts.get(name, 0) + number
    return {"rows": sum(marker.rows for marker in markers_in(entry)), "status": counts}


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{answer['out']}: {answer['result']}, last stage finished {answer['stage']}"]
    if answer["message"]:
        lines.append(f"in {answer['working_on']}: {answer['message']}")
    holder = answer["holder"]
    if holder:
        state = "live" if holder["live"] else "dead"
        lines.append(
            f"lock      run {holder['run_id']}, pid {holder['pid']} on {holder['host']}, {state}, "
            f"heartbeat {holder['age_s']:.0f} s ago"
        )
    if answer["now"]:
        lines += _lines_now(answer["now"])
    for name, stage in answer["stages"].items():
        missing = f"  MISSING {', '.join(stage['missing'])}" if stage["missing"] else ""
        size = f"{stage['bytes'] / 2**20:,.1f} MiB"
        size += "  (of an earlier run)" if stage["earlier"] else ""
        lines.append(f"{name:<15}{stage['parts']} parts  {stage['rows']:,} rows  {size}{missing}")
    for name, counts in answer["tables"].items():
        lines.append(f"{name:<15}{_counted(counts['status'])}, {counts['segments']} segments")
        if counts["rejected"]:
            lines.append(f"{'':<15}set aside or marked: {_counted(counts['rejected'])}")
    earlier = answer["stages"].get("outputs", {}).get("earlier")
    for name, arm in answer["arms"].items():
        of = " of an earlier run" if earlier else ""
        lines.append(f"arm {name}{of}: {arm['rows']:,} rows: {_counted(arm['status'])}")
    return lines + [f"warning   {text}" for text in answer["warnings"]]


def _lines_now(now: dict[str, Any]) -> list[str]:
    stretch = now["stretch"]
    lines = [f"now       in {now['working_on']}, as written {now['age_s']:.0f} s ago"]
    if stretch is None:
        return lines
    eta = "" if stretch["eta_s"] is None else f"  eta {stretch['eta_s']:,.0f} s"
    parts = f"{stretch['parts_done']}/{stretch['parts']} parts  {stretch['rows']:,} rows  "
    pace = f"{stretch['rows_per_s']:,.0f} rows/s{eta}"
    lines.append(f"{stretch['stage']:<10}{stretch['note'] or parts + pace}")
    if stretch["idle_s"] > 60 and now["stall_s"] is not None:
        lines.append(
            f"{'':<10}no sign of work for {stretch['idle_s']:,.0f} s; given up at "
            f"{now['stall_s']:,.0f} s"
        )
    if stretch["pending"]:
        more = " and more" if stretch["n_pending"] > len(stretch["pending"]) else ""
        shown = ", ".join(stretch["pending"]) + more
        lines.append(f"{'':<10}pending {stretch['n_pending']}: {shown}")
    for one in stretch["workers"]:
        at = f"at {one['at']} for {one['at_s']:,.0f} s" if one["at"] else "idle"
        lines.append(
            f"{'':<10}{one['host']} process {one['pid']}: {at}, {one['rows']:,} rows, "
            f"peak {one['peak_bytes'] / 2**20:,.0f} MiB"
        )
    return lines


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items()) or "no rows"
