"""Recall by words: BM25 over the texts of a pool."""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from bm25s import BM25

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

Method = Literal["lucene", "robertson", "atire"]

# Words joined by one of these, without a space, are one identifier: her-2, users.name, table_name.
_IDENTIFIER = re.compile(r"\w+(?:[-./]\w+)*")
_PART = re.compile(r"[^\W_]+")
# Sums of the same addends in another order differ by less than this; so do ties.
_DECIMALS = 9


def words(
    text: str, *, stop_words: Collection[str] = (), stem: Callable[[str], str] | None = None
) -> list[str]:
    """Cut a text into the words that BM25 compares.

    Text is folded (NFKC, case). A word is a run of letters, digits and `_` of any script; words
    joined by `-`, `.` or `/` without a space are one identifier. An identifier counts whole and
    once more in its parts, `_` separating too: `HER-2` gives her-2, her, 2. Scripts that put no
    spaces between words give one word per run: cut such texts before.

    Args:
        text: any Unicode.
        stop_words: folded words to leave out, `bm25s.stopwords.STOPWORDS_EN` say.
        stem: applied to every word that is no compound.

    Returns:
        In the order of the text, with repetitions.
    """
    found: list[str] = []
    for whole in _IDENTIFIER.findall(unicodedata.normalize("NFKC", text).casefold()):
        parts = _PART.findall(whole)
        if parts != [whole]:
            found.append(whole)
        kept = [part for part in parts if part not in stop_words]
        found += [stem(part) for part in kept] if stem else kept
    return found


class Bm25:
    """An index of the texts of a pool.

    The scores are those of bm25s, summed in float64 over the words of the query in one order, so
    that neither the hash seed of the process nor batch or thread changes them.

    Args:
        texts: n texts, in the order of the pool.
        k1: how slowly repetitions of a word stop to count, 0 or more.
        b: how much the length of a text counts against it, 0 to 1.
        method: of Kamphuis et al. 2020; `lucene` is never negative.
        tie_rank: (n,) int64, by which equal scores are ordered; None is the order of the texts.
        tokenize: text to words; `words` with other settings, or a function of your own.

    Raises:
        ValueError: a setting outside its range, or a tie rank per text missing.
    """

    def __init__(
        self,
        texts: Sequence[str],
        *,
        k1: float = 1.5,
        b: float = 0.75,
        method: Method = "lucene",
        tie_rank: Int64 | None = None,
        tokenize: Callable[[str], list[str]] = words,
    ) -> None:
        if not k1 >= 0 or not 0 <= b <= 1 or method not in get_args(Method):
            raise ValueError(
                f"bm25: found k1 {k1}, b {b}, method {method!r}; wanted k1 of at least 0, b from 0 "
                f"to 1, and one of {', '.join(get_args(Method))}"
            )
        if tie_rank is not None and np.shape(tie_rank) != (len(texts),):
            raise ValueError(
                f"bm25: found tie ranks of shape {np.shape(tie_rank)} for {len(texts)} texts"
            )
        self._n = len(texts)
        self._rank = np.arange(self._n) if tie_rank is None else np.asarray(tie_rank, np.int64)
        self._tokenize = tokenize
        tokens = [tokenize(text) for text in texts]
        #: Words of the pool and their numbers.
        self.vocabulary: dict[str, int] = {
            word: number for number, word in enumerate(sorted({w for row in tokens for w in row}))
        }
        self._index = self._indexed(tokens, k1, b, method) if self.vocabulary else None

    def top(
        self, queries: Sequence[str], r: int, allowed: Bool | None = None
    ) -> tuple[Int64, Float64]:
        """Return the r texts that score highest for each query.

        A text that scores 0, because it shares no word with the query, is no candidate, and rows
        may be shorter than r: a query without known words has none, and a hybrid falls back on its
        vectors. Scores equal to 9 decimals are ties and go to the smaller tie rank. O(postings of
        the query's words + n) time a query, 16 n bytes beside the result.

        Args:
            queries: q texts.
            r: wanted for each, at least 1.
            allowed: (q, n) bool, False for a text that a query must not see.

        Returns:
            (q, r) int64 indices, best first, -1 behind the last; (q, r) float64 scores, nan there.

        Raises:
            ValueError: r below 1, or a mask of another shape.
        """
        if r < 1:
            raise ValueError(f"bm25: found r {r}, wanted at least 1")
        if allowed is not None and allowed.shape != (len(queries), self._n):
            raise ValueError(
                f"bm25: found a mask of shape {allowed.shape}, wanted {(len(queries), self._n)}"
            )
        indices = np.full((len(queries), r), -1, np.int64)
        scores = np.full((len(queries), r), np.nan)
        for row, query in enumerate(queries):
            values = self._scores(query)
            if values is None:
                continue
            best = self._best(values, r, None if allowed is None else allowed[row])
            indices[row, : len(best)] = best
            scores[row, : len(best)] = values[best]
        return indices, scores

    def _indexed(self, tokens: list[list[str]], k1: float, b: float, method: Method) -> "BM25":
        import bm25s

        index = bm25s.BM25(k1=k1, b=b, method=method, dtype="float64")
        numbers = [[self.vocabulary[word] for word in row] for row in tokens]
        # Given as numbers: bm25s would number the words in the order of a set of strings.
        index.index((numbers, self.vocabulary), create_empty_token=False, show_progress=False)
        return index

    def _scores(self, query: str) -> Float64 | None:
        """Scores of all n texts; None where no word of the query is known."""
        found = [self.vocabulary.get(word, -1) for word in self._tokenize(query)]
        known = sorted(number for number in found if number >= 0)
        if self._index is None or not known:
            return None
        scores: Float64 = self._index.get_scores_from_ids(known)
        return np.round(scores, _DECIMALS)

    def _best(self, scores: Float64, r: int, allowed: Bool | None) -> Int64:
        candidates = np.flatnonzero(scores > 0 if allowed is None else (scores > 0) & allowed)
        values = scores[candidates]
        if len(candidates) > r:
            least = np.partition(values, len(values) - r)[len(values) - r]
            candidates, values = candidates[values >= least], values[values >= least]
        return candidates[np.lexsort((self._rank[candidates], -values))[:r]]
