"""The config of annotation: what goes out night by night, and how labels that come back count."""

from typing import Literal

from pydantic import Field

from jobs.config.section import Section


class AnnotateConfig(Section):
    """What is sent out, what happens to labels that come back, and to the records they make.

    Attributes:
        on_conflict: Which label counts where a row has another one by now, from the corpus or an
            earlier import: `reject` and `first` keep that one, `newest` takes the new one. Where
            one file says two things of a row, `reject` takes neither, `first` the first, `newest`
            the last. All is reported, whatever counts.
        promote: `auto`: a labelled candidate is shown at once; `manual`: once it was promoted.
        nightly: Every run with news proposes one more batch, which builds upon all earlier ones;
            the pool is all that was ever labelled, not the candidates of this run alone.
        expire_nights: Nights after which a candidate without a label is no longer waited for: then
            it counts as never proposed, and may be proposed again. A night is a numbered batch, not
            a date.
        max_pending: Most candidates that may be out without a label; a night proposes no more than
            what is left of it; null: as many as Stage 1 is asked for, whatever is still out.
        max_cosine: A candidate this near to an annotated, pending or earlier chosen row is not sent
            out; null: only one with the same text is not.
    """

    on_conflict: Literal["reject", "first", "newest"] = "reject"
    promote: Literal["auto", "manual"] = "auto"
    nightly: bool = False
    expire_nights: int = Field(7, ge=1)
    max_pending: int | None = Field(None, ge=1)
    max_cosine: float | None = Field(None, gt=0, le=1)
