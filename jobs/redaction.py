"""Credentials are kept out of everything that is printed or written.

What a credential is follows from names: keys of the config and variables of the environment. Their
values are replaced wherever they turn up in a text, whoever wrote it.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
NAME = re.compile(
    r"(^|_|-)(api_?key|access_?key(_?id)?|secret(_?(access_?)?key)?|private_?key|account_?key"
    r"|signing_?key|password|passwd|passphrase|credentials?|authorization|(auth|hf|session|security"
    r"|access|bearer|refresh|id|api|hub)_?token|token|connection_?string|sas)$",
    re.I,
)
# Names whose values are credentials are often written the other way round, as HF_TOKEN_PROD.
ENVIRONMENT_NAME = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIAL)", re.I
)
# A key that says which variable of the environment holds a credential.
NAMES_VARIABLE = re.compile(r"(_env|_variable|_var)$", re.I)
# A shorter value may be any word.
LEAST_LENGTH = 8
_ADDRESS = re.compile(r"(\w+://[^/\s:@\"']*):[^@/\s\"']+@")
_SIGNED = re.compile(
    r"([?&](?:X-Amz-(?:Signature|Credential|Security-Token)|Signature|AWSAccessKeyId|sig|token)=)"
    r"[^&\s\"']+",
    re.I,
)
_LINE = re.compile(r"([\w.-]+)[\"']?\s*[:=]\s*[\"']?([^\s\"',}#]+)")

_learned: set[str] = set()


def learn(values: Iterable[str]) -> None:
    """Hide these values from now on."""
    _learned.update(value for value in values if len(value) >= LEAST_LENGTH)


def learn_text(text: str) -> None:
    """Hide what stands behind names of credentials in a text that is no config yet."""
    found = ((name.rpartition(".")[2], value) for name, value in _LINE.findall(text))
    learn(value for name, value in found if NAME.search(name))


def learn_config(node: Any, environment: Mapping[str, str] = os.environ) -> None:
    """Hide the credentials in a config, and those in the variables that it names."""
    if isinstance(node, list):
        for item in node:
            learn_config(item, environment)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if isinstance(value, str) and NAME.search(str(key)):
            learn([value])
        if isinstance(value, str) and (NAMES_VARIABLE.search(str(key)) or NAME.search(str(key))):
            learn([environment.get(value, "")])
        learn_config(value, environment)


def redact(text: str) -> str:
    """The text without any value of a credential, and without passwords in addresses."""
    for value in sorted(_learned | _from_environment(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return _SIGNED.sub(rf"\1{HIDDEN}", _ADDRESS.sub(rf"\1:{HIDDEN}@", text))


def redact_all(node: Any) -> Any:
    """Plain data with every text in it redacted."""
    if isinstance(node, dict):
        return {key: redact_all(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [redact_all(item) for item in node]
    return redact(node) if isinstance(node, str) else node


def without_secrets(node: Any) -> Any:
    """Plain data with the values of keys that name credentials taken out."""
    if isinstance(node, Mapping):
        return {
            key: HIDDEN if NAME.search(str(key)) and value else without_secrets(value)
            for key, value in node.items()
        }
    return [without_secrets(item) for item in node] if isinstance(node, list) else node


def _from_environment() -> set[str]:
    return {
        value
        for name, value in os.environ.items()
        if len(value) >= LEAST_LENGTH and ENVIRONMENT_NAME.search(name) and not _is_path(value)
    }


def _is_path(value: str) -> bool:
    """A file that holds credentials is named in messages; its name is none."""
    return os.path.isabs(value)
