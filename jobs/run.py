"""The state of one run, handed from stage to stage."""

from dataclasses import dataclass, field
from typing import Any

from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.folds import FoldPlan
from jobs.ledger import Ledger, Marker
from jobs.progress import Progress
from jobs.watching.watch import Watch


@dataclass(frozen=True)
class Part:
    """One segment of one partition of a table.

    Attributes:
        segment: Number of the segment, in order of arrival.
        partition: Number of the hash partition.
        marker: Where its rows are.
    """

    segment: int
    partition: int
    marker: Marker

    @property
    def name(self) -> str:
        """File name of what is made of this part; other parts coming or going do not change it."""
        return f"part-s{self.segment:04d}-p{self.partition:05d}"

    @property
    def content(self) -> str:
        """Fingerprint of the rows themselves, whatever file holds them."""
        return str(self.marker.stats["content"])

    def shown(self, *, context: bool) -> str:
        """Fingerprint of what prompts show of the rows: their texts, or kept columns with them."""
        return self.content if context else str(self.marker.stats["texts"])


@dataclass(frozen=True)
class Table:
    """An ingested table: its parts ordered by (partition, segment)."""

    name: str
    parts: tuple[Part, ...]
    n_partitions: int

    @property
    def n_rows(self) -> int:
        """Rows of all parts, whatever their status."""
        return sum(part.marker.rows for part in self.parts)

    def counts(self, what: str) -> dict[str, int]:
        """A count kept per part, summed: `status`, `labels` or `flags`."""
        total: dict[str, int] = {}
        for part in self.parts:
            for key, number in part.marker.stats.get(what, {}).items():
                total[key] = total.get(key, 0) + number
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    def in_partition(self, partition: int) -> list[Part]:
        """The parts of one hash partition, by segment."""
        return [part for part in self.parts if part.partition == partition]


@dataclass
class Run:
    """Everything the stages share.

    Attributes:
        config: The resolved config.
        ledger: Of the output tree.
        progress: Where lines and warnings go.
        manifest: What `manifest.json` will say; each stage adds its entry.
        tables: `corpus` and `queries`, once ingested.
        vectors: (encoder name, table name) -> one marker per part of the table.
        folds: Where Stage 1 is repeated for each fold, which rows each fold has.
        candidates: Arm name -> marker of its candidates; absent: no Stage 1. Where there are folds,
            an arm has those of all its folds together, and each of its folds has its own.
        pool: Marker of the pool version in use, None before annotate.
        demonstrations: Arm name -> one marker per query part.
        prompts: Arm name -> one marker per query part.
        outputs: Arm name -> one marker per query part.
        order_prompts: The same for prompts in other orders (`report.orders`), where it is tried.
        order_outputs: And for their answers.
        metrics: Marker of the metrics.
        watch: Knows what is out on Ray and how far it is.
    """

    config: Config
    ledger: Ledger
    progress: Progress
    manifest: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    vectors: dict[tuple[str, str], list[Marker]] = field(default_factory=dict)
    encoder_ids: dict[str, str] = field(default_factory=dict)
    folds: FoldPlan | None = None
    candidates: dict[str, Marker] = field(default_factory=dict)
    pool: Marker | None = None
    demonstrations: dict[str, list[Marker]] = field(default_factory=dict)
    prompts: dict[str, list[Marker]] = field(default_factory=dict)
    outputs: dict[str, list[Marker]] = field(default_factory=dict)
    order_prompts: dict[str, list[Marker]] = field(default_factory=dict)
    order_outputs: dict[str, list[Marker]] = field(default_factory=dict)
    metrics: Marker | None = None
    watch: Watch = field(default_factory=Watch)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms of the config."""
        return self.config.arms

    def encoding(self, table: str) -> str:
        """The encoding a table's text files are read with."""
        return str(getattr(self.config.file, table).encoding)

    def vectors_by_partition(self, encoder: str) -> list[list[Marker]]:
        """Embedding parts of the corpus, partition by partition."""
        corpus = self.tables["corpus"]
        found: list[list[Marker]] = [[] for _ in range(corpus.n_partitions)]
        for part, marker in zip(corpus.parts, self.vectors[encoder, "corpus"], strict=True):
            found[part.partition].append(marker)
        return found

    @property
    def out(self) -> str:
        """Absolute path of the output tree, or its s3:// path."""
        return self.ledger.store.place
