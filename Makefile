# Set-up, checks, tests and the demo of Cepheid. Every target sets up what it needs; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The tools that set-up found: JAVA_HOME, PATH with cargo and .venv/bin, PYSPARK_PYTHON.
ENVIRONMENT := . .venv/environment &&
NATIVE := pyproject.toml native/Cargo.toml native/build.rs $(shell find native/src -name '*.rs')

.PHONY: help setup test soak check format demo bench docs constraints clean

help: ## say what the targets do
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

setup: .venv/.stamp-native .venv/.stamp-jars ## make .venv with everything in it (the other targets do this themselves)

test: check ## check, then all tests, Rust and Python
	@$(ENVIRONMENT) cargo test --manifest-path native/Cargo.toml --quiet
	@$(ENVIRONMENT) scripts/test

soak: setup ## every interleaving of what has no locks, and two hundred random trials of the whole, with kills; the report is docs/soak.md (an hour or two)
	@$(ENVIRONMENT) RUSTFLAGS="--cfg loom" cargo test --manifest-path native/Cargo.toml --target-dir native/target/loom --release --quiet --lib loom_
	@$(ENVIRONMENT) pytest -m soak && python -m tests.history.soak --report docs/soak.md

check: setup ## verify format, lint and types of Python and Rust
	@$(ENVIRONMENT) ruff format --check
	@$(ENVIRONMENT) ruff check
	@$(ENVIRONMENT) mypy
	@$(ENVIRONMENT) cargo fmt --manifest-path native/Cargo.toml --check
	@$(ENVIRONMENT) cargo clippy --manifest-path native/Cargo.toml --quiet --all-targets --features python -- -D warnings

format: setup ## apply the format, and the lint fixes that are safe
	@$(ENVIRONMENT) ruff check --fix-only --quiet
	@$(ENVIRONMENT) ruff format
	@$(ENVIRONMENT) cargo fmt --manifest-path native/Cargo.toml

demo: setup ## run the demo application, end to end
	@$(ENVIRONMENT) cepheid demo

bench: setup ## run the experiments
	@$(ENVIRONMENT) cepheid bench

docs: setup ## write the parts of docs/ that are generated from the code
	@$(ENVIRONMENT) python -m cepheid.app.reference

constraints: setup ## renew constraints.txt: the newest versions that pyproject.toml allows
	@scripts/constraints

clean: ## remove what set-up and builds made; the next call starts from nothing
	rm -rf .venv native/target native/Cargo.lock src/cepheid/_native*.so
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache dist

# Set-up, a stamp a step. A step is done again when something it depends on is newer than its stamp.
.venv/.stamp-venv: scripts/toolchain
	@scripts/setup venv
.venv/.stamp-dependencies: .venv/.stamp-venv constraints.txt
	@scripts/setup dependencies
.venv/.stamp-native: .venv/.stamp-dependencies $(NATIVE)
	@scripts/setup native
.venv/.stamp-jars: .venv/.stamp-native src/cepheid/spark/jars.py
	@scripts/setup jars
