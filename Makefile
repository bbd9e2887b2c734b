# The only entry points. Each installs what it needs inside the project: a Python environment in .venv, and
# cargo-nextest and cargo-deny if they are missing. You need Rust (rustup), a C and C++ compiler, make, and
# Python 3.9 or newer with venv. `make wheel GLIBC=2.28` builds with zig against that glibc, for hosts with an
# older C library than this one.

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
TORCH := .venv-torch
BIN := $(VENV)/bin
WHEEL_TREE := pybind/python/xpu_top
NEXTEST := cargo-nextest@0.9.143
DENY := cargo-deny@0.20.2
# Without optimization and debug information, which takes a third of the time. cargo-deny runs for three
# seconds.
INSTALL = CARGO_PROFILE_DEV_DEBUG=false $(CARGO) install --locked --debug
PROGRAMS := xpu-top xpu-collector
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
LIBRARIES := xpu_hook simgpu_driver simgpu_cudart simgpu_cublas simgpu_cublaslt simgpu_nccl simgpu_nvml simgpu_cupti

# Skipped tests write their reason here. Under CI=true a skipped test fails, unless it needs something that no
# CI can have.
SKIPPED := $(TARGET_DIR)/skipped.txt

.PHONY: help build demo test test-programs browser torch lint deny bench scenarios hazards memcheck fuzz wheel wheel-parts packaged-hook packaged-hook-parts packages image screenshots clean

help:
	@echo "make demo         a simulated job of 8 ranks on 2 hosts, and the screen"
	@echo "make test         installs what the tests need and runs all tests"
	@echo "make test-programs  Slurm, munge, sshd, jemalloc, tcmalloc and Open MPI from Debian, for the tests that run real ones (root or sudo)"
	@echo "make browser      Chromium from npm for the test of the web page (300 MB, x86-64; node and npm), likewise"
	@echo "make torch        PyTorch, accelerate, DeepSpeed and HTA (5 GB), likewise"
	@echo "make lint         formatting, clippy, licences, Python style, private words, pages, arrows between crates"
	@echo "make deny         licences, sources and known vulnerabilities of dependencies"
	@echo "make bench        the budgets: cost per call, memory, CPU, bytes on the wire"
	@echo "make scenarios    simulated jobs with and without faults: precision, recall, time to detection"
	@echo "make hazards      a table: what the hook changes in each program of tests/hazards, and its cost"
	@echo "make memcheck     the hook in tests/hazards under valgrind, which must be installed"
	@echo "make fuzz         coverage-guided fuzzing of the decoder, frame handling and ZMTP; SECONDS=600"
	@echo "make wheel        dist/*.whl, for pip install"
	@echo "make packaged-hook  the hook as in the packages (zig, glibc 2.28)"
	@echo "make packages     dist/*.tar.gz and *.deb, from the wheel; GLIBC=2.28 as for wheel"
	@echo "make image        the programs in a container image, from the packages (docker, buildah or podman)"
	@echo "make screenshots  rewrite the golden screens in screenshots/ and their PNGs; PNG=\"NAME...\" for new PNGs"

build:
	$(CARGO) build --release --workspace $(TARGETS)

# Builds only what the demo runs, unoptimized and without Parquet: a third of the time of `make build`.
demo:
	$(CARGO) build --profile demo --no-default-features -p xpu-top -p xpu-collector -p xpu-hook -p xpu-python -p 'simgpu-*'
	$(TARGET_DIR)/demo/xpu-top demo

# The hook and the wheel for an old C library share a target folder, which is not that of the other builds,
# because cargo locks the folder in which it builds. `make test` fully optimizes only the hook in them.
PACKAGED = $(MAKE) --no-print-directory GLIBC=2.28 CARGO_TARGET_DIR=$(TARGET_DIR)/wheel
WHEEL = nice -n 19 $(PACKAGED) wheel

