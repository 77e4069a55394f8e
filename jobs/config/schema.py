"""The typed config: every section, its keys, its defaults and why they are what they are."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from inference.calibration import CONTENT_FREE
from inference.masking import MaskRule, mask_rules
from inference.tasks import Kind
from jobs.config.annotate import AnnotateConfig
from jobs.config.epr import EprConfig
from jobs.config.section import Bytes, Section, Seed
from jobs.config.stage1 import SelectConfig, Stage1Config
from jobs.config.storage import StorageConfig

# The method of Stage 2 that shows nothing.
ZERO_SHOT = "zero-shot"
Character = Annotated[str, Field(min_length=1, max_length=1)]


class Columns(Section):
    """Which source column fills which field of a row; null: the table has none."""

    id: str | None = "id"
    input: str = "input"
    output: str | None = None
    label: str | None = None
    group: str | None = None
    tags: str | None = None
    weight: str | None = None
    cost: str | None = None
    quality: str | None = None
    wrong_output: str | None = None
    why: str | None = None
    keep: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_once(self) -> "Columns":
        if len(set(self.keep)) < len(self.keep):
            raise ValueError("keep names a column twice")
        if self.why is not None and self.wrong_output is None:
            raise ValueError("why is the reason of a wrong_output; map that too, or neither")
        taken = set(self.keep) & set(self.contrast())
        if taken:
            raise ValueError(f"keep and columns.{min(taken)} both fill the column {min(taken)}")
        return self

    def contrast(self) -> dict[str, str]:
        """The fields of a contrastive demonstration that are mapped, with their columns."""
        pairs = (("wrong_output", self.wrong_output), ("why", self.why))
        return {name: column for name, column in pairs if column is not None}

    def carried(self) -> list[str]:
        """Text columns of the row table beside its own fields."""
        return [*self.keep, *self.contrast()]


class Partition(Section):
    """Hash partitions of a table: part of its identity, never taken from the cluster."""

    count: int = Field(8, ge=1, le=65_536)
    seed: Seed = 0


class TableConfig(Section):
    """Where a table comes from and how it is read."""

    path: str | list[str]
    format: Literal["auto", "parquet", "jsonl", "csv", "tsv", "json"] = "auto"
    encoding: str = "utf-8"
    delimiter: Character | None = None
    quote: Character | None = '"'
    header: bool | list[str] = True
    records_key: str | None = None
    columns: Columns = Columns()
    partition: Partition = Partition()
    on_duplicate_id: Literal["rename", "reject", "error"] = "rename"
    max_bytes: int = Field(16 * 2**20, ge=1)


class QueriesConfig(TableConfig):
    """The query table: fewer partitions, because each is one batch of LLM work."""

    partition: Partition = Partition(count=2)


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


class MaskPattern(Section):
    """A mask of your own: a regular expression and what stands in the place of its matches."""

    pattern: str
    placeholder: str = Field(alias="with")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        return MaskRule(pattern, "").pattern


Mask = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[MaskPattern, Tag("<pattern>")],
    Discriminator(lambda value: "<name>" if isinstance(value, str) else "<pattern>"),
]


class EncoderConfig(Section):
    """A sentence encoder: a preset, a model with its settings, or a preset changed in places."""

    preset: str | None = None
    model: str | None = None
    revision: str | None = None
    query_model: str | None = None
    query_revision: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    pooling: Literal["mean", "cls", "lasttoken"] | None = None
    append_eos: bool | None = None
    mask: list[Mask] | None = None
    max_tokens: int | None = Field(None, ge=1)
    query_max_tokens: int | None = Field(None, ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    storage: Literal["float32", "float16"] | None = None
    batch_size: int | None = Field(None, ge=1)
    device: str | None = None
    trust_remote_code: bool = False

    @model_validator(mode="after")
    def _named(self) -> "EncoderConfig":
        if self.preset is None and self.model is None:
            raise ValueError("needs preset or model")
        return self

    @field_validator("mask")
    @classmethod
    def _masks(cls, mask: list[Mask] | None) -> list[Mask] | None:
        rules_of(mask)
        return mask


class SparseEncoderConfig(Section):
    """A learned sparse encoder (SPLADE): a model of sentence-transformers with its settings.

    Attributes:
        model: Package, folder or hub name, as for an encoder; its prompts are its own.
        revision: Commit, tag or branch of a hub model.
        mask: As for an encoder, for queries and records alike.
        max_tokens: Longer texts are cut; null: what the model takes.
        max_active: Keep only so many of the largest weights of a text; null: all.
        dtype: Of the weights and activations.
        batch_size: Texts in one forward pass.
        device: Null: a GPU if there is one.
    """

    model: str
    revision: str | None = None
    mask: list[Mask] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_active: int | None = Field(None, ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: int = Field(32, ge=1)
    device: str | None = None

    @field_validator("mask")
    @classmethod
    def _masks(cls, mask: list[Mask] | None) -> list[Mask] | None:
        rules_of(mask)
        return mask


def rules_of(mask: list[Mask] | None) -> tuple[MaskRule, ...]:
    """The mask of an encoder as rules, in the order in which they run."""
    return mask_rules(
        entry if isinstance(entry, str) else MaskRule(entry.pattern, entry.placeholder)
        for entry in mask or ()
    )


class EngineConfig(Section):
    """An LLM in vLLM; null means the engine's default for the device at hand."""

    model: str
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int | None = Field(None, ge=16)
    max_num_seqs: int | None = Field(None, ge=1)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    tensor_parallel_size: int = Field(1, ge=1)
    kv_cache_memory_bytes: int | None = Field(None, ge=1)
    extra: dict[str, Any] = Field(default_factory=dict)


