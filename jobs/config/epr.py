"""The typed config of the learned retriever, `stage2.recall_by: epr`."""

from pydantic import Field, model_validator

from jobs.config.section import Section, TextOrList


class EprConfig(Section):
    """How a map is learned under which near records are those that help the LLM.

    Attributes:
        map: File of a map that an earlier run trained with the same encoder and the same weights of
            the LLM (`epr/<fp>/map.parquet` of its output); null: train one.
        rows: Most labelled texts to learn from, drawn by the seed; each costs `candidates` prompts.
        also: Labelled rows of the corpus to learn from beside the pool: a list of ids, or a file.
        candidates: Nearest pool records that the LLM tries with each text.
        positives: Of these, how many count as helpful; at most half.
        negatives: How many count as unhelpful.
        temperature: What cosines are divided by in the loss.
        pull: Weight of the squared distance to the map that changes nothing.
        steps: Most steps of training.
        rank: Numbers of a mapped vector; null: as many as the encoder's.
    """

    map: str | None = None
    rows: int = Field(200, ge=2)
    also: TextOrList = None
    candidates: int = Field(20, ge=2)
    positives: int = Field(3, ge=1)
    negatives: int = Field(3, ge=1)
    temperature: float = Field(0.2, gt=0)
    pull: float = Field(0.03, gt=0)
    steps: int = Field(100, ge=1)
    rank: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _enough_candidates(self) -> "EprConfig":
        if self.positives + self.negatives > self.candidates:
            raise ValueError(
                f"positives {self.positives} and negatives {self.negatives} are more than "
                f"candidates = {self.candidates}; lower them, or raise it"
            )
        return self
