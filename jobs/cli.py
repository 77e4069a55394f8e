"""The command line: `dualdiv VERB ...`, the same as `python -m jobs VERB ...`."""

import argparse
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from jobs import interrupts
from jobs.annotation.verbs import add_verbs
from jobs.config.load import Config, load
from jobs.config.storage import use
from jobs.errors import INTERRUPTED, ConfigError, DualdivError
from jobs.progress import Progress
from jobs.redaction import redact

STAGE_VERBS = (
    "ingest",
    "embed",
    "select",
    "annotate",
    "rank",
    "assemble",
    "generate",
    "evaluate",
    "report",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Args:
        argv: Arguments without the program name; None: those of the process.

    Returns:
        Exit code: 0, 2 config, 3 data, 4 cluster, 70 a bug, 130 interrupted.
    """
    arguments = _parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        interrupts.install()
    try:
        answer = arguments.act(arguments)
    except DualdivError as error:
        return _fail(arguments, error.exit_code, type(error).__name__, str(error))
    except KeyboardInterrupt:
        text = "interrupted; the same command goes on where this one stopped."
        return _fail(arguments, INTERRUPTED, "Interrupted", text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        print(redact(traceback.format_exc()), end="", file=sys.stderr)
        text = f"this is a bug of dualdiv, please report it with the lines above ({error!r})."
        return _fail(arguments, 70, "InvariantError", text)
    if arguments.json:
        print(json.dumps(answer, ensure_ascii=False, indent=1))
    return 0


def _fail(arguments: argparse.Namespace, code: int, kind: str, text: str) -> int:
    text = redact(text)
    # The last line says the code: `ray job` tells 1 whatever it was.
    print(f"{kind}: {text}\nexit code {code}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"result": "failed", "exit_code": code, "error": kind, "message": text}))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dualdiv",
        description="Pick the few texts worth annotating, and the demonstrations each query needs.",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    run = _config_verb(verbs, "run", _run, "everything that is missing; resumes by default")
    _rejects_option(run)
    for stage in STAGE_VERBS:
        text = f"up to and including {stage}"
        _rejects_option(_config_verb(verbs, stage, _run, text))
    _plan_options(_config_verb(verbs, "plan", _plan, "validate and estimate; runs nothing"))
    status = verbs.add_parser("status", help="what is done, missing, rejected, and why")
    status.add_argument("out", metavar="OUT", help="output folder of a run")
    status.set_defaults(act=_status)
    prepare, table1 = _prepare_verb(verbs), _table1_verb(verbs)
    for verb in (status, prepare, table1, *add_verbs(verbs)):
        verb.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    return parser


def _prepare_verb(verbs: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "prepare", help="a public data set as row Parquet"
    )
    verb.add_argument("name", metavar="NAME", help="icd10, chemprot, ddi, health-advice, text2sql")
    verb.add_argument("--out", metavar="FOLDER", help="folder to write to; default data/NAME")
    verb.add_argument("--source", metavar="PATH", help="the original files (all but icd10)")
    verb.add_argument("--as", dest="form", metavar="FORM", help="chemprot: ner or relations")
    verb.add_argument("--variant", metavar="NAME", help="ddi: official or paper, by test pairs")
    verb.add_argument("--databases", metavar="FOLDER", help="text2sql: where the SQLite files are")
    for split in ("test", "dev"):
        text = f"rows that become the {split} split, where the source has none"
        verb.add_argument(f"--{split}-share", type=float, metavar="PART", help=text)
    verb.add_argument("--seed", type=int, metavar="N", help="of samples and splits")
    verb.add_argument("--rows", type=int, metavar="N", help="icd10: keep N rows of the corpus")
    verb.set_defaults(act=_prepare)
    return verb


def _table1_verb(verbs: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "table1", help="scores of several runs in one table, with differences to a baseline"
    )
    verb.add_argument("outs", metavar="OUT", nargs="+", help="output folders of evaluated runs")
    verb.add_argument("--against", metavar="METHOD", help="baseline; default: random selection")
    verb.add_argument("--to", metavar="FOLDER", help="write it as CSV, Markdown, HTML, Parquet")
    verb.set_defaults(act=_table1)
    return verb


def _config_verb(
    verbs: Any, name: str, act: Callable[[argparse.Namespace], Any], text: str
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    verb.add_argument("config", metavar="CONFIG", help="YAML file")
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key; repeatable"
    )
    verb.add_argument("--limit", type=int, metavar="N", help="read N rows of each table")
    verb.add_argument("--out", metavar="FOLDER", help="output folder instead of the config's")
    verb.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    verb.set_defaults(act=act, verb=name)
    return verb


def _rejects_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--fail-on-rejects",
        type=float,
        metavar="FRACTION",
        help="exit 3 when more than this share of the rows is rejected",
    )


def _plan_options(verb: argparse.ArgumentParser) -> None:
    for name, what in (
        ("nodes", "equal nodes"),
        ("cpus", "CPUs of each"),
        ("gpus", "GPUs of each"),
    ):
        kind = int if name == "nodes" else float
        verb.add_argument(f"--{name}", type=kind, metavar="N", help=f"plan for a cluster: {what}")
    verb.add_argument("--memory", metavar="SIZE", help="memory of each node, like 256GiB")
    verb.add_argument(
        "--rows", type=float, metavar="N", help="plan for so many rows; the files are a sample"
    )
    verb.add_argument("--rates", metavar="FILE", help="measured rates; default OUT/rates.json")
    verb.add_argument(
        "--calibrate",
        type=int,
        nargs="?",
        const=5_000,
        metavar="N",
        help="first run the stages on N rows (5000) and keep the rates",
    )
    verb.add_argument(
        "--until",
        choices=("select", "generate"),
        default="generate",
        help="last stage that --calibrate runs",
    )


def _load(arguments: argparse.Namespace) -> Config:
    config = load(
        arguments.config, settings=arguments.set, limit=arguments.limit, out=arguments.out
    )
    use(config.file.storage)
    return config


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.pipeline import execute

    config = _load(arguments)
    until = "report" if arguments.verb == "run" else arguments.verb
    print(f"--- resolved config\n{redact(config.as_yaml())}---", file=sys.stderr)
    result = execute(
        config, until=until, progress=Progress(), fail_on_rejects=arguments.fail_on_rejects
    )
    progress = Progress()
    progress.line("done", f"{result.out}/manifest.json  {_rejects(result.n_rejected)}")
    if result.report:
        progress.line("report", result.report)
    return asdict(result) | {"exit_code": 0}


def _rejects(number: int) -> str:
    return f"{number} rejected rows in rejected/" if number else "no rejected rows"


def _plan(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.plan import plan
    from jobs.planning.cluster import machines_of, machines_of_run
    from jobs.planning.rates import read_rates, write_rates

    for flag in ("rows", "calibrate"):
        value = getattr(arguments, flag)
        if value is not None and value < 1:
            raise ConfigError(f"--{flag} {value:g}: wanted a number of rows, at least 1.")
    config = _load(arguments)
    print(f"--- resolved config\n{redact(config.as_yaml())}---", file=sys.stderr)
    told = {name: getattr(arguments, name) for name in ("nodes", "cpus", "gpus", "memory")}
    machines = machines_of(config.file.cluster, **told)
    if arguments.calibrate is not None:
        from jobs.planning.calibrate import calibrate

        measured = calibrate(
            config,
            machines_of_run(config.file.cluster),
            rows=arguments.calibrate,
            until=arguments.until,
            progress=Progress(),
        )
        rates = write_rates(config, measured, arguments.rates)
    else:
        rates = read_rates(config, arguments.rates)
    rows = None if arguments.rows is None else int(arguments.rows)
    return plan(config, progress=Progress(), machines=machines, rates=rates, rows=rows)


def _status(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.status import status

    return status(arguments.out, quiet=arguments.json)


def _table1(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.join import join

    joined = join(arguments.outs, against=arguments.against, to=arguments.to)
    if not arguments.json:
        print(joined["markdown"], end="")
        for path in joined["files"]:
            print(path, file=sys.stderr)
    return joined


def _prepare(arguments: argparse.Namespace) -> dict[str, Any]:
    from jobs.prepare import FLAGS, prepare

    if arguments.rows is not None and arguments.rows < 1:
        raise ConfigError(f"--rows {arguments.rows}: wanted a whole number, at least 1.")
    options = {name: getattr(arguments, name) for name in FLAGS}
    made = prepare(arguments.name, out=arguments.out, **options)
    progress = Progress()
    for table, rows in (("corpus", "corpus_rows"), ("dev", "dev_rows"), ("queries", "query_rows")):
        if table in made:
            progress.line("prepare", f"{made[table]}  {made[rows]:,} rows")
    for what, number in made.get("left_out", {}).items():
        progress.line("prepare", f"left out: {number:,} {what}")
    if made.get("notes"):
        progress.line("prepare", ", ".join(f"{what} {n:,}" for what, n in made["notes"].items()))
    if made.get("rejected_rows"):
        reasons = ", ".join(f"{name} {n:,}" for name, n in made["rejected_reasons"].items())
        progress.line(
            "prepare", f"{made['rejected']}  {made['rejected_rows']:,} rejected ({reasons})"
        )
    return made