class Stage2Config(Section):
    """Which of the annotated texts a query is shown."""

    method: str = "knn"
    k: int = Field(4, ge=0)
    condition_on: Literal["query", "all"] = "query"
    lam: float = Field(1.0, ge=0, alias="lambda")
    lambda_scale: Literal["absolute", "mean"] = "absolute"
    ridge: float = Field(1e-3, ge=0, lt=1)
    mmr_lambda: float = Field(0.5, ge=0, le=1)
    recall: int = Field(50, ge=1)
    recall_by: Literal["dense", "lexical", "sparse", "hybrid", "epr"] = "dense"
    sparse_encoder: str | None = None
    epr: EprConfig = EprConfig()
    k_rrf: float = Field(60.0, gt=0)
    exact_up_to: int = Field(100_000, ge=0)
    theta: float = Field(2.0, ge=0)
    labels: int | None = Field(None, ge=0)
    diversity: float = Field(0.0, ge=0)
    probe_weight: float = Field(0.2, ge=0)
    clusters: int | None = Field(None, ge=1)
    ground: Annotated[int, Field(ge=1)] | Literal["all", "pool"] = 16_384
    exclude_same_text: bool = True
    exclude_same_group: bool = True
    ceiling: float | None = Field(None, gt=0, le=1)
    cover_tags: bool = True

    @property
    def shows_nothing(self) -> bool:
        """Whether prompts have no demonstrations by wish."""
        return self.method == ZERO_SHOT or self.k == 0

    @property
    def recalls_sparse(self) -> str | None:
        """The sparse encoder that takes part in recall, if one does."""
        return self.sparse_encoder if self.recall_by in ("sparse", "hybrid") else None


class PromptConfig(Section):
    """How demonstrations and query become one text.

    Attributes:
        format: `completion`, or `chat` through the model's own template.
        order: `similar-last`, `similar-first`, `by-id`, `interleaved` or `calibrated`.
        layout: What stands before the query: `dynamic` its own demonstrations; `anchor` the same
            few for all, then its own; `clustered` the block of its cluster; `by-id` its own, by id.
        token_budget: Most tokens of a prompt; null: what the model takes beside an answer.
        k_min: Fewest demonstrations; what leaves no room for them is `too_long`.
        k_max: Most demonstrations, with `stage2.k`; null: `stage2.k` alone.
        demonstration_share: Part of the tokens left by instruction and query that demonstrations
            beyond `k_min` may fill; below 1, a longer query is shown fewer.
        max_demonstration_tokens: A longer demonstration is passed over.
        spare: Candidates beyond `stage2.k` that are tried where one does not fit.
        anchors: Demonstrations that all queries share (layout `anchor`), among the k.
        clusters: Most blocks (layout `clustered`).
        negative_pairs: Show `wrong_output` and `why` where a record has them.
    """

    format: Literal["completion", "chat"] = "completion"
    order: str = "similar-last"
    layout: Literal["dynamic", "anchor", "clustered", "by-id"] = "dynamic"
    token_budget: int | None = Field(None, ge=16)
    k_min: int = Field(0, ge=0)
    k_max: int | None = Field(None, ge=0)
    demonstration_share: float = Field(1.0, gt=0, le=1)
    max_demonstration_tokens: int | None = Field(None, ge=1)
    spare: int = Field(4, ge=0)
    anchors: int = Field(2, ge=1)
    clusters: int = Field(8, ge=1)
    negative_pairs: bool = True

    @model_validator(mode="before")
    @classmethod
    def _one_order(cls, raw: Any) -> Any:
        """The layout `by-id` is an order; the default one gives way to it."""
        if isinstance(raw, dict) and raw.get("layout") == "by-id":
            order = raw.get("order", "similar-last")
            return raw | {"order": "by-id" if order == "similar-last" else order}
        return raw

    def most(self, k: int) -> int:
        """The most demonstrations of a prompt, where the ranking shows k."""
        return k if self.k_max is None else min(k, self.k_max)


