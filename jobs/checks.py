"""What can be refused before any work: the config against code, files and models."""

from collections.abc import Iterator
from contextlib import contextmanager

from inference.kinds import ANSWERED_BY_OUTPUT
from jobs import assemble, rank, select
from jobs.comparing.baselines import check_baselines
from jobs.config.load import Config
from jobs.config.schema import Arm, ConfigFile
from jobs.embed import encoder_spec, identify
from jobs.epr.learn import check_map
from jobs.errors import ConfigError, ModelOutOfReach
from jobs.files.places import absolute, plain
from jobs.generating.engines import check_chat, engine_spec, tokenizer_of, unpinned_spec
from jobs.kind_rules import check_kind
from jobs.nights.nightly import check_nightly
from jobs.orders.study import check_orders
from jobs.ranking.sparse import identify_sparse
from jobs.readers.sources import SourceFile, find
from jobs.selection_folds import check_folds
from jobs.tasks import build

RANKS = ("rank", "assemble", "generate", "evaluate", "report")
# The pool says how many tokens of the LLM each record takes.
USES_LLM = ("annotate", *RANKS)


def check_config(config: Config, *, until: str, absent: dict[str, str] | None = None) -> None:
    """Refuse what cannot end well.

    Args:
        config: The resolved config.
        until: Last stage that will run; models of later stages are not looked for.
        absent: Where it is given, it takes the models that cannot be looked up for now, by their
            place in the config, with what is known of them.

    Raises:
        ConfigError: Names key, value and what is allowed.
        ModelOutOfReach: A model of which there is no copy while the hub gives no answer, without
            `absent`.
    """
    file = config.file
    for arm in config.arms:
        select.check(arm)
        rank.check(arm)
        if not file.annotate.nightly:
            rank.check_k(arm)
        assemble.check(arm)
    for name, table in (("corpus", file.corpus), ("queries", file.queries)):
        _check_apart(find(table.path, key=f"{name}.path"), config.out, key=f"{name}.path")
    _check_tasks(file)
    for name in sorted({arm.task for arm in config.arms}):
        _check_context(file, name)
    check_baselines(config)
    check_nightly(config)
    check_orders(config)
    check_folds(config)
    _check_slices(file)
    for arm in config.arms:
        check_kind(arm, file)
    _check_models(config, until, absent)


def _check_models(config: Config, until: str, absent: dict[str, str] | None) -> None:
    file = config.file
    if until != "ingest":
        for name in sorted({arm.encoder for arm in config.arms}):
            with _excused(f"encoders.{name}", absent):
                identify(name, encoder_spec(file.encoders[name], key=f"encoders.{name}"))
    if until in RANKS:
        used = {rank.sparse_encoder_of(arm) for arm in config.arms}
        for name in sorted(name for name in used if name is not None):
            identify_sparse(name, file.sparse_encoders[name])
    if until in USES_LLM:
        for name in sorted({arm.engine for arm in config.arms}):
            with _excused(f"engines.{name}", absent):
                spec = engine_spec(file.engines[name], key=f"engines.{name}")
                tokenizer_of(spec.model, spec.revision)
        for arm in config.arms:
            _check_engine(config, arm, is_there=f"engines.{arm.engine}" not in (absent or {}))


@contextmanager
def _excused(place: str, absent: dict[str, str] | None) -> Iterator[None]:
    """Note a model that is out of reach, where that is allowed."""
    try:
        yield
    except ModelOutOfReach as error:
        if absent is None:
            raise
        absent[place] = str(error)


def remote_code(config: Config) -> list[str]:
    """A warning for each model in use that is allowed to run Python of its own."""
    file = config.file
    encoders = sorted(
        {arm.encoder for arm in config.arms if file.encoders[arm.encoder].trust_remote_code}
    )
    engines = sorted(
        {a.engine for a in config.arms if file.engines[a.engine].extra.get("trust_remote_code")}
    )
    models = [(f"encoders.{name}", file.encoders[name].model) for name in encoders]
    models += [(f"engines.{name}", file.engines[name].model) for name in engines]
    return [
        f"{key}: trust_remote_code is on, so Python that comes with {model or 'the preset'} runs "
        "here with all rights of this job"
        for key, model in models
    ]


def _check_apart(files: list[SourceFile], out: str, *, key: str) -> None:
    inside = absolute(plain(out, key="out")) + "/"
    own = [file.path for file in files if file.path.startswith(inside)]
    if own:
        raise ConfigError(
            f"{key}: {own[0]} lies in out = {out}, so a run would read its own output. Give an "
            "out elsewhere."
        )


def _check_tasks(file: ConfigFile) -> None:
    for name, task in file.tasks.items():
        if task.labels is not None or task.kind in ANSWERED_BY_OUTPUT:
            build(name, task, {})
        elif file.corpus.columns.label is None:
            raise ConfigError(
                f"tasks.{name}.labels: not given, and corpus.columns.label maps no column to take "
                "them from. Give one of the two."
            )


def _check_context(file: ConfigFile, name: str) -> None:
    task, tables = file.tasks[name], {"queries": file.queries.columns}
    if task.context_in_demonstrations:
        tables["corpus"] = file.corpus.columns
    for key, columns in tables.items():
        lacking = [column for column in task.context if column not in columns.keep]
        if lacking:
            kept = ", ".join(columns.keep) or "none"
            raise ConfigError(
                f"tasks.{name}.context: {lacking[0]!r} is not among {key}.columns.keep: {kept}. "
                "Keep that column, or leave it out here."
            )


def _check_slices(file: ConfigFile) -> None:
    unknown = [name for name in file.report.slices if name not in file.queries.columns.keep]
    if unknown:
        kept = ", ".join(file.queries.columns.keep) or "none"
        raise ConfigError(
            f"report.slices: {unknown[0]!r} is not among queries.columns.keep: {kept}. Keep that "
            "column of the queries, or leave it out here."
        )


def _check_engine(config: Config, arm: Arm, *, is_there: bool) -> None:
    file, key = config.file, f"engines.{arm.engine}"
    gpus, parallel = file.cluster.generate.gpus, file.engines[arm.engine].tensor_parallel_size
    if gpus and gpus < parallel and parallel > 1:
        raise ConfigError(
            f"cluster.generate.gpus = {gpus:g}: {key} shares its model among {parallel} GPUs "
            "(tensor_parallel_size), which one worker holds. Give as many, or leave gpus out."
        )
    spec = (engine_spec if is_there else unpinned_spec)(file.engines[arm.engine], key=key)
    task_config = file.tasks[arm.task]
    if task_config.labels is not None or task_config.kind in ANSWERED_BY_OUTPUT:
        task = build(arm.task, task_config, {})
        assemble.max_prompt_tokens(spec, arm.prompt, arm.generate, task)
    if not is_there:
        return
    if arm.prompt.format == "chat":
        check_chat(spec, engine=arm.engine, arm=arm.name)
    if rank.learns(arm):
        encoder = encoder_spec(file.encoders[arm.encoder], key=f"encoders.{arm.encoder}")
        check_map(arm, encoder_id=identify(arm.encoder, encoder), engine=spec)
