# The two commands of the README, each complete on a new machine: they make the virtual environment themselves.
.PHONY: run test bench clean
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready

run: $(READY)
	$(PYTHON) -m torchcaps train quickstart --scale laptop --overwrite

# Once with every shape annotation checked at run time, and once plain for what cannot bear that: compilers, and
# errors about wrong shapes.
test: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 --ignore tests/plain
	OMP_NUM_THREADS=1 TORCHCAPS_PLAIN=1 $(PYTHON) -m pytest -n 2 tests/plain

bench: $(READY)
	$(PYTHON) -m torchcaps.bench routing
	$(PYTHON) -m torchcaps.bench models

$(READY): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
