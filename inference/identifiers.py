"""Which of the pool's tags (tables, drugs, functions) a text names."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp

# A word, white space, or one other character: tags begin and end where one of these does.
_PIECE = re.compile(r"\w+|\s+|[^\w\s]")


class TagMatcher:
    """Finds tags in texts by whole words, whatever their case and white space.

    One pass over the text: at each word the longest tag that begins there is taken, and the search
    goes on behind it, so that `user_id` or `HER-2` do not also name `user` or `HER`. A dictionary
    holds all tags, so time does not depend on their number but on how many different lengths the
    tags with the same first word have. About 0.5 KiB a tag.

    Args:
        tags: distinct, none empty; `tags_of` collects those of a pool. Tags that differ only in
            case or white space are all named together.

    Raises:
        ValueError: a tag that is empty, or there twice.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        #: The tags in the order of the columns.
        self.tags = tuple(tags)
        self._columns = {tag: column for column, tag in enumerate(self.tags)}
        if len(self._columns) < len(self.tags):
            raise ValueError(
                f"tags: found {len(self.tags)}, {len(self._columns)} of them distinct; give each "
                "once"
            )
        self._found: dict[str, tuple[int, ...]] = {}
        lengths: dict[str, set[int]] = {}
        for column, tag in enumerate(self.tags):
            pieces = _pieces(tag.strip())
            if not pieces:
                raise ValueError(f"tags: tag {column} is {tag!r}; wanted one with a character")
            key = "".join(pieces)
            self._found[key] = (*self._found.get(key, ()), column)
            lengths.setdefault(pieces[0], set()).add(len(pieces))
        self._lengths = {first: sorted(some, reverse=True) for first, some in lengths.items()}

    def find(self, text: str) -> list[int]:
        """Return the columns of the tags that a text names, ascending."""
        pieces, at = _pieces(text), 0
        found: set[int] = set()
        while at < len(pieces):
            step = 1
            for length in self._lengths.get(pieces[at], ()):
                columns = self._found.get("".join(pieces[at : at + length]))
                if columns and at + length <= len(pieces):
                    found.update(columns)
                    step = length
                    break
            at += step
        return sorted(found)

    def named(
        self, texts: Sequence[str], given: Sequence[Sequence[str] | None] | None = None
    ) -> sp.csr_array:
        """Return which tags each text names.

        Args:
            texts: n texts.
            given: n lists of tags from a column of their own, which hold beside what the text
                names; None for a row without. A tag that the matcher does not know is left out:
                no record could cover it.

        Returns:
            (n, tags) bool.
        """
        if given is not None and len(given) != len(texts):
            raise ValueError(f"tags: found {len(given)} lists of tags for {len(texts)} texts")
        rows = [self.find(text) for text in texts]
        if given is not None:
            rows = [sorted({*row, *self._known(own)}) for row, own in zip(rows, given, strict=True)]
        return self._matrix(rows)

    def carried(self, tag_lists: Iterable[Sequence[str] | None]) -> sp.csr_array:
        """Return which tags each record of the pool carries in its column; (n, tags) bool."""
        return self._matrix([sorted(set(self._known(own))) for own in tag_lists])

    def _known(self, tags: Sequence[str] | None) -> list[int]:
        """Columns of tags, spelled exactly or as their text would be found."""
        columns: list[int] = []
        for tag in tags or ():
            exact = self._columns.get(tag)
            folded = self._found.get("".join(_pieces(tag.strip())), ())
            columns += folded if exact is None else [exact]
        return columns

    def _matrix(self, rows: list[list[int]]) -> sp.csr_array:
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        columns = np.array([column for row in rows for column in row], np.int64)
        data = np.ones(len(columns), np.bool_)
        return sp.csr_array((data, columns, starts), shape=(len(rows), len(self.tags)))


def tags_of(tag_lists: Iterable[Sequence[str] | None]) -> list[str]:
    """Return the distinct tags of a pool, sorted; blank ones are none."""
    return sorted({tag for own in tag_lists for tag in own or () if tag.strip()})


def _pieces(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [" " if piece.isspace() else piece for piece in _PIECE.findall(folded)]
