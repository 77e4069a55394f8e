"""Config files as plain data; a file may build on others by `base`."""

from pathlib import Path
from typing import Any

import yaml

from jobs.errors import ConfigError

BASE = "base"


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
    return _read(Path(path), ())


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key that stands twice is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a repeated key, with its line."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key != "<<" and key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"key {key!r} stands twice, the second time on line {line}")
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep=deep)


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A file over its bases; `above` are the files that led here."""
    chain = (*above, path)
    if path.resolve() in [one.resolve() for one in above]:
        raise ConfigError(f"{' -> '.join(map(str, chain))}: these files are based on each other.")
    own = _own(path, " -> ".join(map(str, chain)))
    merged: dict[str, Any] = {}
    for name in _bases(own.pop(BASE, []), path):
        merged = _over(merged, _read(path.parent / name, chain))
    return _over(merged, own)


def _own(path: Path, where: str) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such config file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: found {type(raw).__name__}, wanted a mapping of sections.")
    return raw


def _bases(value: Any, path: Path) -> list[str]:
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
