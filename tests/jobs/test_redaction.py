"""Credentials never reach a log, a manifest or an error, whatever way they come in."""

import json

import pytest
import yaml

from jobs import redaction
from jobs.cli import main
from jobs.config.load import load
from jobs.errors import ConfigError
from jobs.progress import Progress
from tests.jobs.config.test_load import MINIMAL

CANARY = "canary-7f3a9c51d2"
ENVIRONMENT = "canary/from+env=8e77"


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    monkeypatch.setattr(redaction, "_learned", set())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ENVIRONMENT)
    monkeypatch.setenv("OWN_VARIABLE", "canary-in-a-named-variable")


def write(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "name",
    [
        *("password", "api_key", "apikey", "secret", "aws_secret_access_key", "access_key"),
        *("hf_token", "session_token", "token", "private_key", "authorization", "credentials"),
    ],
)
def test_values_of_keys_that_name_credentials_are_hidden(name):
    plain = {"engines": [{name: CANARY, "max_tokens": 5}]}
    assert redaction.without_secrets(plain) == {"engines": [{name: "***", "max_tokens": 5}]}


@pytest.mark.parametrize("name", ["max_tokens", "token_budget", "secret_env", "tokens", "key"])
def test_keys_that_name_something_else_are_shown(name):
    assert redaction.without_secrets({name: "value"}) == {name: "value"}


def test_passwords_in_addresses_and_signatures_are_hidden():
    told = redaction.redact(
        "s3://bucket/x at https://me:hunter2@host:9000/p?X-Amz-Signature=abcdef&part=1 failed"
    )
    assert told == "s3://bucket/x at https://me:***@host:9000/p?X-Amz-Signature=***&part=1 failed"


def test_a_value_in_the_environment_is_hidden_in_lines_warnings_and_manifest(tmp_path, capsys):
    from jobs import manifest
    from jobs.storage import Store

    progress = Progress()
    progress.line("embed", f"key {ENVIRONMENT}")
    progress.warn(f"refused: {ENVIRONMENT}!")
    store = Store(str(tmp_path))
    store.create()
    entry = {"message": f"x {ENVIRONMENT}", "config": {"a": [ENVIRONMENT]}, "tables": {}}
    manifest.save(store, entry | {"warnings": progress.warnings})
    assert "canary" not in capsys.readouterr().err
    assert "canary" not in (tmp_path / "manifest.json").read_text()
    assert progress.warnings == ["refused: ***!"]


def test_a_variable_that_the_config_names_is_hidden():
    redaction.learn_config({"storage": {"key_env": "OWN_VARIABLE"}})
    assert redaction.redact("got canary-in-a-named-variable") == "got ***"


def test_a_path_to_credentials_and_a_short_word_stay(monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json")
    monkeypatch.setenv("SOME_TOKEN", "short")
    told = "a short file /home/me/key.json is missing"
    assert redaction.redact(told) == told


BROKEN = [
    f"s3: {{secret_key: {CANARY}}}\n",
    f"engines: {{tiny: {{model: x, api_key: {CANARY}}}}}\n",
    f"password: '{CANARY}\n",
    f"token: {CANARY}\ntoken: {CANARY}\n",
    f"hf_token: {CANARY}: {CANARY}\n",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_config_is_refused_without_its_credentials(tmp_path, text, capfd):
    path = write(tmp_path, yaml.safe_dump({k: v for k, v in MINIMAL.items()}) + text)
    assert main(["plan", path, "--json"]) == 2
    told = capfd.readouterr()
    assert "canary" not in told.out + told.err
    assert json.loads(told.out)["exit_code"] == 2


@pytest.mark.parametrize("key", ["engines.tiny.api_key", "corpus.path.token", "x.password"])
def test_a_setting_on_the_command_line_is_refused_without_its_value(tmp_path, key, capfd):
    path = write(tmp_path, yaml.safe_dump(MINIMAL))
    assert main(["plan", path, "--set", f"{key}={CANARY}"]) == 2
    told = capfd.readouterr()
    assert "canary" not in told.out + told.err


def test_the_last_line_of_a_failure_says_the_exit_code(tmp_path, capsys):
    assert main(["plan", write(tmp_path, "a: [")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "exit code 2"


def test_a_bug_is_told_without_credentials(tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError(f"cannot sign in with {ENVIRONMENT}")

    monkeypatch.setattr("jobs.cli.load", fail)
    assert main(["plan", "x.yaml"]) == 70
    told = capsys.readouterr().err
    assert "canary" not in told
    assert "cannot sign in with ***" in told


def test_a_config_of_few_lines_cannot_stand_for_millions(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="alias"):
        load(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", r"alias \*a on line 1 holds itself"),
        ("[" * 200 + "]" * 200, "nested over 64 deep"),
        ("#" * (2**20 + 1), "above 1,048,576 bytes"),
        ("!!python/object/apply:os.system [echo]", "not YAML"),
    ],
)
def test_a_config_that_is_an_attack_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, text))


def test_a_few_aliases_are_fine(tmp_path):
    text = yaml.safe_dump(MINIMAL).replace("columns: {", "columns: &c {")
    arms = "arms:\n- &one {name: a, stage2: {k: 2}}\n- {<<: *one, name: b}\n"
    assert [arm.stage2.k for arm in load(write(tmp_path, text + arms)).arms] == [2, 2]


@pytest.mark.parametrize("sources", ["encoders", "engines"])
def test_code_of_a_model_runs_only_when_the_config_says_so_and_is_told(tmp_path, sources):
    from jobs.checks import remote_code

    assert remote_code(load(write(tmp_path, yaml.safe_dump(MINIMAL)))) == []
    trusting = {
        "encoders": {"minilm": {"preset": "minilm", "trust_remote_code": True}},
        "engines": {"tiny": {"model": "me/own", "extra": {"trust_remote_code": True}}},
    }
    changed = MINIMAL | {sources: trusting[sources]}
    (told,) = remote_code(load(write(tmp_path, yaml.safe_dump(changed))))
    assert told.startswith(f"{sources}.")
    assert "trust_remote_code is on" in told
