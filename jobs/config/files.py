"""Config files as plain data; a file may build on others by `base`."""

import os
from typing import Any

import yaml

from jobs import redaction
from jobs.errors import ConfigError
from jobs.files.inputs import read_input
from jobs.files.places import absolute, is_s3, plain

BASE = "base"
MOST_BYTES, MOST_ALIASES, MOST_DEPTH = 2**20, 32, 64


def read_config(path: str) -> dict[str, Any]:
    """Read a config file and the files it is based on.

    `base` names one file or a list of them, from the folder of the file that names them. Sections
    are merged key by key, a later base over an earlier one and the file itself over all; lists and
    single values replace what was there.

    Args:
        path: YAML file.

    Returns:
        What the file says, without `base`.

    Raises:
        ConfigError: A file that is not there or no YAML mapping, a key that stands twice, a `base`
            that is no path, or files that are based on each other.
    """
    return _read(path, ())


class Loader(yaml.SafeLoader):
    """Safe YAML; a key that stands twice is an error, and a few lines cannot stand for millions."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._n_aliases, self._open = 0, [""]

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse too many aliases, too deep a nesting, and a part that holds itself."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            self._n_aliases += 1
            if self._n_aliases > MOST_ALIASES or event.anchor in self._open:
                line = event.start_mark.line + 1 if event.start_mark else 0
                what = (
                    "holds itself" if event.anchor in self._open else f"is one of > {MOST_ALIASES}"
                )
                raise yaml.YAMLError(f"alias *{event.anchor} on line {line} {what}")
            return super().compose_node(parent, index)
        self._open.append(event.anchor or "")
        if len(self._open) > MOST_DEPTH:
            raise yaml.YAMLError(f"line {event.start_mark.line + 1}: nested over {MOST_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._open.pop()
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a repeated key, with its line."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"key {key!r} stands twice, the second time on line {line}")
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep=deep)


def _read(path: str, above: tuple[str, ...]) -> dict[str, Any]:
    """A file over its bases; `above` are the files that led here."""
    chain = (*above, path)
    if absolute(path) in [absolute(one) for one in above]:
        raise ConfigError(f"{' -> '.join(chain)}: these files are based on each other.")
    own = _own(path, " -> ".join(chain))
    merged: dict[str, Any] = {}
    for name in _bases(own.pop(BASE, []), path):
        merged = _over(merged, _read(_beside(path, name), chain))
    return _over(merged, own)


def _beside(path: str, name: str) -> str:
    """A base, from the folder or prefix of the file that names it."""
    if is_s3(path) and not is_s3(name):
        return f"{path.rpartition('/')[0]}/{name}"
    return name if is_s3(name) else os.path.normpath(os.path.join(os.path.dirname(path), name))


def _own(path: str, where: str) -> dict[str, Any]:
    try:
        data = read_input(plain(path, key="the config"))
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{where}: above {MOST_BYTES:,} bytes, so it is no config.")
        text = data.decode("utf-8")
        redaction.learn_text(text)
        raw = yaml.load(text, Loader=Loader)
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such config file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML: {yaml_mistake(error)}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: found {type(raw).__name__}, wanted a mapping of sections.")
    return raw


def yaml_mistake(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself: it may hold a credential."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem}, line {mark.line + 1}, column {mark.column + 1}"
    return str(error)


def _bases(value: Any, path: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: {BASE} = {value!r}; wanted a config file or a list of them.")
    return names


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two mappings as one: the second wins, key by key."""
    both = {
        key: _over(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return below | above | both
