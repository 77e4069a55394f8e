"""Ways to an answer: written freely, or, of one label, out of the closed set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from inference.best_label import score_best
from inference.engine import VllmEngine
from inference.kinds import parse_answer
from inference.likelihood import Path, Scored, answer_tokens, score
from inference.llm import Completion, Sampling
from inference.prompt_tokens import encode
from inference.prompts import answer_gap
from inference.status import Status
from inference.tasks import Task, answers, verbalize


@dataclass(frozen=True)
class Decoded:
    """The prediction for one prompt and what it rests on.

    Args:
        prediction: the canonical answer (`kinds`), for one label the label; or None.
        raw_output: the engine's text; for likelihoods the best label's answer.
        status: of the row: ok, parse_error, or what the engine said.
        detail: why there is no prediction, or how it was found.
        completion: tokens, times and finish reason.
        scores: label -> mean log-probability, for `likelihood`; for `likelihood-best` of the labels
            that could have been the best.
        calibrated: label -> probability after contextual calibration, if there was one.
        uncalibrated: the label that `scores` alone would have given then.
    """

    prediction: str | None
    raw_output: str
    status: Status
    detail: str
    completion: Completion
    scores: Mapping[str, float] | None = None
    calibrated: Mapping[str, float] | None = None
    uncalibrated: str | None = None


Scorer = Callable[[VllmEngine, Sequence[Sequence[int]], Mapping[str, Path]], list[Scored]]
Decoder = Callable[[VllmEngine, Task, Sequence[str], Sampling], list[Decoded]]


def generate(
    engine: VllmEngine, task: Task, prompts: Sequence[str], sampling: Sampling
) -> list[Decoded]:
    """Let the LLM write and find the answer in its text; no answer is a parse_error.

    Args:
        engine: runs the prompts.
        task: labels.
        prompts: texts.
        sampling: length, temperature, seed, stop strings.
    """
    return [_read(c, task) for c in engine.generate(prompts, sampling)]


def choice(
    engine: VllmEngine, task: Task, prompts: Sequence[str], sampling: Sampling
) -> list[Decoded]:
    """Let the LLM write nothing but one of the answers.

    Args:
        engine: runs the prompts.
        task: labels.
        prompts: texts.
        sampling: temperature and seed count; `max_tokens` is raised to the longest answer and
            stop strings are dropped, because either could cut an answer.
    """
    longest = max_answer_tokens(task)
    each = [
        replace(
            sampling,
            choices=tuple(answer_gap(task, prompt) + answer for answer in answers(task)),
            max_tokens=max(sampling.max_tokens, longest),
            stop=(),
        )
        for prompt in prompts
    ]
    return [_read(c, task) for c in engine.generate(prompts, each)]


def likelihood(
    engine: VllmEngine, task: Task, prompts: Sequence[str], sampling: Sampling
) -> list[Decoded]:
    """Take the label whose answer has the largest mean log-probability; ties by label order.

    Args:
        engine: runs the prompts.
        task: labels.
        prompts: texts.
        sampling: not used: nothing is sampled.
    """
    return _by_score(engine, task, prompts, score)


def likelihood_best(
    engine: VllmEngine, task: Task, prompts: Sequence[str], sampling: Sampling
) -> list[Decoded]:
    """Take the label that `likelihood` takes, and score only what it needs for that.

    Args:
        engine: runs the prompts.
        task: labels.
        prompts: texts.
        sampling: not used: nothing is sampled.
    """
    return _by_score(engine, task, prompts, score_best)


def _by_score(
    engine: VllmEngine, task: Task, prompts: Sequence[str], scorer: Scorer
) -> list[Decoded]:
    """Score prompts, together where answers begin alike, and take each one's best label."""
    decoded: dict[int, Decoded] = {}
    by_gap: dict[str, list[int]] = {}
    for position, prompt in enumerate(prompts):
        by_gap.setdefault(answer_gap(task, prompt), []).append(position)
    for gap, positions in by_gap.items():
        paths = answer_tokens(engine.tokenizer, task, gap)
        ids = [encode(engine.tokenizer, prompts[position]) for position in positions]
        for position, scored in zip(positions, scorer(engine, ids, paths), strict=True):
            decoded[position] = _best(scored, task)
    return [decoded[position] for position in range(len(prompts))]


DECODERS: dict[str, Decoder] = {
    "generate": generate,
    "choice": choice,
    "likelihood": likelihood,
    "likelihood-best": likelihood_best,
}
# These know nothing but one label of a closed set.
LABEL_DECODERS = ("choice", "likelihood", "likelihood-best")


def max_answer_tokens(task: Task) -> int:
    """Return the most tokens that one of the answers can take, with its end.

    A constrained answer may be spelled with shorter tokens than usual, at worst byte by byte.
    """
    return max(len(answer.encode()) for answer in answers(task)) + len(task.output_prefix) + 1


def _read(completion: Completion, task: Task) -> Decoded:
    """Find the answer in a completion's text."""
    if completion.status is not Status.OK:
        return Decoded(None, completion.text, completion.status, completion.detail, completion)
    label, reason = parse_answer(completion.text, task)
    status = Status.OK if label is not None else Status.PARSE_ERROR
    return Decoded(label, completion.text, status, reason, completion)


def _best(scored: Scored, task: Task) -> Decoded:
    """Take the best label of one prompt."""
    completion, scores = scored.completion, scored.scores
    if scores is None:
        return Decoded(None, "", completion.status, completion.detail, completion)
    label = max((name for name in task.labels if name in scores), key=lambda name: scores[name])
    return Decoded(label, verbalize(task, label), Status.OK, "scored", completion, scores)
