"""Keys under which texts are the same, or nearly."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\w+")


def text_keys(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Return a key per text that is equal where the texts are; (n,) uint64.

    Two different texts share one with a probability of 2^-64.
    """
    digests = [
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), np.uint64).copy()


def near_keys(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Return a key per text that is equal where only case, width, space and punctuation differ.

    Texts without letters and digits are compared as they are; (n,) uint64.
    """
    return text_keys(_plain(text) for text in texts)


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold())) or text
