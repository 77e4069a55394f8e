"""Stage 2 and the prompt: which records a query is shown, in which order and room."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from inference.calibration import CONTENT_FREE
from jobs.config.epr import EprConfig
from jobs.config.section import Section

# The method of Stage 2 that shows nothing.
ZERO_SHOT = "zero-shot"


class Stage2Config(Section):
    """Which of the annotated texts a query is shown.

    Attributes:
        method: A name of `selection.rankers.PER_QUERY` or `selection.query_set.FOR_ALL`.
        k: Records a query is shown.
        condition_on: `query`, or `all`: one set for all queries.
        lam: Weight of the log-determinant in `dual-div`; key `lambda`.
        lambda_scale: As in Stage 1.
        ridge: As in Stage 1.
        mmr_lambda: Weight of relevance against redundancy in `mmr`.
        recall: Candidates that a method chooses among.
        recall_by: What finds these.
        sparse_encoder: The one of `sparse_encoders` that `sparse` and `hybrid` go by.
        epr: Of `recall_by: epr`.
        k_rrf: Constant of reciprocal rank fusion (`hybrid`).
        exact_up_to: A larger pool is searched through a graph.
        theta: Weight of relevance against the log-determinant in `dpp`.
        labels: Likely labels that `stratified` shows; null: k.
        diversity: Weight of the log-determinant in `mutual-information`.
        probe_weight: Weight of the label's log-probability in `probe`.
        clusters: Of the pool in `kmeans`; null: k.
        ground: What coverage is measured on: rows drawn from the corpus, `all`, or the `pool`.
        exclude_same_text: Never show a copy of the query.
        exclude_same_group: Never show a record of its group.
        ceiling: Never show a record with a cosine of at least this; null: no ceiling.
        cover_tags: A tag that a query names is in one of its demonstrations.
    """

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
        decoder: `choice`, `generate`, `likelihood` or `likelihood-best`.
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