# Builds the tests together with the programs: separate builds would build shared crates twice, with other
# features. Less optimization, no ThinLTO between the parts of a crate, and no line tables make the build far
# shorter; no test measures speed.
# Most tests wait most of the time, so two cores run five tests at a time, and build the wheel beside them at
# low priority.
test: TARGETS := --all-targets
# Clippy, too, so that the C libraries are compiled once.
test lint: export CARGO_PROFILE_RELEASE_LTO := off
test lint: export CARGO_PROFILE_RELEASE_OPT_LEVEL := 1
test lint: export CARGO_PROFILE_RELEASE_DEBUG := false
test: export NEXTEST_TEST_THREADS ?= $(shell expr $$(nproc) \* 2 + 1)
test: build packaged-hook $(BIN)/maturin $(BIN)/pytest browser
	@$(CARGO) nextest --version >/dev/null 2>&1 || $(INSTALL) $(NEXTEST)
	@rm -f $(SKIPPED); export XPU_TEST_SKIPPED=$(SKIPPED); worst=0; \
	if test -x $(TORCH)/bin/torchrun; then export XPU_TEST_TORCH=$${XPU_TEST_TORCH:-$(CURDIR)/$(TORCH)/bin}; fi; \
	$(WHEEL) >$(TARGET_DIR)/wheel.log 2>&1 & wheel=$$!; \
	run() { echo "$$*"; "$$@"; code=$$?; test $$code -le $$worst || worst=$$code; }; \
	run $(CARGO) nextest run --release --workspace --no-fail-fast; \
	wait $$wheel || { worst=1; tail -n 40 $(TARGET_DIR)/wheel.log; }; \
	run $(BIN)/pytest -q --numprocesses 3 --dist loadfile tests/python; \
	if test -s $(SKIPPED); then echo "$$(wc -l <$(SKIPPED)) tests were skipped:"; sort $(SKIPPED); else echo "no test was skipped"; fi; \
	exit $$worst