class GenerateConfig(Section):
    """How an answer is drawn from the LLM; `stop: null` is the line end, in chat nothing.

    Attributes:
        decoder: `choice`, `generate` or `likelihood`.
        max_tokens: Most tokens of an answer.
        temperature: 0 is greedy.
        stop: Where a free answer ends.
        calibrate: `contextual` divides the label probabilities of `likelihood` by those of inputs
            without content under the same demonstrations.
        content_free: These inputs; each is one more prompt a set of demonstrations and order.
    """

    decoder: str = "choice"
    max_tokens: int = Field(32, ge=1)
    temperature: float = Field(0.0, ge=0)
    stop: list[str] | None = None
    calibrate: Literal["none", "contextual"] = "none"
    content_free: list[str] = Field(default_factory=lambda: list(CONTENT_FREE), min_length=1)


Amount = Annotated[float, Field(gt=0)]


class WorkersConfig(Section):
    """Workers of one stage and what each asks of a node; results never depend on these.

    Attributes:
        actors: How many must fit; null: as many as do.
        cpus: CPUs of one, and its threads.
        gpus: GPUs of one; null: what the stage has use for, where there are any.
        memory: Memory that is set aside for one (`8GiB`); null: it is not looked at.
        resources: The cluster's own resources, by name.
    """

    actors: int | None = Field(None, ge=1)
    cpus: float = Field(1.0, gt=0)
    gpus: float | None = Field(None, ge=0)
    memory: Bytes | None = None
    resources: dict[str, Amount] = Field(default_factory=dict)

    @field_validator("resources")
    @classmethod
    def _own(cls, resources: dict[str, float]) -> dict[str, float]:
        taken = sorted({"CPU", "GPU", "memory", "object_store_memory"} & set(resources))
        if taken:
            raise ValueError(f"{taken[0]} has a key of its own (cpus, gpus, memory)")
        return resources


class NodesConfig(Section):
    """Nodes of one kind that an autoscaling cluster may grow to."""

    count: int = Field(ge=1, le=100_000)
    cpus: float = Field(ge=0)
    gpus: float = Field(0.0, ge=0)
    memory: Bytes | None = None
    resources: dict[str, Amount] = Field(default_factory=dict)


class ClusterConfig(Section):
    """Which Ray to use: `local` starts one inside this process, an address joins it.

    Attributes:
        address: `local`, or of a running Ray; inside `ray job submit` that one is joined.
        cpus: Of a local Ray; null: all.
        object_store_mib: Of a local Ray.
        nodes: What the cluster grows to when it is asked for more; null: the nodes that are there.
    """

    address: str = "local"
    cpus: int | None = Field(None, ge=1)
    object_store_mib: int = Field(256, ge=80)
    nodes: list[NodesConfig] | None = Field(None, min_length=1)
    embed: WorkersConfig = WorkersConfig()
    select: WorkersConfig = WorkersConfig()
    rank: WorkersConfig = WorkersConfig()
    generate: WorkersConfig = WorkersConfig()


class TimeoutsConfig(Section):
    """How long is too long.

    Attributes:
        stall_s: Seconds without a sign of work (a unit or rows finished, a worker that computes)
            after which a run gives up and says what is pending; null: never. Half an hour is more
            than nodes take to start and models to be fetched.
    """

    stall_s: float | None = Field(1800.0, gt=0)


class OrdersConfig(Section):
    """How much the order of the demonstrations matters: the same ones in every order.

    Attributes:
        arms: Names of the arms that are tried; null: all that show at least 2 demonstrations, those
            with `repeat` apart.
        queries: How many queries are asked in every order, the same for all arms, drawn by the
            seed.
        most: The most orders; where k! is more, so many are drawn by the seed. 120 is 5!.
    """

    arms: list[str] | None = None
    queries: int = Field(50, ge=1)
    most: int = Field(120, ge=2, le=5040)


class ReportConfig(Section):
    """What is measured and what the report shows.

    Attributes:
        map_rows: Corpus rows on the map; 0: no map.
        samples_per_arm: Queries shown in full.
        cases: Queries, by id, for which what each arm showed is put side by side; null: the first
            few on which arms differ.
        bootstrap: Resamples behind the intervals of scores.
        folds: Folds of the paired t-test; 10 is the paper's.
        folds_of: `queries`: each arm is selected once and its answers are cut into folds.
            `selection`: Stage 1 is repeated for each fold, on the corpus without the fold's share,
            and answers the fold's queries.
        baselines: Arms, or methods, that every arm is compared with; null: `zero-shot`, `random`
            and `knn`. Each more is a comparison that p values are corrected for.
        slices: Columns of `queries.columns.keep` that scores are broken down by.
        orders: Answers some queries anew in every order of their demonstrations; null: none.
    """

    map_rows: int = Field(20_000, ge=0, le=20_000)
    samples_per_arm: int = Field(3, ge=0)
    cases: list[str] | None = None
    bootstrap: int = Field(1000, ge=10)
    folds: int = Field(10, ge=2)
    folds_of: Literal["queries", "selection"] = "queries"
    baselines: list[str] | None = None
    slices: list[str] = Field(default_factory=list)
    orders: OrdersConfig | None = None


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
