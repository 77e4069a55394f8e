"""The typed config of Stage 1: what is chosen, under which limits, and how it is computed."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from jobs.config.section import Bytes, Section, TextOrList, parse_bytes

# An exact duplicate costs log(2 ridge - ridge^2) in the log-determinant: rounding of 16-bit
# vectors must stay well below the ridge, that of 32-bit ones is.
RIDGE = {"float32": 1e-3, "float16": 1e-2}
# The method of an arm that chooses nothing: it shows the records that have labels.
NO_STAGE1 = "none"


class LambdaConfig(Section):
    """How lambda changes from pick to pick: a schedule, or a target that it is steered to.

    Attributes:
        schedule: Shape of the way from `from` (first pick) to `to` (last pick).
        start: Key `from`: lambda of the first pick.
        end: Key `to`: lambda of the last pick.
        share: Part of the objective's gain that diversity should make up, between 0 and 1.
        min_distance: Floor on the mean of 1 - cosine over all pairs of picks, between 0 and 2.
    """

    schedule: Literal["linear", "geometric"] | None = None
    start: float | None = Field(None, ge=0, alias="from")
    end: float | None = Field(None, ge=0, alias="to")
    share: float | None = Field(None, gt=0, lt=1)
    min_distance: float | None = Field(None, gt=0, lt=2)

    @model_validator(mode="after")
    def _one_rule(self) -> "LambdaConfig":
        kinds = [self.schedule, self.share, self.min_distance]
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("wanted one of schedule (with from and to), share, min_distance")
        ends = (self.start, self.end)
        if self.schedule is None and ends != (None, None):
            raise ValueError("from and to go with schedule only")
        if self.schedule is not None and None in ends:
            raise ValueError("a schedule needs from and to")
        if self.schedule == "geometric" and 0 in ends:
            raise ValueError("a geometric schedule needs from and to above 0")
        return self


# What `lambda: auto` means.
AUTO = LambdaConfig(share=0.1)


def _lambda_kind(value: Any) -> str:
    if isinstance(value, dict | LambdaConfig):
        return "<rule>"
    return "<word>" if isinstance(value, str) else "<number>"


Lambda = Annotated[
    Annotated[float, Field(ge=0), Tag("<number>")]
    | Annotated[Literal["auto"], Tag("<word>")]
    | Annotated[LambdaConfig, Tag("<rule>")],
    Discriminator(_lambda_kind),
]


class Stage1Config(Section):
    """Which texts are worth annotating.

    Attributes:
        method: `dual-div`, `coverage`, `vote-k`, `kmeans`, `kcenter`, `random` or `none`.
        k1: Texts to choose; null: as many as the budget buys.
        lam: Key `lambda`: weight of the log-determinant; a number, `auto` (diversity makes up a
            tenth of the gain), or a rule (see LambdaConfig).
        lambda_scale: `absolute` is the paper's; `mean` divides coverage by the corpus size, so that
            one lambda means the same for every size.
        ridge: eps of the log-determinant; null: 1e-3, or 1e-2 for vectors stored in 16 bits.
        mode: How gains are computed; `auto` goes by size: `dense` keeps all cosines, `exact` keeps
            none, `screened` looks at a sample first.
        m1: Rows of the sample that screens (`screened` only).
        m2: Rows on which a pick is verified; null: by size, `all`: the whole corpus.
        z: Standard errors added to a screened gain.
        neighbours: Nearest rows that a row votes for (`vote-k` only).
        unseen: Copies of a row that the small sample may have missed, in that error.
        weighted: Rows count by the column `weight` (null there: 1).
        quality: Rows are preferred by the column `quality`: lambda * log r^2 is added to a gain.
        budget: Most that the chosen may cost together, by the column `cost`.
        max_per_group: Most that may be chosen of one value of the column `group`.
        given: File or files of what is annotated already: ids of the corpus, or vectors with ids.
        required: File or list of ids that are chosen first.
        forbidden: File or list of ids that are never chosen.
        stop_at_negative: End before the first pick that would lower the objective.
        certificate: `full` adds a pass over all pairs that proves a bound, `sampled` bounds the
            objective on a sample, `auto` takes what the mode gives without a full pass.
    """

    method: str = "dual-div"
    k1: int | None = Field(100, ge=1)
    lam: Lambda = Field(1.0, alias="lambda")
    lambda_scale: Literal["absolute", "mean"] = "absolute"
    ridge: float | None = Field(None, ge=0, lt=1)
    mode: Literal["auto", "dense", "exact", "screened"] = "auto"
    m1: int = Field(8192, ge=2)
    m2: Annotated[int, Field(ge=1)] | Literal["all"] | None = None
    z: float = Field(1.0, ge=0)
    neighbours: int = Field(150, ge=1)
    unseen: float = Field(1.0, ge=0)
    weighted: bool = False
    quality: bool = False
    budget: float | None = Field(None, gt=0)
    max_per_group: int | None = Field(None, ge=1)
    given: TextOrList = None
    required: TextOrList = None
    forbidden: TextOrList = None
    stop_at_negative: bool = False
    certificate: Literal["auto", "full", "sampled", "none"] = "auto"

    @model_validator(mode="after")
    def _can_be(self) -> "Stage1Config":
        if self.k1 is None and self.budget is None:
            raise ValueError("k1: null needs a budget, or nothing ends the choice")
        if self.ridge == 0 and self.rule is not None:
            raise ValueError("ridge: 0 does not go with a lambda that changes; wanted above 0")
        if self.ridge == 0 and self.budget is not None and self.diverse:
            raise ValueError(
                "ridge: 0 does not go with a budget and lambda above 0: sets of different size are "
                "compared, which needs a ridge above 0"
            )
        if self.stop_at_negative and self.budget is not None:
            raise ValueError(
                "stop_at_negative: does not go with a budget, under which g decides, whose gains "
                "are never negative"
            )
        if isinstance(self.m2, int) and self.m2 < self.m1:
            raise ValueError(f"m2: {self.m2} is below m1 = {self.m1}; it verifies what m1 screens")
        required, forbidden = self.required, self.forbidden
        if self.k1 is not None and isinstance(required, list) and len(required) > self.k1:
            raise ValueError(f"required names {len(required)} ids, more than k1 = {self.k1}")
        if isinstance(required, list) and isinstance(forbidden, list):
            both = sorted(set(required) & set(forbidden))
            if both:
                raise ValueError(f"required and forbidden both name {both[0]!r}")
        return self

    @property
    def rule(self) -> LambdaConfig | None:
        """How lambda changes; None where it is a number or does not count."""
        if self.method == "coverage" or isinstance(self.lam, float):
            return None
        return self.lam if isinstance(self.lam, LambdaConfig) else AUTO

    @property
    def diverse(self) -> bool:
        """Whether the log-determinant takes part in the choice."""
        return self.method != "coverage" and self.lam != 0

    def ridge_for(self, storage: str) -> float:
        """The ridge for vectors stored as `float32` or `float16`; a number in the config wins."""
        return RIDGE[storage] if self.ridge is None else self.ridge

    def columns_needed(self) -> dict[str, str]:
        """Column mapping -> the key that asks for it."""
        asked = {
            "weight": ("weighted", self.weighted),
            "quality": ("quality", self.quality),
            "cost": ("budget", self.budget is not None),
            "group": ("max_per_group", self.max_per_group is not None),
        }
        return {column: key for column, (key, wanted) in asked.items() if wanted}


class SelectConfig(Section):
    """How Stage 1 is spread out; unlike `cluster.select`, results depend on these.

    Attributes:
        memory_per_worker: What one select worker may hold of data, as bytes or like `2GiB`, the
            process itself (about 270 MiB) beside it: decides on modes and merge levels.
        merge_ground: What a merge judges candidates on: `all` rows, a common `sample` of them, or
            `auto`, by size.
        sample: Rows of that sample.
    """

    memory_per_worker: Bytes = "2GiB"
    merge_ground: Literal["auto", "all", "sample"] = "auto"
    sample: int = Field(131_072, ge=1)

    @property
    def memory_bytes(self) -> int:
        """`memory_per_worker` in bytes."""
        return parse_bytes(self.memory_per_worker)
