"""The config of annotation: how labels that come back are taken in."""

from typing import Literal

from jobs.config_section import Section


class AnnotateConfig(Section):
    """What happens to labels that come back, and to the records they make.

    Attributes:
        on_conflict: Which label counts where a row has another one by now, from the corpus or an
            earlier import: `reject` and `first` keep that one, `newest` takes the new one. Where
            one file says two things of a row, `reject` takes neither, `first` the first, `newest`
            the last. All is reported, whatever counts.
        promote: `auto`: a labelled candidate is shown at once; `manual`: once it was promoted.
    """

    on_conflict: Literal["reject", "first", "newest"] = "reject"
    promote: Literal["auto", "manual"] = "auto"
