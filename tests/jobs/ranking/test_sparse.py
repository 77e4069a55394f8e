"""Sparse vectors of one table, with a fake encoder; and which models are refused before a run."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from inference.sparse_encoder import SparseEncoded, SparseSpec
from inference.status import Status
from jobs.checks import check_config
from jobs.config.load import load
from jobs.config.models import SparseEncoderConfig
from jobs.errors import ConfigError
from jobs.ledger import Ledger, Unit
from jobs.ranking.sparse import SparseWork, encode_rows, identify_sparse, sparse_spec
from jobs.vectors import SPARSE_SCHEMA, to_csr
from tests.inference.tiny_models import tiny_bert, tiny_splade
from tests.jobs.conftest import Project


class FakeSparse:
    """Weighs term `length of the text` with 1; texts that say so are bad or long."""

    dimension = 9

    def encode(self, texts):
        rows = np.zeros((len(texts), 9), np.float32)
        status = []
        for i, text in enumerate(texts):
            state = Status.EMPTY if not text else Status.NOT_FINITE if "bad" in text else Status.OK
            status.append(state)
            rows[i, len(text) % 9] = state is Status.OK
        truncated = np.array(["long" in text for text in texts], bool)
        return SparseEncoded(sp.csr_array(rows), truncated, status)


def rows(texts, status=None):
    columns = {
        "id": pa.array([f"r{i}" for i in range(len(texts))], pa.string()),
        "input": pa.array(texts, pa.large_string()),
    }
    if status is not None:
        columns["status"] = pa.array(status, pa.string())
    return pa.table(columns)


@pytest.mark.parametrize(
    ("role", "status"), [("query", ["ok", "too_large", "ok"]), ("document", None)]
)
def test_a_row_that_cannot_be_encoded_has_no_terms_and_is_counted(tmp_path, role, status):
    ledger = Ledger(str(tmp_path))
    marker = ledger.commit(Unit("rows", "part", "f"), rows(["abc", "a long one", "bad"], status))
    unit = Unit("sparse/e", "part", "g")
    work = SparseWork(str(tmp_path), None, {role: FakeSparse()})
    made = work({"unit": vars(unit), "rows": marker.as_dict(), "role": role})
    second = "too_large" if status else "ok"
    table = ledger.read(made)
    assert table["status"].to_pylist() == ["ok", second, "not_finite"]
    kept = to_csr(table, made.stats["dimension"]).toarray()
    assert kept.sum(axis=1).tolist() == [1.0, float(second == "ok"), 0.0]
    assert kept[0, 3] == 1.0
    assert made.stats["status"] == {"ok": 1 + (second == "ok"), "not_finite": 1} | (
        {"too_large": 1} if status else {}
    )
    assert made.stats["n_truncated"] == (0 if status else 1)


def test_no_rows_give_an_empty_table_of_the_same_schema():
    table = encode_rows(FakeSparse(), rows([], []))
    assert (table.num_rows, table.schema) == (0, SPARSE_SCHEMA)
    assert to_csr(table, 9).shape == (0, 9)


def test_a_relative_folder_is_named_whole_for_workers_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    config = SparseEncoderConfig(model="model", mask=["numbers"], max_active=7)
    spec = sparse_spec(config)
    assert spec == SparseSpec(str(tmp_path / "model"), mask=spec.mask, max_active=7)
    assert [rule.placeholder for rule in spec.mask] == ["<number>"]


def test_a_model_that_is_not_there_or_not_sparse_is_refused_by_its_key(tmp_path):
    with pytest.raises(ConfigError, match=r"sparse_encoders\.s: .*nowhere"):
        identify_sparse("s", SparseEncoderConfig(model="./nowhere"))
    dense = str(tiny_bert(tmp_path))
    with pytest.raises(ConfigError, match=r"sparse_encoders\.s: .*no sparse encoder"):
        identify_sparse("s", SparseEncoderConfig(model=dense))


def test_a_run_looks_for_the_sparse_models_it_will_use_and_for_no_others(tmp_path):
    project = Project(tmp_path)
    folder = str(tiny_splade(tmp_path / "model"))
    project.config["sparse_encoders"] = {"there": {"model": folder}, "lost": {"model": "./lost"}}
    project.config["stage2"] = {"k": 2, "sparse_encoder": "lost", "recall_by": "lexical"}
    check_config(load(project.path), until="rank")
    project.config["arms"] = [{"name": "a", "stage2": {"recall_by": "hybrid"}}]
    check_config(load(project.path), until="select")
    with pytest.raises(ConfigError, match=r"sparse_encoders\.lost"):
        check_config(load(project.path), until="rank")
    check_config(load(project.path, settings=["stage2.sparse_encoder=there"]), until="rank")
    check_config(load(project.path, settings=["stage2.k=0"]), until="rank")
