# Two commands do all the set-up on a fresh Debian or Ubuntu, as root: `make demo` and `make test`.
# What is missing is installed with apt-get, then a virtual environment is made in .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules

# Debian's own interpreter where it is recent enough, since its packages (venv, headers) belong to it.
at_least_3_11 = $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell $(call at_least_3_11,/usr/bin/python3) && echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.installed
E2E := $(VENV)/.installed-e2e
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
ROOT := $(filter 0,$(shell id -u))
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: help system install demo test lint bench prove fuzz mutants image lock sbom image-test clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: install ## make a pod of network namespaces, program it, send connections, remove everything (root)
	@$(BIN)/netinit demo $(if $(BACKEND),--backend $(BACKEND))

test: lint ## everything but the image: linters, types, architecture, all tests (those in namespaces want root)
	@$(BIN)/pytest $(if $(ROOT),--require-netns,-rs) --ignore tests/e2e $(ARGS)

lint: install ## ruff, mypy --strict, the direction of imports
	@$(BIN)/ruff check --quiet --output-format concise
	@$(BIN)/mypy --strict --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

bench: install ## measure start-up, memory and growth (root); BENCH=apply runs one of tests/bench
	@for name in $(or $(BENCH),$(basename $(notdir $(wildcard tests/bench/[a-z]*.py)))); do \
	  $(BIN)/python "tests/bench/$$name.py" $(ARGS); \
	done

prove: install ## the long proof: the simulator against the kernel, 7,000 connections in each of three dialects (root)
	@NETINIT_CONNECTIONS=7000 $(BIN)/pytest $(if $(ROOT),--require-netns,-rs) --timeout 3600 tests/kernel tests/property $(ARGS)

fuzz: install ## hostile templates, pods and annotations: 100,000 cases of each
	@for name in gotemplate inject guard; do $(BIN)/python "tests/fuzz/fuzz_$$name.py" --cases $(or $(CASES),100000); done

mutants: install ## change the core a condition at a time: does a test notice? (hours; MUTANTS='netinit.rules.layouts*' is a part of it)
	@nice -n 15 $(BIN)/mutmut run $(MUTANTS)
	@$(BIN)/mutmut results

DOCS := $(VENV)/.installed-docs
.PHONY: docs
docs: $(DOCS) ## build the documentation into site/, strictly: links, anchors and names are checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > $(VENV)/docs.log 2>&1 \
	  || { grep -v '^INFO' $(VENV)/docs.log; exit 1; }
	@echo site/index.html

$(DOCS): $(PACKAGE) pyproject.toml
	@echo "installing what the documentation wants"
	@$(PIP) install -e '.[docs]'
	@touch $@

install: $(PACKAGE) ## the programs of the system and the package in .venv

# The image. ENGINE is podman or docker; IMAGE_FLAGS are further flags of its build.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' netinit/__init__.py)
ENGINE ?= $(notdir $(firstword $(shell command -v podman docker 2>/dev/null)))
IMAGE ?= netinit:$(VERSION)
SBOM ?= dist/netinit-$(VERSION).cdx.json
COMMIT ?= $(shell git log -1 --format=%H 2>/dev/null)
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),315532800)# 1980-01-01, the earliest in an archive
image sbom: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)

image: ## build the image with podman or docker; IMAGE=name:tag
	@$(if $(ENGINE),,echo "neither podman nor docker is installed; as root: apt-get install podman"; exit 1)
	@$(ENGINE) build $(if $(filter podman,$(notdir $(ENGINE))),--timestamp $(SOURCE_DATE_EPOCH)) $(IMAGE_FLAGS) --tag $(IMAGE) \
	  --build-arg VERSION=$(VERSION) --build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
	  --label org.opencontainers.image.revision=$(COMMIT) .

lock: $(E2E) ## choose the newest Python packages for the image anew, with their hashes: requirements-image.txt
	@$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --python-version 3.11 \
	  --custom-compile-command "make lock" --output-file requirements-image.txt pyproject.toml