# Not part of `make test`, because the packages start services on a developer's machine.
test-programs:
	@(for one in /usr/sbin/slurmctld /usr/sbin/slurmd /usr/sbin/munged /usr/sbin/sshd /usr/bin/mpirun; do test -x $$one || exit 1; done; \
	for one in jemalloc.so.2 tcmalloc.so.4; do ls /usr/lib/*/lib$$one >/dev/null 2>&1 || exit 1; done) || { \
	sudo=$$(test "$$(id -u)" = 0 || echo sudo -n); \
	$$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends slurm-wlm munge openssh-server openssh-client \
	libjemalloc2 libgoogle-perftools4 openmpi-bin; } \
	|| echo "SKIPPED: no Slurm, sshd, Open MPI or allocators could be installed; the end of make test names the tests that do without"

# The pinned package contains the browser itself, so nothing else is downloaded. Without the package one test
# is skipped.
browser: tests/browser/unpacked/chromium $(BIN)/playwright

tests/browser/unpacked/chromium: tests/browser/package-lock.json tests/browser/unpack.mjs
	@{ cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node unpack.mjs && rm -rf node_modules; } \
	|| echo "SKIPPED: Chromium could not be installed; the end of make test names the test that does without"

$(BIN)/playwright: $(BIN)/python tests/browser/requirements.txt
	@{ $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/browser/requirements.txt && touch $@; } \
	|| echo "SKIPPED: Playwright could not be installed; the end of make test names the test that does without"

# Not in CI, where it would take nearly all of the 50 minutes. It takes 5 GB of disk, and its builds 20 GB.
torch: $(TORCH)/installed

$(TORCH)/installed: tests/python/requirements-torch.txt
	@{ test $$(df -k --output=avail . | tail -1) -gt 30000000 && $(PYTHON) -m venv $(TORCH) && \
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $< && touch $@; } \
	|| { rm -rf $(TORCH); echo "SKIPPED: PyTorch could not be installed, or less than 30 GB are free; the end of make test names the tests that do without"; }

lint: $(BIN)/ruff
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) clippy --release --workspace --no-default-features -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1 || $(INSTALL) $(DENY); then $(MAKE) --no-print-directory deny; \
	else echo "SKIPPED: cargo-deny could not be installed: licences, sources and known vulnerabilities were not checked"; fi
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/words.py
	$(BIN)/python tests/pages.py
	CARGO="$(CARGO)" $(BIN)/python tests/arrows.py

# The check for known vulnerabilities (RustSec) needs the network. Without network, make prints this and checks
# the rest.
deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || $(INSTALL) $(DENY)
	$(CARGO) deny check --hide-inclusion-graph bans licenses sources
	@if $(CARGO) deny fetch db >/dev/null 2>&1; then $(CARGO) deny --offline check advisories; \
	else echo "the advisory database cannot be reached: known vulnerabilities were not checked"; fi

bench: build
	tests/bench/run.sh
	$(CARGO) nextest run --release -p xpu-tests --test hazards --run-ignored only --test-threads 1 --no-fail-fast bench::
	$(CARGO) nextest run --release -p xpu-tests --test flood --run-ignored only --no-capture ten_seconds_of_flood

scenarios:
	$(CARGO) run --release -p xpu-collector --example scenarios

hazards: build packaged-hook
	$(CARGO) nextest run --release -p xpu-tests --test hazards --run-ignored only --no-capture hazard_table

memcheck: build packaged-hook
	$(CARGO) nextest run --release -p xpu-tests --test hazards --run-ignored only memcheck_finds_no_error

fuzz:
	shared/fuzz/run.sh decode $(or $(SECONDS),60)
	shared/fuzz/run.sh receive $(or $(SECONDS),60)

# Builds the hook as in the packages: with zig, for an old C library. The hazards run against both builds.
TARGET := x86_64-unknown-linux-gnu
# Without line tables, because the files are stripped anyway.
ZIGBUILD = PATH="$(CURDIR)/$(BIN):$$PATH" XPU_TOP_BUILD="$(BUILD)" CARGO_PROFILE_RELEASE_DEBUG=false \
	$(CARGO) zigbuild --release --target $(TARGET).$(GLIBC)

packaged-hook: $(BIN)/cargo-zigbuild
	$(PACKAGED) packaged-hook-parts

ifdef GLIBC
BUILT := $(TARGET_DIR)/$(TARGET)/release
# `--version` prints this.
BUILD := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown) of $(shell date -u +%Y-%m-%d), glibc $(GLIBC)
MATURIN_FLAGS := --zig --target $(TARGET) --compatibility manylinux_$(subst .,_,$(GLIBC))

wheel-parts: $(BIN)/maturin $(BIN)/cargo-zigbuild
	$(ZIGBUILD) --workspace --exclude xpu-tests

packaged-hook-parts:
	$(ZIGBUILD) -p xpu-hook
else
BUILT := $(TARGET_DIR)/release
MATURIN_FLAGS := --auditwheel skip

wheel-parts: build $(BIN)/maturin
endif

# Programs and libraries are part of the Python package. Stripped, they have a tenth of their size.
wheel: wheel-parts
	rm -rf dist $(WHEEL_TREE)/bin $(WHEEL_TREE)/lib
	mkdir -p $(WHEEL_TREE)/bin $(WHEEL_TREE)/lib
	for name in $(PROGRAMS); do strip -o $(WHEEL_TREE)/bin/$$name $(BUILT)/$$name; done
	for name in $(LIBRARIES); do strip -o $(WHEEL_TREE)/lib/lib$$name.so $(BUILT)/lib$$name.so; done
	cd pybind && PATH="$(CURDIR)/$(BIN):$$PATH" maturin build --release --strip $(MATURIN_FLAGS) --out ../dist

# Makes a tarball from the wheel, for hosts without pip, and a Debian package if dpkg-deb exists.
packages: wheel
	deploy/package.sh dist/*.whl

# Builds an image with the first of docker, buildah and podman that works here. Only docker finds the ignore
# file by itself.
image:
	@works() { "$$1" info > /dev/null 2>&1; }; \
	listed="--ignorefile deploy/docker/Dockerfile.dockerignore"; \
	if works docker; then build="docker build"; \
	elif works buildah; then build="buildah build $$listed"; \
	elif works podman; then build="podman build $$listed"; \
	else echo "make image: no docker daemon, buildah or podman here: install one of them" >&2; exit 1; fi; \
	$$build -f deploy/docker/Dockerfile -t $(or $(IMAGE),xpu-top) .

# PNG="NAME..." also makes PNGs of screens that have none yet.
screenshots: build
	UPDATE_EXPECT=1 $(CARGO) nextest run --release -p xpu-tests --test screens
	$(CARGO) run --release -p xpu-tests --example svg_to_png
	$(if $(PNG),$(CARGO) run --release -p xpu-tests --example svg_to_png -- $(PNG))

clean:
	$(CARGO) clean
	rm -rf dist $(VENV) $(TORCH) tests/browser/node_modules tests/browser/unpacked $(WHEEL_TREE)/bin $(WHEEL_TREE)/lib

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

TOOLS := $(addprefix $(BIN)/,cargo-zigbuild maturin pytest ruff)

$(TOOLS): $(BIN)/python tests/python/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	@touch $(TOOLS)
