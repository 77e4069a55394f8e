"""Mean log-probability of each label's tokens given a prompt, with the prompt computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference.engine import VllmEngine
from inference.llm import Completion, Sampling
from inference.prompt_tokens import Tokenizer, encode
from inference.status import Status
from inference.tasks import Task, verbalize

Path = tuple[int, ...]
# Path of a token -> its log-probability after the tokens before it.
Steps = dict[Path, float]


@dataclass(frozen=True)
class Scored:
    """The scores of one prompt's labels, with the first request's completion for its figures."""

    scores: Mapping[str, float] | None
    completion: Completion


def answer_tokens(tokenizer: Tokenizer, task: Task, gap: str) -> dict[str, Path]:
    """Return the token ids of every label's answer as they follow a prompt.

    The rule: an answer's tokens are those that its text with the leading gap adds to
    `output_prefix` without trailing white space. They are appended to the prompt's ids; prompt and
    answer are never merged into one token, and every prompt gets the same answer tokens.

    Args:
        tokenizer: of the LLM.
        task: labels and verbalizers.
        gap: white space the answer begins with (`prompts.answer_gap`).

    Raises:
        ValueError: an answer has no tokens, or two labels have the same.
    """
    stem = task.output_prefix.rstrip() if gap else ""
    found = {label: _tail(tokenizer, stem, gap + verbalize(task, label)) for label in task.labels}
    owner: dict[Path, str] = {}
    for label, path in found.items():
        if not path:
            raise ValueError(f"task {task.name!r}: the answer of label {label!r} has no tokens")
        if owner.setdefault(path, label) != label:
            raise ValueError(
                f"task {task.name!r}: the answers of labels {owner[path]!r} and {label!r} have the "
                f"same tokens {list(path)}; give one another verbalizer"
            )
    return found


def branches(paths: Mapping[str, Path]) -> dict[Path, tuple[int, ...]]:
    """Return every proper prefix of the paths with the tokens that follow it, sorted.

    Args:
        paths: label -> token ids, none empty.

    Returns:
        Prefix -> next tokens; the empty prefix comes first.
    """
    after: dict[Path, set[int]] = {}
    for path in paths.values():
        for depth in range(len(path)):
            after.setdefault(path[:depth], set()).add(path[depth])
    return {prefix: tuple(sorted(after[prefix])) for prefix in sorted(after)}


def asked(tree: Mapping[Path, tuple[int, ...]]) -> list[Path]:
    """Return the branches that one request each is made for.

    A request that continues a branch reads every token on its way there too, so a branch is asked
    itself only where an answer ends right after it. The empty one is always asked: it computes the
    prompt for all others.

    Args:
        tree: of `branches`.
    """
    return [
        prefix
        for prefix, following in tree.items()
        if not prefix or any((*prefix, token) not in tree for token in following)
    ]


def score(
    engine: VllmEngine, token_ids: Sequence[Sequence[int]], paths: Mapping[str, Path]
) -> list[Scored]:
    """Score every label for every prompt on the labels' token tree, with the prompt cached.

    A request is the prompt, the tokens that lead to a branch, and one step whose log-probabilities
    of the branch's next tokens are read, with those of the tokens that led there. It computes
    the prompt's last part block and these tokens; what the cache held of them is asked again,
    branch by branch.

    Args:
        engine: runs the requests.
        token_ids: prompts.
        paths: label -> token ids of its answer.

    Returns:
        Per prompt the mean log-probability of each label, or None with the first failure.
    """
    tree = branches(paths)
    known: list[Steps] = [{} for _ in token_ids]
    everywhere = [(row, prefix) for row in range(len(token_ids)) for prefix in asked(tree)]
    answers = ask(engine, token_ids, tree, everywhere, known)
    lost = failures(answers)
    missing = [
        (row, prefix)
        for row, steps in enumerate(known)
        if row not in lost
        for prefix, following in tree.items()
        if any((*prefix, token) not in steps for token in following)
    ]
    lost |= failures(ask(engine, token_ids, tree, missing, known, chain=False))
    return [
        Scored(None, lost[row]) if row in lost else Scored(_means(paths, steps), answers[row, ()])
        for row, steps in enumerate(known)
    ]


def ask(
    engine: VllmEngine,
    token_ids: Sequence[Sequence[int]],
    tree: Mapping[Path, tuple[int, ...]],
    places: Sequence[tuple[int, Path]],
    known: Sequence[Steps],
    *,
    chain: bool = True,
) -> dict[tuple[int, Path], Completion]:
    """Ask for branches of prompts and note each step that was read: the way there and the next.

    Args:
        engine: runs the requests.
        token_ids: prompts.
        tree: of `branches`.
        places: number of the prompt, and branch.
        known: per prompt, what is known; added to.
        chain: read the tokens on the way there too.
    """
    answers = engine.generate_ids(
        [[*token_ids[row], *prefix] for row, prefix in places],
        [
            Sampling(
                max_tokens=1,
                logprob_token_ids=tree[prefix],
                computed_logprobs=chain and len(prefix) > 1,
            )
            for _, prefix in places
        ],
        rows=[row for row, _ in places],
    )
    for (row, prefix), answer in zip(places, answers, strict=True):
        if answer.status is Status.OK:
            _note(known[row], prefix, tree[prefix], answer)
    return dict(zip(places, answers, strict=True))


def _note(steps: Steps, prefix: Path, following: Sequence[int], answer: Completion) -> None:
    """Add what one request read."""
    if answer.logprobs is None:
        raise RuntimeError("the engine returned no log-probabilities; vLLM 0.28 or later does")
    for token in following:
        steps[(*prefix, token)] = answer.logprobs[0][token]
    way_back = zip(range(len(prefix), 0, -1), reversed(answer.prompt_logprobs or ()), strict=False)
    for depth, logprob in way_back:
        if logprob is not None:
            steps.setdefault(prefix[:depth], logprob)


def failures(answers: Mapping[tuple[int, Path], Completion]) -> dict[int, Completion]:
    """Return the first answer of each prompt that is not ok."""
    failures: dict[int, Completion] = {}
    for (row, _), answer in answers.items():
        if answer.status is not Status.OK:
            failures.setdefault(row, answer)
    return failures


def _means(paths: Mapping[str, Path], steps: Steps) -> dict[str, float]:
    """Add the steps along every label's path and divide by its length."""
    return {
        label: sum(steps[path[: depth + 1]] for depth in range(len(path))) / len(path)
        for label, path in paths.items()
    }


def _tail(tokenizer: Tokenizer, stem: str, answer: str) -> Path:
    """Return the tokens that an answer adds to the text before it."""
    before = encode(tokenizer, stem) if stem else []
    joined = encode(tokenizer, stem + answer) if stem else []
    if stem and joined[: len(before)] == before:
        return tuple(joined[len(before) :])
    return tuple(tokenizer(answer, add_special_tokens=False)["input_ids"])
