"""Hashes of rows, texts and ids: the same on every machine and in every Python run."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HASH_BYTES = 8
FINAL = ".,;:!?。"
"""Stops that may end a text without making it another; their wide forms become these by NFKC."""

INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]+")


def content_hash(values: Iterable[str | None]) -> str | None:
    """Hash texts in order, so that no two different lists look alike.

    Returns:
        16 hexadecimal digits; None where a text is not Unicode (a lone surrogate).
    """
    joined = "".join(["-" if value is None else f"{len(value)}:{value}" for value in values])
    try:
        return blake2b(joined.encode(), digest_size=HASH_BYTES).hexdigest()
    except UnicodeEncodeError:
        return None


def normalised(text: str) -> str:
    """Fold what does not make a text another: case, width, white space, a final stop.

    Invisible characters (zero width, direction marks) go too. A text of stops only stays.
    """
    if text.isascii():
        folded = " ".join(text.lower().split())
    else:
        visible = INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
        folded = " ".join(unicodedata.normalize("NFKC", visible.casefold()).split())
    return folded.rstrip(FINAL + " ") or folded


def text_hash(text: str) -> str:
    """Hash a text as `normalised`: 16 hexadecimal digits."""
    raw = normalised(text).encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=HASH_BYTES).hexdigest()


def partition_of(
    ids: Sequence[str] | pa.Array | pa.ChunkedArray, *, count: int, seed: int
) -> npt.NDArray[np.int32]:
    """Give the partition of each id: hash(id, seed) mod count.

    Args:
        ids: n strings.
        count: Number of partitions, at least 1.
        seed: Partition seed of the corpus.

    Returns:
        int32 of shape (n,).
    """
    texts = ids.to_pylist() if isinstance(ids, pa.Array | pa.ChunkedArray) else ids
    salt = seed.to_bytes(blake2b.SALT_SIZE, "little", signed=True)
    digests = b"".join(
        [blake2b(text.encode(), digest_size=HASH_BYTES, salt=salt).digest() for text in texts]
    )
    return (np.frombuffer(digests, dtype="<u8") % np.uint64(count)).astype(np.int32)
