"""The best label of each prompt, without the scores of labels that cannot be it."""

from collections.abc import Iterator, Mapping, Sequence

from inference.engine import VllmEngine
from inference.likelihood import Path, Scored, Steps, ask, branches, failures
from inference.llm import Completion

# Prompts that are decided together, where the engine does not say how many tokens it can cache.
ROWS_AT_A_TIME = 64


def score_best(
    engine: VllmEngine, token_ids: Sequence[Sequence[int]], paths: Mapping[str, Path]
) -> list[Scored]:
    """Score labels until none that is left could beat, or equal, the best.

    A step adds no more than 0, so the sum of a label's known steps over all of its tokens bounds
    its score. One round asks, for every prompt that is not decided, for the label with the highest
    bound. The best label and its score are those of `likelihood.score`; most others are not asked.

    Args:
        engine: runs the requests.
        token_ids: prompts.
        paths: label -> token ids of its answer.

    Returns:
        Per prompt the mean log-probability of the labels that were asked, the best among them, or
        None with the first failure.
    """
    found: dict[int, Scored] = {}
    for rows in together(token_ids, engine.settings.get("cache_tokens")):
        scored = _decide(engine, [token_ids[row] for row in rows], paths)
        found |= dict(zip(rows, scored, strict=True))
    return [found[row] for row in range(len(token_ids))]


def together(token_ids: Sequence[Sequence[int]], cache_tokens: object) -> Iterator[list[int]]:
    """Cut prompts into runs that fill at most half of the prefix cache, and hold one at least.

    Rounds come back to the same prompts, which must still be in the cache then. Prompts that begin
    alike stand together.

    Args:
        token_ids: prompts.
        cache_tokens: that the cache holds; None: not known.

    Yields:
        Numbers of prompts.
    """
    most = cache_tokens // 2 if isinstance(cache_tokens, int) else None
    rows: list[int] = []
    n_tokens = 0
    for row in sorted(range(len(token_ids)), key=lambda row: tuple(token_ids[row])):
        n = len(token_ids[row])
        full = len(rows) >= ROWS_AT_A_TIME if most is None else n_tokens + n > most
        if rows and full:
            yield rows
            rows, n_tokens = [], 0
        rows.append(row)
        n_tokens += n
    if rows:
        yield rows


def next_branch(
    paths: Mapping[str, Path], tree: Mapping[Path, tuple[int, ...]], steps: Steps
) -> Path | None:
    """Return the branch to ask next; None: the best label is known.

    It is on the way of the label with the highest bound: the next place where labels part, which
    may rule out many of them, or else the last.

    Args:
        paths: label -> token ids of its answer.
        tree: of `branches`.
        steps: what is known of the prompt.
    """
    bounds = {label: _known_sum(path, steps) / len(path) for label, path in paths.items()}
    whole = {label for label, path in paths.items() if _first_gap(path, steps) is None}
    best = max((bounds[label] for label in whole), default=float("-inf"))
    # One that can only equal the best may come first among the labels.
    left = [label for label in paths if label not in whole and bounds[label] >= best]
    if not left:
        return None
    path = paths[max(left, key=lambda label: bounds[label])]
    at = _first_gap(path, steps) or 0
    # What was cached on the way could not be read; then the gap ends before the last branch.
    while not tree[path[:at]][1:] and at + 1 < len(path) and path[: at + 2] not in steps:
        at += 1
    return path[:at]


def _decide(
    engine: VllmEngine, token_ids: Sequence[Sequence[int]], paths: Mapping[str, Path]
) -> list[Scored]:
    """Go round by round until the best label of every prompt is known."""
    tree = branches(paths)
    known: list[Steps] = [{} for _ in token_ids]
    places: list[tuple[int, Path]] = [(row, ()) for row in range(len(token_ids))]
    first: dict[tuple[int, Path], Completion] = {}
    lost: dict[int, Completion] = {}
    while places:
        answers = ask(engine, token_ids, tree, places, known)
        first = first or answers
        lost |= failures(answers)
        left = [row for row, _ in places if row not in lost]
        branch = {row: next_branch(paths, tree, known[row]) for row in left}
        places = [(row, place) for row, place in branch.items() if place is not None]
    return [
        Scored(None, lost[row]) if row in lost else Scored(_whole(paths, steps), first[row, ()])
        for row, steps in enumerate(known)
    ]


def _whole(paths: Mapping[str, Path], steps: Steps) -> dict[str, float]:
    """Return the scores of the labels whose steps are all known."""
    return {
        label: _known_sum(path, steps) / len(path)
        for label, path in paths.items()
        if _first_gap(path, steps) is None
    }


def _known_sum(path: Path, steps: Steps) -> float:
    """Add the known steps of a path."""
    return sum(steps.get(path[:depth], 0.0) for depth in range(1, len(path) + 1))


def _first_gap(path: Path, steps: Steps) -> int | None:
    """Return the length of the branch after which a path's next token is not known."""
    return next((depth for depth in range(len(path)) if path[: depth + 1] not in steps), None)
