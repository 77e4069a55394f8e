"""Where rows come from and which of their columns is what."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from jobs.config.section import Section, Seed

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
    """Where a table comes from and how it is read.

    Attributes:
        path: File, folder, glob, or a list of them.
        format: `auto`: by content and name.
        encoding: Of text formats; a byte order mark overrules it.
        delimiter: Of CSV and TSV; null: found out from the header.
        quote: Of CSV and TSV; null: quotes are text.
        header: Whether the first line names the columns, or their names.
        records_key: Key of the records in a JSON document that wraps them; null: found out.
        columns: Which column is what.
        partition: Hash partitions.
        on_duplicate_id: `rename` gives later rows an id of their own, `reject` sets them aside,
            `error` ends the run.
        max_bytes: A larger row is set aside as `too_large`.
    """

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
