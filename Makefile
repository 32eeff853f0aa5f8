# Every target sets up what it needs by itself (scripts/setup): on a fresh Debian 12 or 13, as root, `make demo` is the
# only command to type. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup venv shim lock lint test test-cluster cluster-agents cluster-installed conformance bench soak demo image cluster clean

BIN := .venv/bin
PYTEST := $(BIN)/pytest
ifeq ($(shell id -u),0)
SETUP := scripts/setup packages venv shim
else
SETUP := scripts/setup venv shim
endif

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup:  ## Debian packages, .venv and the shim; every target below calls for what it needs by itself
	@$(SETUP)

venv:  ## only .venv
	@scripts/setup venv

shim:  ## build/shim/{x86_64,aarch64}/flock
	@scripts/setup shim
	@ls -l build/shim/*/flock

demo:  ## two nodes, a router and three pods on this machine, explained; KEEP=1 lets them stay
	@$(SETUP)
	@KEEP=$(KEEP) $(BIN)/python -m flock_lab.demo

lint:  ## ruff, mypy --strict, import rules, licences of what is installed on a node
	@scripts/setup venv
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check-licences

test: lint  ## lint, and every test but those of the next three targets
	@$(SETUP)
	$(PYTEST) --ignore=tests/cluster --ignore=tests/kube $(ARGS)

test-cluster:  ## real runtimes (containerd, podman, cnitool), and real Kubernetes clusters on the lab's nodes
	@scripts/setup packages cluster-packages image-packages e2e-root venv shim
	@$(BIN)/python -m flock_lab.gobuild
	@$(BIN)/python -m flock_lab.image
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line cluster-agents cluster-installed

# Two clusters at once: each mostly waits. In the first flock's agents are processes that tests stop and start.
cluster-agents:  ## half of test-cluster: runtimes, and a cluster whose agents are processes
	$(PYTEST) tests/cluster -m "not soak and not versions" $(ARGS)
	FLOCK_KUBE_NETWORK=flock $(PYTEST) tests/kube -m "flock_alone and not soak" $(ARGS)

cluster-installed:  ## the other half: a cluster with flock installed from its images
	FLOCK_KUBE_NETWORK=installed $(PYTEST) tests/kube -m "not flock_alone and not soak" $(ARGS)

conformance:  ## upstream's e2e specs on a cluster of each family order; every supported BIRD. SPECS='--primary ipv6'
	@scripts/setup packages cluster-packages image-packages e2e-root bird-versions venv shim
	@$(BIN)/python -m flock_lab.gobuild
	@$(BIN)/python -m flock_lab.image
	$(PYTEST) -m versions --ignore=tests/cluster --ignore=tests/kube $(ARGS)
	$(BIN)/python -m flock_lab.kube.conformance $(SPECS)

bench:  ## flock and the reference plugins side by side; ONLY=cni for one group (cni, store, routing, policy, kube)
	@scripts/setup packages cluster-packages e2e-root venv shim
	@$(BIN)/python -m flock_lab.gobuild
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

soak:  ## five minutes without an API server, 10,000 kills of the agent (FLOCK_KILLS), fuzzing (FLOCK_FUZZ_SECONDS)
	@scripts/setup packages cluster-packages e2e-root venv soak shim
	@$(BIN)/python -m flock_lab.gobuild
	$(PYTEST) tests/kube -m soak -o timeout=0 $(ARGS)
	FLOCK_KILLS=$${FLOCK_KILLS:-10000} FLOCK_FUZZ_SECONDS=$${FLOCK_FUZZ_SECONDS:-3600} \
	  .venv-soak/bin/pytest -m "crash or soak" -o timeout=0 --ignore=tests/cluster --ignore=tests/kube $(ARGS)

cluster:  ## a real Kubernetes of two nodes that stays, with its kubeconfig; DOWN=1 takes it away
	@scripts/setup packages cluster-packages e2e-root venv shim
	@$(BIN)/python -m flock_lab.gobuild
	@$(BIN)/python -m flock_lab.kube $(if $(DOWN),down,up)

image:  ## the images of the agent and of BIRD, as archives; FLOCK_BASE names a base image to pull
	@scripts/setup packages cluster-packages image-packages venv shim
	@$(BIN)/python -m flock_lab.gobuild plugins
	@$(BIN)/python -m flock_lab.image

lock:  ## make the lock files anew (needs uv)
	@scripts/lock

clean:  ## what was built here; the cache outside the tree stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
