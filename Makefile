# Everything runs in a virtual environment that the first target to need it makes.

# PYTHON makes the environment; one that is there already keeps the Python it has.
PYTHON ?= python3
VENV ?= .venv
# What pip installs: `-e .` follows the source, `.` is the regular install a user gets.
INSTALL ?= -e .
# Further arguments of the job, e.g. make test ARGS="-k smoother".
ARGS ?=

MINOR := $(shell $(firstword $(wildcard $(VENV)/bin/python) $(PYTHON)) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONSTRAINTS := $(wildcard constraints-$(MINOR).txt)

.PHONY: help demo test lint types complexity notebooks docs bench release-check clean
.DELETE_ON_ERROR:

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/installed-parquet ## the main job on the built-in cohort: from lab results to a report
	$(VENV)/bin/sparse-lds demo --force $(ARGS)

# Several processes beside each other are faster with one thread of BLAS each.
test notebooks: export OPENBLAS_NUM_THREADS = 1

test: $(VENV)/installed-dev ## the tests
	$(VENV)/bin/pytest -n 2 --dist loadfile $(ARGS)

lint: $(VENV)/installed-dev ## lint and format, changing nothing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/installed-dev ## static types
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

complexity: $(VENV)/installed-dev ## the longest files and functions; a report, not a check
	$(VENV)/bin/python .ci/complexity.py

notebooks: $(VENV)/installed-dev ## execute the notebooks; ARGS=--compare compares instead of writing
	$(VENV)/bin/python notebooks/build.py $(ARGS)

# A notice of the theme's makers, which is no warning of ours, would be one of `-W error`.
docs: export NO_MKDOCS_2_WARNING = true
docs: $(VENV)/installed-dev ## the site, into site/; a warning or a broken link is an error
	$(VENV)/bin/python -W error -m mkdocs build --quiet --strict
	$(VENV)/bin/python docs/_site/check.py site

bench: $(VENV)/installed-bench ## the list of benchmarks; ARGS="estep --quick" runs one
	$(VENV)/bin/python benchmarks $(ARGS)

release-check: $(VENV)/installed-release ## sdist and wheel of the last commit, built, checked and tried; into dist/
	PYTHON=$(VENV)/bin/python .ci/release-check

clean: ## remove what builds and tests leave behind; the environment stays
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -name __pycache__ -prune -exec rm -rf {} +

# The stamp of an extra: pip runs again only when what is asked for has changed.
$(VENV)/installed-%: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@echo "installing into $(VENV); the first time takes a few minutes"
	$(VENV)/bin/python -m pip install -qq $(addprefix -c ,$(CONSTRAINTS)) $(INSTALL)[$*]
	@touch $@

$(VENV)/bin/python:
	@case "$(MINOR)" in 3.11|3.12|3.13) ;; *) \
		echo "sparse-lds needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $(or $(MINOR),not there); try make PYTHON=python3.12"; \
		exit 1;; esac
	$(PYTHON) -m venv $(VENV)
