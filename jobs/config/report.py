"""What is measured and what the report shows."""

from typing import Literal

from pydantic import Field

from jobs.config.section import Section


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
