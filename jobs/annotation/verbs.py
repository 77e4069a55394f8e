"""The verbs of annotation on the command line: export, import, pool."""

import argparse
import sys
from typing import Any

from jobs.errors import ConfigError
from jobs.progress import Progress

FORMATS = ("csv", "jsonl", "label-studio")
POLICIES = ("reject", "first", "newest")


def add_verbs(verbs: Any) -> list[argparse.ArgumentParser]:
    """Add the verbs to the parser; gives those that take `--json`."""
    return [_export_verb(verbs), _import_verb(verbs), *_pool_verbs(verbs)]


def _export_verb(verbs: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "export", help="candidates without a label, as a file for annotators"
    )
    verb.add_argument("out", metavar="OUT", help="output folder of a run")
    verb.add_argument("--format", choices=FORMATS, default="csv", help="default: csv")
    verb.add_argument("--arm", metavar="NAME", help="only this arm's candidates")
    verb.add_argument("--to", metavar="FILE", help="file to write; default: standard output")
    verb.add_argument("--all", action="store_true", help="with those that have a label")
    verb.add_argument(
        "--suggest", action="store_true", help="with the label of the nearest labelled rows"
    )
    verb.set_defaults(act=_export)
    return verb


def _import_verb(verbs: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "import", help="labels that came back from annotators"
    )
    verb.add_argument("out", metavar="OUT", help="output folder of the run they are for")
    verb.add_argument("files", metavar="FILE", nargs="+", help="one import each, in this order")
    verb.add_argument("--format", choices=FORMATS, help="default: found out by content")
    verb.add_argument("--encoding", metavar="NAME", help="default: UTF-8, or cp1252 if it is not")
    verb.add_argument(
        "--on-conflict", choices=POLICIES, help="in place of the config's annotate.on_conflict"
    )
    verb.add_argument(
        "--again", action="store_true", help="judge a file anew that was imported before"
    )
    verb.set_defaults(act=_import)
    return verb


def _pool_verbs(verbs: Any) -> list[argparse.ArgumentParser]:
    pool = verbs.add_parser("pool", help="look after the records that are shown")
    acts = pool.add_subparsers(metavar="ACT", required=True)
    check = acts.add_parser("check", help="duplicates, leaks, contradictions, harmful records")
    check.add_argument("out", metavar="OUT", help="output folder of a run")
    check.add_argument("--jaccard", type=float, metavar="J", help="near duplicates; default 0.8")
    check.add_argument("--cosine", type=float, metavar="C", help="the same meaning; default 0.95")
    check.add_argument(
        "--query-cosine", type=float, metavar="C", help="a query's paraphrase; default 0.9"
    )
    check.add_argument("--shingle", metavar="UNIT-N", help="char-5 (default), word-3, ...")
    check.add_argument(
        "--fail-on-findings", action="store_true", help="exit 3 where anything was found"
    )
    check.set_defaults(act=_check)
    retire = acts.add_parser("retire", help="never show, export or propose these again")
    retire.add_argument("out", metavar="OUT", help="output folder of a run")
    retire.add_argument("ids", metavar="ID", nargs="+", help="records, or candidates")
    retire.add_argument("--reason", metavar="TEXT", help="why, for the log")
    retire.set_defaults(act=_retire)
    promote = acts.add_parser("promote", help="show these from the next run on")
    promote.add_argument("out", metavar="OUT", help="output folder of a run")
    promote.add_argument("ids", metavar="ID", nargs="*", help="records; retired ones come back")
    promote.add_argument("--all", action="store_true", help="every staged record")
    promote.add_argument("--reason", metavar="TEXT", help="why, for the log")
    promote.set_defaults(act=_promote)
    return [check, retire, promote]


def _export(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.annotation.export import Wanted, export
    from jobs.annotation.sources import write_to

    if arguments.json and arguments.to is None:
        raise ConfigError("--json: standard output has the export already; name a file with --to.")
    wanted = Wanted(arguments.format, arguments.arm, arguments.all, arguments.suggest)
    progress = Progress()
    made = export(arguments.out, wanted=wanted, progress=progress)
    files: list[str] = []
    data = made.text.encode("utf-8", "replace")
    if arguments.to is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        files.append(write_to(arguments.to, data))
        if made.interface is not None:
            files.append(write_to(f"{arguments.to}.interface.xml", made.interface.encode()))
    facts = made.facts
    progress.line(
        "export",
        f"{facts['rows']:,} of {facts['candidates']:,} candidates  {facts['labelled']:,} labelled  "
        f"{facts['retired']:,} retired  {' '.join(files)}".rstrip(),
    )
    return facts | {"files": files}


def _import(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.annotation.imports import Reading, import_labels

    how = Reading(
        arguments.format, arguments.encoding, arguments.on_conflict, again=arguments.again
    )
    return import_labels(arguments.out, arguments.files, how=how, progress=Progress())


def _check(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.annotation.pool_check import check_pool, limits_of

    names = ("jaccard", "cosine", "query_cosine", "shingle")
    limits = limits_of(**{name: getattr(arguments, name) for name in names})
    return check_pool(
        arguments.out,
        limits=limits,
        progress=Progress(),
        quiet=arguments.json,
        fail=arguments.fail_on_findings,
    )


def _retire(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.annotation.curate import retire

    return retire(arguments.out, arguments.ids, reason=arguments.reason, progress=Progress())


def _promote(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.annotation.curate import promote

    if arguments.all == bool(arguments.ids):
        raise ConfigError("pool promote: name the ids, or give --all; one of the two.")
    ids = None if arguments.all else arguments.ids
    return promote(arguments.out, ids, reason=arguments.reason, progress=Progress())
