"""The config section `storage`, and how its names reach every process of a run.

Only names of environment variables are written down, never what they hold: the config is printed
and stored. Each process looks the values up in its own environment when it first needs them.
"""

import os
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from jobs.config.section import Section
from jobs.errors import ConfigError

# Holds the section as JSON; verbs without a config read it, and Ray's workers get it.
VARIABLE = "DUALDIV_STORAGE"


class StorageConfig(Section):
    """Where `s3://` paths are looked for, and where large temporary files go.

    Attributes:
        endpoint_env: Name of the variable that holds the endpoint's URL; unset: AWS.
        region_env: That holds the region.
        access_key_env: That holds the access key; unset: whatever the AWS libraries find, such as
            a profile or the role of the machine.
        secret_key_env: That holds the secret key.
        session_token_env: That holds the session token of temporary credentials.
        attempts: How often a request is tried when the answer says that trying again may help.
        scratch: Folder on a local disk of every node for temporary files; null: TMPDIR.
    """

    endpoint_env: str = "AWS_ENDPOINT_URL"
    region_env: str = "AWS_DEFAULT_REGION"
    access_key_env: str = "AWS_ACCESS_KEY_ID"
    secret_key_env: str = "AWS_SECRET_ACCESS_KEY"
    session_token_env: str = "AWS_SESSION_TOKEN"
    attempts: int = Field(12, ge=1, le=100)
    scratch: str | None = None

    def missing(self, environment: Mapping[str, str]) -> list[str]:
        """Keys that name a variable of their own which is not set."""
        usual = StorageConfig.model_fields
        named = {key: name for key, name in self.model_dump().items() if key.endswith("_env")}
        return [
            key
            for key, name in named.items()
            if name != usual[key].default and not environment.get(name)
        ]


def current() -> StorageConfig:
    """The section that this process goes by."""
    text = os.environ.get(VARIABLE)
    return StorageConfig.model_validate_json(text) if text else StorageConfig()


def use(config: StorageConfig) -> None:
    """Let this process, and the processes it starts, go by a section."""
    os.environ[VARIABLE] = config.model_dump_json()


def worker_variables() -> dict[str, str]:
    """What Ray must put into the environment of its workers; holds no secret."""
    text = os.environ.get(VARIABLE)
    return {VARIABLE: text} if text else {}


def require_set(config: StorageConfig, *, where: str) -> None:
    """Refuse a name of a variable that is not set, without repeating it: it may be the secret.

    Raises:
        ConfigError: Names the keys.
    """
    missing = config.missing(os.environ)
    if missing:
        raise ConfigError(
            f"{where}: storage.{missing[0]} names an environment variable that is not set "
            f"({len(missing)} such keys). Give the name of a variable there, never its value, and "
            "set it where the command runs and on every node."
        )


def refuse_secrets(node: Any, *, where: str, key: str = "") -> None:
    """Refuse a path that carries credentials, without repeating it.

    Raises:
        ConfigError: Names the key.
    """
    if isinstance(node, dict):
        for name, value in node.items():
            refuse_secrets(value, where=where, key=f"{key}.{name}".lstrip("."))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            refuse_secrets(value, where=where, key=f"{key}.{number}")
    elif isinstance(node, str) and carries_credentials(node):
        raise ConfigError(
            f"{where}: {key}: credentials in a path are not taken, because paths are printed and "
            "stored. Give s3://BUCKET/KEY, and the credentials in the environment (storage)."
        )


def carries_credentials(path: str) -> bool:
    """Whether a URL has something before an @ where its bucket should be."""
    return path.startswith("s3://") and "@" in path[5:].split("/", 1)[0]
