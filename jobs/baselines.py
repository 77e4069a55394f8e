"""Which arms are compared with which, and which are repeats of each other."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from jobs.config import Config
from jobs.config_schema import Arm
from jobs.errors import ConfigError

Matches = Callable[[Arm], bool]
# Without `report.baselines`: no demonstrations, random selection, and the nearest neighbours.
USUAL = ("zero-shot", "random", "knn")
# What repeats of one setting may differ in.
REPEATED = ("seed", "repeat")


def check_baselines(config: Config) -> None:
    """Refuse a baseline that is no arm and no method of one.

    Raises:
        ConfigError: Names it, and what there is.
    """
    for wanted in config.file.report.baselines or ():
        if not any(map(_matches(wanted, config.arms), config.arms)):
            names = ", ".join(arm.name for arm in config.arms)
            methods = sorted(
                {arm.stage1.method for arm in config.arms}
                | {arm.stage2.method for arm in config.arms}
            )
            raise ConfigError(
                f"report.baselines: {wanted!r} is no arm and no method of one. Arms: {names}. "
                f"Methods: {', '.join(methods)}."
            )


def pairs_of(arms: Sequence[Arm], baselines: Sequence[str] | None) -> list[tuple[str, str]]:
    """Each arm with its nearest arm of each kind of baseline.

    Nearest is what differs in the fewest settings, the first in the config among equals: the
    `knn` twin of an arm has the same Stage 1, the random arm the same seed, where there are such.
    An arm that is a baseline of a kind itself is not compared with that kind.

    Args:
        arms: The arms of one task.
        baselines: Names of arms, or methods: of Stage 1 if an arm has such, else of Stage 2. None:
            the usual ones.

    Returns:
        Pairs (arm, against) in the order of arms and baselines. Two baselines that are each other's
        nearest are one pair, against the one of the kind that comes first.
    """
    pairs: list[tuple[str, str]] = []
    for wanted in USUAL if baselines is None else baselines:
        matches = _matches(wanted, arms)
        named = any(arm.name == wanted for arm in arms)
        for arm in arms:
            if matches(arm):
                continue
            known = [one for one in arms if matches(one) and (named or one.engine == arm.engine)]
            if known:
                nearest = min(known, key=lambda one: len(differing(arm, one)))
                pair = (arm.name, nearest.name)
                if pair not in pairs and pair[::-1] not in pairs:
                    pairs.append(pair)
    place = {arm.name: number for number, arm in enumerate(arms)}
    return sorted(pairs, key=lambda pair: place[pair[0]])


def repeats_of(arms: Sequence[Arm]) -> list[list[Arm]]:
    """Arms that are equal in all but name, seed and repeat, in groups of at least two."""
    groups: dict[str, list[Arm]] = {}
    for arm in arms:
        setting = {k: v for k, v in _leaves(arm).items() if k not in REPEATED}
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(arm)
    return [group for group in groups.values() if len(group) > 1]


def differing(first: Arm, second: Arm) -> list[str]:
    """The settings, by their keys, in which two arms differ."""
    mine, theirs = _leaves(first), _leaves(second)
    return [key for key in mine | theirs if mine.get(key) != theirs.get(key)]


def _matches(wanted: str, arms: Sequence[Arm]) -> Matches:
    ways: list[Matches] = [
        lambda arm: arm.name == wanted,
        lambda arm: arm.stage1.method == wanted,
        lambda arm: arm.stage2.method == wanted,
    ]
    return next((way for way in ways if any(map(way, arms))), ways[0])


def _leaves(arm: Arm) -> dict[str, Any]:
    """Every setting of an arm but its name, nested keys joined by dots."""
    found: dict[str, Any] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict) and node:
            for key, value in node.items():
                walk(value, f"{path}.{key}" if path else key)
        else:
            found[path] = node

    walk(arm.model_dump(mode="json", by_alias=True, exclude={"name"}), "")
    return found
