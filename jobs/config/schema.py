"""The typed config: every section, its keys, its defaults and why they are what they are."""

from typing import Any

from pydantic import Field

from inference.tasks import Kind
from jobs.config.annotate import AnnotateConfig
from jobs.config.cluster import ClusterConfig, TimeoutsConfig
from jobs.config.models import EncoderConfig, EngineConfig, SparseEncoderConfig
from jobs.config.report import ReportConfig
from jobs.config.section import Section, Seed
from jobs.config.stage1 import SelectConfig, Stage1Config
from jobs.config.stage2 import GenerateConfig, PromptConfig, Stage2Config
from jobs.config.storage import StorageConfig
from jobs.config.tables import QueriesConfig, TableConfig


class TaskConfig(Section):
    """What the LLM is asked and which answers count.

    Attributes:
        kind: `classification` and `multi-label` have their answer in `columns.label`, `ner` and
            `sql` in `columns.output`.
        instruction: First thing in every prompt.
        labels: Classes, or entity types; null: those of the corpus; none for `sql`.
        aliases: Other spelling to label.
        verbalizers: Label to what the LLM is shown.
        input_prefix: Put before every input.
        output_prefix: Put before every answer.
        separator: Between instruction, demonstrations and query.
        wrong_prefix: Put before an incorrect answer.
        why_prefix: Put before the reason why it is incorrect.
        label_separator: Between the labels of a `multi-label` row.
        databases: For `sql`, the folder of the SQLite files in which answers are run.
        database_column: Which column of the queries names the file: `label`, or one of
            `queries.columns.keep`.
        context: Column of `queries.columns.keep` to what is put before it: shown on a line of its
            own below the input of the query, `{schema: "Tables: "}` say.
        context_in_demonstrations: Show it with demonstrations too; then `corpus.columns.keep` must
            have these columns.
    """

    kind: Kind = "classification"
    instruction: str
    labels: list[str] | None = None
    aliases: dict[str, str] = Field(default_factory=dict)
    verbalizers: dict[str, str] = Field(default_factory=dict)
    input_prefix: str = "Input: "
    output_prefix: str = "Answer: "
    separator: str = "\n\n"
    wrong_prefix: str = "Wrong answer: "
    why_prefix: str = "Why it is wrong: "
    label_separator: str = Field(";", min_length=1)
    databases: str | None = None
    database_column: str = "label"
    context: dict[str, str] = Field(default_factory=dict)
    context_in_demonstrations: bool = False


def _one_arm() -> list[dict[str, Any]]:
    return [{}]


class ConfigFile(Section):
    """The file as written; `jobs.config.load.load` turns it into a `Config` with resolved arms."""

    out: str
    seed: Seed = 0
    corpus: TableConfig
    queries: QueriesConfig
    tasks: dict[str, TaskConfig] = Field(min_length=1)
    encoders: dict[str, EncoderConfig] = Field(min_length=1)
    sparse_encoders: dict[str, SparseEncoderConfig] = Field(default_factory=dict)
    engines: dict[str, EngineConfig] = Field(min_length=1)
    stage1: Stage1Config = Stage1Config()
    annotate: AnnotateConfig = AnnotateConfig()
    stage2: Stage2Config = Stage2Config()
    prompt: PromptConfig = PromptConfig()
    generate: GenerateConfig = GenerateConfig()
    select: SelectConfig = SelectConfig()
    cluster: ClusterConfig = ClusterConfig()
    storage: StorageConfig = StorageConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    report: ReportConfig = ReportConfig()
    arms: list[dict[str, Any]] = Field(default_factory=_one_arm)
    grid: dict[str, list[Any]] = Field(default_factory=dict)


class Arm(Section):
    """One task, encoder and engine with one way to select, rank, write and decode.

    `repeat` changes nothing but the name: arms that differ in it alone are answered anew, and show
    how much the engine's answers vary by themselves.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+=-]*$", max_length=120)
    task: str
    encoder: str
    engine: str
    stage1: Stage1Config
    stage2: Stage2Config
    prompt: PromptConfig
    generate: GenerateConfig
    seed: Seed
    repeat: int = Field(0, ge=0)
