"""Mean log-probability of each label's tokens given a prompt, with the prompt computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference.engine import VllmEngine
from inference.llm import Completion, Sampling
from inference.prompt_tokens import Tokenizer, encode
from inference.status import Status
from inference.tasks import Task, verbalize

Path = tuple[int, ...]


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


def score(
    engine: VllmEngine, token_ids: Sequence[Sequence[int]], paths: Mapping[str, Path]
) -> list[Scored]:
    """Score every label for every prompt: one request per branch of the labels' token tree.

    A request is the prompt, the tokens that lead to the branch, and one step whose
    log-probabilities of the branch's next tokens are read. The prefix cache holds the prompt, so
    a branch costs the prompt's last part block plus its own tokens, where `prompt_logprobs`
    computes the whole prompt for every label.

    Args:
        engine: runs the requests.
        token_ids: prompts.
        paths: label -> token ids of its answer.

    Returns:
        Per prompt the mean log-probability of each label, or None with the first failure.
    """
    tree = branches(paths)
    requests = [[*ids, *prefix] for ids in token_ids for prefix in tree]
    one_step = [Sampling(max_tokens=1, logprob_token_ids=following) for following in tree.values()]
    width = len(tree)
    rows = [row for row in range(len(token_ids)) for _ in range(width)]
    answers = engine.generate_ids(requests, one_step * len(token_ids), rows=rows)
    return [
        _combine(dict(zip(tree, answers[at : at + width], strict=True)), paths)
        for at in range(0, len(answers), width)
    ]


def _combine(steps: Mapping[Path, Completion], paths: Mapping[str, Path]) -> Scored:
    """Add the steps along every label's path and divide by its length."""
    failed = next((step for step in steps.values() if step.status is not Status.OK), None)
    if failed is not None:
        return Scored(None, failed)
    return Scored(
        {
            label: sum(_step(steps[path[:i]], path[i]) for i in range(len(path))) / len(path)
            for label, path in paths.items()
        },
        steps[()],
    )


def _step(completion: Completion, token: int) -> float:
    """Return the log-probability of one next token."""
    if completion.logprobs is None:
        raise RuntimeError("the engine returned no log-probabilities; vLLM 0.28 or later does")
    return completion.logprobs[0][token]


def _tail(tokenizer: Tokenizer, stem: str, answer: str) -> Path:
    """Return the tokens that an answer adds to the text before it."""
    before = encode(tokenizer, stem) if stem else []
    joined = encode(tokenizer, stem + answer) if stem else []
    if stem and joined[: len(before)] == before:
        return tuple(joined[len(before) :])
    return tuple(tokenizer(answer, add_special_tokens=False)["input_ids"])
