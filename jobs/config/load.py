"""YAML in, a validated and fully resolved `Config` out; every mistake is a `ConfigError`."""

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from jobs import redaction
from jobs.config.files import Loader, read_config, yaml_mistake
from jobs.config.schema import Arm, ConfigFile
from jobs.config.storage import refuse_secrets, require_set
from jobs.errors import ConfigError

ARM_SECTIONS = ("stage1", "stage2", "prompt", "generate")
# Sections inside them, of which an arm may name some keys and keep the others.
SUBSECTIONS = {"stage2": ("epr",)}
ARM_NAMES = {"task": "tasks", "encoder": "encoders", "engine": "engines"}
SHORTHAND = {"stage1": "method", "stage2": "method", "prompt": "format", "generate": "decoder"}


@dataclass(frozen=True)
class Config:
    """The config file with its arms expanded.

    Attributes:
        file: The validated file.
        arms: One entry per arm, every choice resolved, names unique.
        limit: Rows of each table to read, first in file order; None: all.
        query_limit: The same of the queries alone, where they are to be fewer.
    """

    file: ConfigFile
    arms: tuple[Arm, ...]
    limit: int | None = None
    query_limit: int | None = None

    def limit_of(self, table: str) -> int | None:
        """Rows of a table to read; None: all."""
        return self.query_limit if table == "queries" and self.query_limit else self.limit

    @property
    def out(self) -> str:
        """Folder of the output tree."""
        return self.file.out

    def as_dict(self) -> dict[str, Any]:
        """The resolved config as plain data, for printing, storing and fingerprints."""
        plain = self.file.model_dump(mode="json", by_alias=True, exclude={"arms", "grid"})
        plain["arms"] = [arm.model_dump(mode="json", by_alias=True) for arm in self.arms]
        return redaction.without_secrets(plain) | {"limit": self.limit}

    def as_yaml(self) -> str:
        """The resolved config as YAML text."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)


def load(
    path: str, *, settings: Sequence[str] = (), limit: int | None = None, out: str | None = None
) -> Config:
    """Read, override, validate and expand a config.

    Args:
        path: YAML file; it may build on others (`jobs.config.files`).
        settings: Overrides `a.b=c`; c is YAML; list items by number (`arms.0.name=x`).
        limit: Rows of each table to read.
        out: Replaces `out`.

    Returns:
        The resolved config.

    Raises:
        ConfigError: Any mistake in file, overrides or combination.
    """
    raw = read_config(path)
    for setting in settings:
        redaction.learn_text(setting)
        _override(raw, setting)
    redaction.learn_config(raw)
    if out is not None:
        raw["out"] = out
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit}: wanted a whole number of rows, at least 1.")
    refuse_secrets(raw, where=path)
    file = _validate(ConfigFile, raw, where=path)
    require_set(file.storage, where=path)
    return Config(file=file, arms=_expand(file, where=path), limit=limit)


def _override(raw: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {setting}: wanted KEY.KEY=VALUE.")
    try:
        value = yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        told = f"--set {setting}: the value is not YAML: {yaml_mistake(error)}"
        raise ConfigError(told) from None
    try:
        _assign(raw, key.split("."), value)
    except (IndexError, ValueError, TypeError):
        raise ConfigError(f"--set {setting}: {key} names no place in the config.") from None


def _assign(node: Any, keys: list[str], value: Any) -> None:
    """Set a nested value, making mappings on the way; a name in place of a section grows one."""
    head, rest = keys[0], keys[1:]
    slot: Any = int(head) if isinstance(node, list) else head
    if not rest:
        node[slot] = value
        return
    if isinstance(node, dict):
        child = node.get(slot)
        if isinstance(child, str) and slot in SHORTHAND:
            node[slot] = {SHORTHAND[slot]: child}
        elif child is None:
            node[slot] = {}
    _assign(node[slot], rest, value)


def _expand(file: ConfigFile, *, where: str) -> tuple[Arm, ...]:
    arms = []
    for number, base in enumerate(file.arms):
        for point in _grid_points(file.grid):
            raw = _at(base, point, where=f"{where}: grid")
            arms.append(_arm(file, raw, point, where=f"{where}: arms.{number}"))
    seen: dict[str, int] = {}
    for number, arm in enumerate(arms):
        # Names become folders, and some file systems do not tell case apart.
        other = seen.setdefault(arm.name.lower(), number)
        if other != number:
            raise ConfigError(f"{where}: arms {other} and {number} are both {arm.name!r}.")
    if not arms:
        raise ConfigError(f"{where}: arms is empty; give at least one, or leave the key out.")
    return tuple(arms)


def _at(base: dict[str, Any], point: Sequence[Any], *, where: str) -> dict[str, Any]:
    """An arm as written, moved to one point of the grid."""
    raw = copy.deepcopy(base)
    for key, value in point:
        try:
            _assign(raw, key.split("."), value)
        except (IndexError, ValueError, TypeError):
            raise ConfigError(f"{where}: {key} names no place in an arm.") from None
    return raw


def _grid_points(grid: dict[str, list[Any]]) -> list[tuple[tuple[str, Any], ...]]:
    axes = [[(key, value) for value in values] for key, values in grid.items()]
    return list(itertools.product(*axes))


def _arm(file: ConfigFile, raw: dict[str, Any], point: Sequence[Any], *, where: str) -> Arm:
    full: dict[str, Any] = {}
    for section in ARM_SECTIONS:
        base = getattr(file, section).model_dump(by_alias=True)
        override = raw.get(section, {})
        if not isinstance(override, dict):
            override = {SHORTHAND[section]: override}
        full[section] = base | override
        for key in SUBSECTIONS.get(section, ()):
            if isinstance(override.get(key), dict):
                full[section][key] = base[key] | override[key]
    for key, table in ARM_NAMES.items():
        full[key] = raw.get(key) or _only(getattr(file, table), key, where=where)
        if not isinstance(full[key], str) or full[key] not in getattr(file, table):
            known = ", ".join(getattr(file, table))
            raise ConfigError(f"{where}.{key}: {full[key]!r} is not among {table}: {known}.")
    full["seed"] = raw.get("seed", file.seed)
    full["repeat"] = raw.get("repeat", 0)
    full["name"] = _name(raw, full, point)
    extra = {key: raw[key] for key in raw if key not in full}
    arm: Arm = _validate(Arm, full | extra, where=where)
    _check_columns(file, arm, where=where)
    _check_sparse(file, arm, where=where)
    return arm


def _check_columns(file: ConfigFile, arm: Arm, *, where: str) -> None:
    for column, key in arm.stage1.columns_needed().items():
        if getattr(file.corpus.columns, column) is None:
            raise ConfigError(
                f"{where}: stage1.{key} = {getattr(arm.stage1, key)} needs corpus.columns."
                f"{column}, which maps no column. Map one, or leave {key} out."
            )


def _check_sparse(file: ConfigFile, arm: Arm, *, where: str) -> None:
    known = ", ".join(file.sparse_encoders) or "there is none, so name one there, with its model"
    name = arm.stage2.sparse_encoder
    if name is None and arm.stage2.recall_by == "sparse":
        raise ConfigError(
            f"{where}: stage2.recall_by = sparse needs stage2.sparse_encoder, a name among "
            f"sparse_encoders: {known}."
        )
    if name is not None and name not in file.sparse_encoders:
        raise ConfigError(
            f"{where}: stage2.sparse_encoder = {name!r} is not among sparse_encoders: {known}."
        )


def _only(table: dict[str, Any], key: str, *, where: str) -> str:
    if len(table) > 1:
        raise ConfigError(f"{where}: name its {key}; there are several: {', '.join(table)}.")
    return next(iter(table))


def _name(raw: dict[str, Any], full: dict[str, Any], point: Sequence[Any]) -> str:
    name = raw.get("name") or f"{full['stage1'].get('method')}+{full['stage2'].get('method')}"
    tail = [f"{key.split('.')[-1]}={value}" for key, value in point if key not in ARM_SECTIONS]
    if raw.get("name"):
        tail = [str(value) for key, value in point if key in ARM_SECTIONS] + tail
    return "+".join([str(name), *tail])


def _validate(model: type[Any], raw: dict[str, Any], *, where: str) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        lines = [_explain(model, item) for item in error.errors()]
        raise ConfigError("\n".join(f"{where}: {line}" for line in lines)) from None


def _explain(model: type[BaseModel], item: Any) -> str:
    # Pydantic also names the branch of a union, which ours write in <>.
    place = [str(part) for part in item["loc"] if not str(part).startswith("<")]
    key = ".".join(place)
    shown = redaction.without_secrets({place[-1] if place else "": item["input"]})
    shown = next(iter(shown.values()))
    if item["type"] == "extra_forbidden":
        known = sorted(_known_keys(model, place[:-1]))
        near = get_close_matches(place[-1], known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"unknown key {key} = {shown!r}.{hint} Known here: {', '.join(known)}."
    if item["type"] == "missing":
        return f"{key} is missing; it has no default."
    told = item["msg"].removeprefix("Value error, ")
    if item["type"] in ("model_type", "dict_type"):
        told = "wanted a section with keys of its own"
    if isinstance(item["input"], str) and item["type"] in ("float_type", "int_type"):
        told += "; YAML takes it for text (write 1.0e+9, not 1e9; no quotes)"
    return f"{key} = {shown!r}: {told}."


def _known_keys(model: type[BaseModel], place: list[str]) -> list[str]:
    current: Any = model
    for part in place:
        if _is_model(current):
            field = next(
                (f for name, f in current.model_fields.items() if part in (name, f.alias)), None
            )
            # What is no field is the key of an entry, or its number in a list.
            current = field.annotation if field else current
        current = _model_in(current)
    if not _is_model(current):
        return []
    return [field.alias or name for name, field in current.model_fields.items()]


def _model_in(kind: Any) -> Any:
    """The section that a field can hold, also where it can hold something else; else the field."""
    if _is_model(kind):
        return kind
    inner = (_model_in(arg) for arg in get_args(kind))
    return next((found for found in inner if _is_model(found)), kind)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
