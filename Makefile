# Targets for people; each prints what it does. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help env check test fuzz sim-long sim-fleet-long mutants demo up fleet down e2e e2e-kind bench bench-engine bench-scale bench-replay lock manifests chart dist image image-check clean

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
EPOCH = $(shell git log -1 --format=%ct)
# Tests start Python hundreds of times: half a second of each start is compiling, where nothing may be kept of it.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements-dev.lock pyproject.toml
	@test -x $(RUN) || { echo "making the environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing locked dependencies"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

env: $(STAMP) ## make the Python environment

check: env ## lint, types and import rules
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: env ## everything that needs no outside binary (about ten minutes)
	$(RUN) -m pytest -q -n 2

sim-long: env ## new seeds of the simulation on all cores until STEPS=1000000 writes were checked; shrinks what fails
	$(RUN) -m tests.simulation --steps $(or $(STEPS),1000000) $(SIMFLAGS)

sim-fleet-long: env ## new seeds of the fleet's simulation until STEPS=1000000 writes, and all bounds of its table, were hit; MINUTES=90 at most
	$(RUN) -m tests.simulation.fleet --writes $(or $(STEPS),1000000) --minutes $(or $(MINUTES),90) $(SIMFLAGS)

fuzz: env ## new bytes at every entry for an hour: SECONDS=... for another time
	ulimit -v 4194304; end=$$(( $$(date +%s) + $(or $(SECONDS),3600) )); while [ $$(date +%s) -lt $$end ]; do \
		$(RUN) -m pytest -q -x tests/fuzz --hypothesis-profile fuzz -n 2 || exit 1; done

mutants: env ## remove each ledger rule in a copy of the tree: some test must notice (about seven minutes)
	$(RUN) -m tests.mutants

demo: env ## two teams share a cluster: CLUSTER=fleet for a hub and members, real for the real control plane, KUBECONFIG=... for yours
	@$(RUN) -m webhook demo $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG))

up: env ## start a real control plane on loopback with Tutti installed; the last line says how to reach it
	@$(RUN) -m tests.e2e.controlplane.up up $(UPFLAGS)

fleet: env ## start a hub and two members on loopback, a fleet as docs/fleet.md makes it; says how to reach each
	@$(RUN) -m tests.e2e.controlplane.up up --fleet

down: env ## stop what `make up` or `make fleet` started
	@$(RUN) -m tests.e2e.controlplane.up down

e2e: env ## end-to-end tests on two real control planes at once, or on KUBECONFIG=...
	$(RUN) -m pytest -q tests/e2e --override-ini addopts="-ra --strict-markers" $(if $(KUBECONFIG),,-n 2 --dist loadfile --no-loadscope-reorder) $(E2EFLAGS)

e2e-kind: env ## the same suite on a new kind cluster with cert-manager; needs docker, kind, kubectl, Go
	tests/e2e/kind.sh

bench: env ## jobs admitted per second on the real control plane, writes per job, webhook reviews per second
	$(RUN) -m benchmarks.bench_admission
	$(RUN) -m benchmarks.bench_webhook

bench-engine: env ## decisions per second of the engine alone, and what 10,000 nodes cost it
	$(RUN) -m benchmarks.bench_engine
	$(RUN) -m benchmarks.bench_nodes

bench-scale: env ## admission with thousands of gangs running, beside the least possible at the same depth (SCALEFLAGS=...)
	$(RUN) -m benchmarks.bench_scale $(SCALEFLAGS)

bench-replay: env ## CPU seconds to replay a real log of 82,247 jobs under several policies
	$(RUN) -m benchmarks.bench_replay

lock: ## rewrite the hash-locked requirements
	$(VENV)/bin/uv pip compile -q pyproject.toml --universal --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" -o requirements.lock
	$(VENV)/bin/uv pip compile -q pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" -o requirements-dev.lock

manifests: env ## rewrite the generated manifests from the tables in the code
	$(RUN) -m manifests.registrations
	$(RUN) -m manifests.policies
	$(RUN) -m manifests.reconciler_policies
	$(RUN) -m manifests.rights_to_use
	$(RUN) -m manifests.fleet
	$(RUN) -m manifests.marks
	$(RUN) -m manifests.unqueued
	$(RUN) -m manifests.metrics_page
	$(RUN) -m manifests.dashboards

chart: env ## write the Helm chart to build/chart
	@$(RUN) -m manifests.chart build/chart
	@echo "build/chart is written: helm install tutti build/chart"

dist: env ## write wheel and bill of materials (CycloneDX) to dist; the same commit makes the same bytes
	SOURCE_DATE_EPOCH=$(EPOCH) $(RUN) -m hatchling build -t wheel -d dist
	$(RUN) -m manifests.bill_of_materials dist/tutti.cdx.json

image: ## build the container image; layers bear the time of the commit (BASE=python:3.12-slim@sha256:... for the same bytes)
	SOURCE_DATE_EPOCH=$(EPOCH) docker buildx build --build-arg SOURCE_DATE_EPOCH=$(EPOCH) $(if $(BASE),--build-arg BASE=$(BASE)) \
		--output type=docker,rewrite-timestamp=true -t tutti:dev .

image-check: ## build the image twice without Docker, compare, and run what is in it; needs root, buildah, mmdebstrap
	tests/e2e/image.sh

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
