# Two commands set this project up: `make demo` and `make test`. Both build .venv when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo docs tables test
demo: $(READY)
	$(VENV)/bin/dsui demo

test: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(MAKE) docs
	$(VENV)/bin/pytest -n 2 --dist loadfile

docs: $(READY)
	$(VENV)/bin/sphinx-build --fresh-env --nitpicky --fail-on-warning --keep-going --quiet docs docs/_build/html

tables: $(READY)
	$(VENV)/bin/python -m studies.documents

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dsui needs Python 3.11 or newer; run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs,plots,export,serving,parquet,transformers,cluster]'
	touch $@
