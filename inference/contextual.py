"""Contextual calibration: labels that are likely whatever is asked are held back."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from inference.calibration import mean_probability
from inference.decoding import Decoded, likelihood
from inference.engine import VllmEngine
from inference.llm import Sampling
from inference.status import Status
from inference.tasks import Task, verbalize

# A content-free probability that is too small for a float counts as the smallest there is.
_LEAST = sys.float_info.min


def probabilities(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the labels' scores as probabilities that sum to one.

    Args:
        scores: label -> mean log-probability of its answer; at least one is finite.
    """
    top = max(scores.values())
    weights = {label: math.exp(score - top) for label, score in scores.items()}
    total = sum(weights.values())
    return {label: weight / total for label, weight in weights.items()}


def calibrated(
    probability: Mapping[str, float], content_free: Mapping[str, float]
) -> dict[str, float]:
    """Divide by the content-free probability and make the labels sum to one again.

    Zhao et al. 2021, "Calibrate Before Use", section 5: W = diag(p_cf)^-1, b = 0. Nothing changes
    where the content-free probability is uniform, and its scale does not matter.

    Args:
        probability: label -> probability for the query.
        content_free: the same labels -> probability where nothing is asked, 0 or more.
    """
    found = {
        label: value / max(content_free[label], _LEAST) for label, value in probability.items()
    }
    total = sum(found.values())
    return {label: value / total for label, value in found.items()}


def contextual(
    engine: VllmEngine,
    task: Task,
    prompts: Sequence[str],
    content_free: Sequence[Sequence[str]],
) -> list[Decoded]:
    """Take the label whose probability stands out most against its content-free probability.

    Equal prompts are scored once, so that the cost is that of `likelihood` on the prompts and on
    the distinct content-free ones; what these share with the prompts comes from the prefix cache.

    Args:
        engine: runs the prompts.
        task: labels.
        prompts: texts.
        content_free: per prompt, the texts with the same demonstrations that ask for nothing
            (`calibration.content_free_prompts`).

    Returns:
        As `likelihood`, with the calibrated probabilities and the label it would have taken; a
        prompt has the first status of its content-free prompts that is not ok.
    """
    every = dict.fromkeys([*prompts, *(text for texts in content_free for text in texts)])
    found = dict(zip(every, likelihood(engine, task, list(every), Sampling()), strict=True))
    return [
        _divided(task, found[prompt], [found[text] for text in texts])
        for prompt, texts in zip(prompts, content_free, strict=True)
    ]


def _divided(task: Task, plain: Decoded, content_free: Sequence[Decoded]) -> Decoded:
    """Calibrate the answer to one prompt."""
    if plain.scores is None:
        return plain
    failed = next((one for one in content_free if one.scores is None), None)
    if failed is not None:
        detail = f"a content-free prompt was not scored: {failed.detail}"
        completion = replace(plain.completion, status=failed.status, detail=detail)
        return Decoded(None, "", failed.status, detail, completion, plain.scores)
    mean = mean_probability([probabilities(one.scores or {}) for one in content_free])
    after = calibrated(probabilities(plain.scores), mean)
    label = max(task.labels, key=lambda name: after[name])
    return replace(
        plain,
        prediction=label,
        raw_output=verbalize(task, label),
        status=Status.OK,
        detail="scored and calibrated",
        calibrated=after,
        uncalibrated=plain.prediction,
    )