sbom: image $(E2E) ## write what the image holds as CycloneDX; SBOM=FILE
	@folder=$$(mktemp -d); container=$$($(ENGINE) create $(IMAGE) --version); \
	trap 'rm -rf "$$folder"; $(ENGINE) rm "$$container" >/dev/null' EXIT; \
	$(ENGINE) export "$$container" | tar --extract --directory "$$folder"; \
	mkdir -p "$(dir $(SBOM))"; \
	$(BIN)/python tests/e2e/sbom.py "$$folder" "$(SBOM)"; \
	echo "$(SBOM)"

image-test: ## build the image from nothing, attack it, run it as Kubernetes does beside a real Envoy (root; 4 minutes)
	@$(if $(ROOT),,echo "make image-test wants root: it makes containers and network namespaces"; exit 1)
	@$(MAKE) system PROGRAMS="podman runc mmdebstrap" PACKAGES=debian-archive-keyring
	@$(MAKE) $(E2E)
	@$(BIN)/pytest --require-netns --require-image --timeout 600 -rs tests/e2e $(ARGS)

clean: ## remove what was made here
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis *.egg-info
	@find netinit tests -name __pycache__ -type d -prune -exec rm -rf {} +

# What apt-get calls the things that are missing here. Programs are looked for, not packages.
system:
	@missing=(); \
	command -v iptables-nft-restore >/dev/null || missing+=(iptables); \
	command -v nft >/dev/null || missing+=(nftables); \
	command -v ipset >/dev/null || missing+=(ipset); \
	command -v ip >/dev/null || missing+=(iproute2); \
	command -v dot >/dev/null || missing+=(graphviz); \
	command -v gcc >/dev/null || missing+=(gcc); \
	for package in $(PACKAGES); do dpkg-query --status $$package >/dev/null 2>&1 || missing+=($$package); done; \
	for program in $(PROGRAMS); do command -v $$program >/dev/null || missing+=($$program); done; \
	command -v $(PYTHON) >/dev/null || missing+=(python3); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
	  2>/dev/null || missing+=(python3-dev); \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if [ -z "$(ROOT)" ] || ! command -v apt-get >/dev/null; then \
	  echo "missing here: $${missing[*]}; as root: apt-get install $${missing[*]}"; exit 0; \
	fi; \
	echo "installing $${missing[*]}"; \
	export DEBIAN_FRONTEND=noninteractive; \
	log=$$(mktemp); \
	{ apt-get update && apt-get install -y --no-install-recommends "$${missing[@]}"; } >"$$log" 2>&1 </dev/null \
	  || { grep '^E:' "$$log" | tail -n 3; echo "going on without $${missing[*]}, which apt-get could not install"; }; \
	rm -f "$$log"

$(PACKAGE): pyproject.toml | system
	@$(call at_least_3_11,$(PYTHON)) || { echo "netinit wants Python 3.11 or newer; PYTHON=/path/to/python3 names one"; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || { echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1; } \
	  || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install python3-venv"; exit 1; }
	@echo "installing netinit and its tools into $(VENV)"
	@log=$$(mktemp); \
	if ! $(PIP) install -e '.[dev]' >"$$log" 2>&1; then \
	  grep -q python-iptables "$$log" || { tail -n 20 "$$log"; exit 1; }; \
	  echo "python-iptables cannot be built (it wants gcc and Python's headers): going on without the backend libiptc"; \
	  $(BIN)/python -c "$$requirements" | xargs -d '\n' $(PIP) install; \
	  $(PIP) install --no-deps -e .; \
	fi; \
	rm -f "$$log"
	@touch $@

$(E2E): $(PACKAGE) pyproject.toml
	@echo "installing what the tests of the image want"
	@$(PIP) install -e '.[e2e]'
	@touch $@

# All requirements but the one that has to be compiled.
define requirements :=
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
print("\n".join(text for text in wanted if not text.startswith("python-iptables")))
endef
export requirements

