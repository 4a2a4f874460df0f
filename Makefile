# Every target works on a new machine: the first one makes the virtual environment.
.DEFAULT_GOAL := help
.PHONY: help run test lint unit thorough shapes plain format docs links bench torture coverage dist clean
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest
# Several targets at a time, each with its output in one piece when it is done, and all of them whatever fails.
TOGETHER = $(MAKE) --no-print-directory --keep-going --output-sync=target --jobs

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## Train a small CapsNet on the bundled digits and write a report (a few minutes)
	$(PYTHON) -m torchcaps train quickstart --scale laptop --overwrite

test: $(READY) ## Run everything that has to pass: lint, types, all tests (under ten minutes on two cores)
	@echo "Lint, types and tests run side by side; each prints when it is done."
	@$(TOGETHER) 3 lint shapes plain

lint: $(READY) ## Check style (ruff) and types (pyright)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

unit: $(READY) ## Run all tests, without lint
	@$(TOGETHER) 2 shapes plain

thorough: $(READY) ## Run all tests with every combination of their options
	@TORCHCAPS_THOROUGH=1 $(TOGETHER) 2 shapes plain

# Shape annotations are checked at run time, except in the tests that cannot run that way: those of compilers, and of
# the errors that users get for wrong shapes.
shapes: $(READY)
	$(PYTEST) -n 2 --dist worksteal --ignore tests/without_shape_checks

plain: $(READY)
	TORCHCAPS_PLAIN=1 $(PYTEST) tests/without_shape_checks

format: $(READY) ## Format the code and fix what ruff can fix
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

SPHINX := OMP_NUM_THREADS=2 $(PYTHON) -m sphinx -W --keep-going

docs: $(READY) ## Build the site, with its tutorials run, into docs/_build/html; run every code block, check every link
	$(SPHINX) -b html docs docs/_build/html
	$(PYTHON) -m pytest tests/test_documentation.py

links: $(READY) ## Check the documentation's links to other sites (needs a network)
	$(SPHINX) -b linkcheck -D nb_execution_mode=off docs docs/_build/links

bench: $(READY) ## Measure speed and memory in one run (RECORD=1: keep the records; PEERS=folder: also clones in it)
	-$(PYTHON) -m benchmarks all $(if $(RECORD),--out-dir benchmarks/records) $(if $(PEERS),--folder $(PEERS))

torture: $(READY) ## Kill trainings, fail their file operations, damage and forge files (seven minutes; MINUTES=60 for more)
	OMP_NUM_THREADS=1 $(PYTHON) -m tests.lab.training.torture $(or $(MINUTES),6)
	OMP_NUM_THREADS=1 $(PYTHON) -m tests.models.fuzz_files 60

coverage: $(READY) ## Run all tests and show the lines that none of them reaches
	$(PYTEST) -n 2 --dist worksteal --ignore tests/without_shape_checks --cov --cov-report=
	TORCHCAPS_PLAIN=1 $(PYTEST) tests/without_shape_checks --cov --cov-append --cov-report=term-missing:skip-covered

dist: $(READY) ## Build the wheel and the source distribution into dist/ and check them
	rm -rf dist
	$(PYTHON) -m hatchling build
	$(VENV)/bin/twine check --strict dist/*

clean: ## Remove the virtual environment, caches and builds
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .coverage dist docs/_build

# Kernels are compiled by the installation, so that it is repeated where their sources are newer.
$(READY): pyproject.toml constraints.txt $(wildcard torchcaps/kernels/*.[ch])
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
