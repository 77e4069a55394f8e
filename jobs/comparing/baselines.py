"""Which arms are compared with which, and which are repeats of each other."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.config.stage2 import ZERO_SHOT
from jobs.errors import ConfigError

Matches = Callable[[Arm], bool]
# Without `report.baselines`: no demonstrations, random selection, and the nearest neighbours.
USUAL = (ZERO_SHOT, "random", "knn")
# What repeats of one setting may differ in.
REPEATED = ("seed", "repeat")


def check_baselines(config: Config) -> None:
    """Refuse a baseline that is no arm and no method of one.

    Raises:
        ConfigError: Names it, and what there is.
    """
    names = [arm.name for arm in config.arms]
    methods = {m for arm in config.arms for m in (arm.stage1.method, arm.stage2.method)}
    methods |= {ZERO_SHOT for arm in config.arms if arm.stage2.shows_nothing}
    for wanted in config.file.report.baselines or ():
        if wanted not in {*names, *methods}:
            raise ConfigError(
                f"report.baselines: {wanted!r} is no arm and no method of one. Arms: "
                f"{', '.join(names)}. Methods: {', '.join(sorted(methods))}."
            )


def pairs_of(arms: Sequence[Arm], baselines: Sequence[str] | None) -> list[tuple[str, str]]:
    """Each arm with its nearest arm of each kind of baseline.

    Nearest is what differs in the fewest settings, the first in the config among equals: the
    `knn` twin of an arm has the same Stage 1, the random arm the same seed, where there are such.
    An arm that is a baseline itself is compared with the kinds before its own only, so that no
    pair stands twice.

    Args:
        arms: The arms of one task.
        baselines: Names of arms, or methods: of Stage 1 if an arm has such, else of Stage 2. None:
            the usual methods.

    Returns:
        Pairs (arm, against) in the order of arms and baselines; both of one engine, unless the
        baseline was named.
    """
    names = () if baselines is None else {arm.name for arm in arms} & set(baselines)
    kinds = {
        wanted: _matches(wanted, arms, by_name=wanted in names)
        for wanted in (USUAL if baselines is None else baselines)
    }
    settings = {arm.name: settings_of(arm) for arm in arms}
    pairs: dict[tuple[str, str], None] = {}
    for arm in arms:
        for wanted, matches in kinds.items():
            if matches(arm):
                break
            known = [a for a in arms if matches(a) and (wanted in names or a.engine == arm.engine)]
            if known:
                mine = settings[arm.name]
                apart = [len(differing(mine, settings[other.name])) for other in known]
                pairs[arm.name, known[apart.index(min(apart))].name] = None
    return list(pairs)


def repeats_of(arms: Sequence[Arm]) -> list[list[Arm]]:
    """Arms that are equal in all but name, seed and repeat, in groups of at least two."""
    groups: dict[str, list[Arm]] = {}
    for arm in arms:
        setting = {k: v for k, v in settings_of(arm).items() if k not in REPEATED}
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(arm)
    return [group for group in groups.values() if len(group) > 1]


def differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The keys of the settings (`settings_of`) in which two arms differ."""
    return [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]


def settings_of(arm: Arm) -> dict[str, Any]:
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


def _matches(wanted: str, arms: Sequence[Arm], *, by_name: bool) -> Matches:
    if by_name:
        return lambda arm: arm.name == wanted
    if wanted == ZERO_SHOT:
        return lambda arm: arm.stage2.shows_nothing
    stage = "stage1" if any(arm.stage1.method == wanted for arm in arms) else "stage2"
    # One without demonstrations is no arm of the method that it names.
    return lambda arm: getattr(arm, stage).method == wanted and not arm.stage2.shows_nothing
