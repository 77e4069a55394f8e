"""What the source must not contain: ways in which data becomes code."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    p for name in ("jobs", "selection", "inference") for p in (ROOT / name).rglob("*.py")
)
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def name_of(node):
    """Dotted name of what is called."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def risks(source):
    """Every place in a source that could turn data into code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                yield node.module
        elif isinstance(node, ast.Call):
            yield from _calls(node)


def _calls(call):
    name, given = name_of(call.func), {k.arg: k.value for k in call.keywords}
    if name in FORBIDDEN_CALLS or name.endswith(("os.system", "os.popen")):
        yield name
    if name.endswith(("np.load", "numpy.load")) and _true(given.get("allow_pickle")):
        yield f"{name}(allow_pickle)"
    if name.endswith("torch.load") and not _true(given.get("weights_only")):
        yield f"{name} without weights_only"
    loads_yaml = name in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load")
    if loads_yaml and getattr(given.get("Loader"), "id", "") != "Loader":
        yield f"{name} without the safe loader"
    if _true(given.get("shell")):
        yield f"{name}(shell=True)"
    if _true(given.get("trust_remote_code")):
        yield f"{name}(trust_remote_code=True)"


def _true(node):
    return isinstance(node, ast.Constant) and node.value is True


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_data_becomes_code(path):
    assert list(risks(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from joblib import load", "eval(x)", "exec(x)", "yaml.load(x)"),
        *("yaml.unsafe_load(x)", "torch.load(x)", "torch.load(x, weights_only=False)"),
        *("np.load(x, allow_pickle=True)", "subprocess.run(x, shell=True)", "os.system(x)"),
        *("AutoModel.from_pretrained(x, trust_remote_code=True)", "yaml.load(x, Loader=L)"),
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert list(risks(source))


def test_the_config_loader_is_a_safe_one():
    import yaml

    from jobs.config.files import Loader

    assert issubclass(Loader, yaml.SafeLoader)
    assert Loader.yaml_multi_constructors == yaml.SafeLoader.yaml_multi_constructors
