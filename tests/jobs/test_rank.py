"""Every Stage 2 method from the config to the table of demonstrations."""

import pytest

from jobs.errors import ConfigError
from jobs.ledger import Ledger, Marker
from jobs.rank_work import METHODS

ARMS = [(method, condition) for method in METHODS for condition in METHODS[method]]


def tables(project, manifest, arm):
    """An arm's rows of demonstrations by query id."""
    ledger = Ledger(str(project.out))
    rows = []
    for plain in manifest["demonstrations"][arm]:
        rows += ledger.read(Marker(**plain)).to_pylist()
    return {row["id"]: row for row in rows}


def test_every_method_ranks_every_query(project):
    project.config["stage2"] = {"k": 3, "recall": 6, "ground": 50}
    project.config["arms"] = [
        {"name": f"{method}-{condition}", "stage2": {"method": method, "condition_on": condition}}
        for method, condition in ARMS
    ] + [
        {"name": f"{method}-pool", "stage2": {"method": method, "ground": "pool"}}
        for method in ("dual-div", "mutual-information", "s3-lowest")
    ]
    _, manifest = project.execute("rank")
    assert len(manifest["demonstrations"]) == len(ARMS) + 3
    for arm in manifest["demonstrations"]:
        rows = tables(project, manifest, arm)
        assert len(rows) == 12
        for row in rows.values():
            assert len(set(row["demonstration_ids"])) == 3
            assert len(row["scores"]) == len(row["similarities"]) == 3


def test_stratified_shows_every_label_it_has_a_place_for(project):
    project.config["stage1"] = {"k1": 30}
    project.config["stage2"] = {"method": "stratified", "k": 3, "labels": 3, "recall": 30}
    _, manifest = project.execute("rank")
    topics = {row["id"]: row["topic"] for row in project.rows}
    for row in tables(project, manifest, "main").values():
        assert {topics[i] for i in row["demonstration_ids"]} == {"water", "metal", "music"}


def test_random_follows_the_seed_and_no_other_query(project):
    project.config["stage1"] = {"method": "coverage", "k1": 30}
    project.config["stage2"] = {"method": "random", "k": 5}
    first = tables(project, project.execute("rank")[1], "main")
    project.config["queries"]["partition"] = {"count": 5}
    cut = tables(project, project.execute("rank")[1], "main")
    project.config["seed"] = 7
    other = tables(project, project.execute("rank")[1], "main")
    ids = {name: row["demonstration_ids"] for name, row in first.items()}
    assert {name: row["demonstration_ids"] for name, row in cut.items()} == ids
    assert {name: row["demonstration_ids"] for name, row in other.items()} != ids
    assert len({tuple(picks) for picks in ids.values()}) > 6


def test_too_much_ground_for_mutual_information_is_a_config_error(project, monkeypatch):
    monkeypatch.setattr("jobs.rank.KEPT_MOST", 100)
    project.config["stage2"] = {"method": "mutual-information", "k": 2, "ground": 50}
    with pytest.raises(ConfigError, match=r"stage2.ground: found 50 .* 10 records.* at most 10"):
        project.execute("rank")
