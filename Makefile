# localpool. Each target is enough on a fresh Debian 12 with Rust and Go, as root, from a fresh clone.
# `make demo` shows the driver at work, `make test` proves it; CONTRIBUTING.md has the rest.

SHELL := /bin/bash
# Where rustup and Go's own archive put themselves, for a root shell that has not heard of them.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin

CARGO := cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help deps build demo test test-unit test-page test-loop test-apiserver sanity lint chart-lint image bench
.PHONY: bench-check release release-check clean
.PHONY: cluster-build cluster-up cluster-down cluster-check test-cluster test-vm
.NOTPARALLEL:

help:
	@echo 'make deps       install what is missing on this machine (Debian packages, as root)'
	@echo 'make build      the release binary, $(TARGET)/release/localpool'
	@echo 'make demo       a whole driver at work on three loop disks of its own (root)'
	@echo 'make test       every tier: unit, property and crash; loop devices (root); API server; csi-sanity (root)'
	@echo 'make test-unit  make test-loop  make test-apiserver  make sanity    one tier'
	@echo 'make test-page  the status page in a browser without a window, with pictures in $(TARGET)/test'
	@echo 'make lint       formatting, clippy, licences, vet'
	@echo 'make chart-lint the Helm chart, with Helm 3 and 4, and its alerts, with promtool'
	@echo 'make image      the container image, $(TARGET)/image/localpool.tar (root)'
	@echo 'make release    all files of a release of this commit, in $(TARGET)/release-files (root)'
	@echo 'make release-check  the same of the tree as it is, without an entry in CHANGELOG.md (root)'
	@echo 'make bench      measurements beside sgdisk, lsblk, the bare device and prepared volumes (root)'
	@echo 'make bench-check  a few rounds of the same: fails only where a benchmark breaks, and writes no figure (root)'
	@echo 'make cluster-up    a real Kubernetes cluster of one node, on this machine (root)'
	@echo 'make cluster-down  take it down; make cluster-build only builds it (cold: a quarter of an hour)'
	@echo 'make cluster-check proves the cluster itself, and that nothing of it is left (root)'
	@echo 'make test-cluster  the chart on such a cluster, with real pods (root); KEEP=1 leaves it up'
	@echo 'make test-vm       the driver in a virtual machine with disks of every sort (root; QEMU, no KVM needed)'
	@echo 'make clean      remove what was built'

deps:
	@scripts/deps

build:
	@scripts/deps build
	$(CARGO) build --locked --release

# What it shows is the same in each profile, and this one is built in a third of the time.
demo:
	@scripts/deps build run
	$(CARGO) build --locked --bin localpool
	@$(TARGET)/debug/localpool demo

test:
	@scripts/deps build run test page
	@scripts/test

test-unit:
	@scripts/deps build test page
	@scripts/test unit

# A part of the tier of unit tests. With UPDATE_DOCS=1 it writes the pictures of docs/status-page.md.
test-page:
	@scripts/deps build page
	$(CARGO) test --locked --workspace --features testing --test page

test-loop:
	@scripts/deps build run test
	@scripts/test loop

test-apiserver:
	@scripts/deps build test
	@scripts/test apiserver

sanity:
	@scripts/deps build run test
	@scripts/test sanity

lint:
	@scripts/deps build lint
	@scripts/lint

chart-lint:
	@scripts/chart-lint

image:
	@scripts/deps build image
	@scripts/image

release: cluster-build
	@scripts/deps build image
	@scripts/release

release-check: cluster-build
	@scripts/deps build image
	@scripts/release --snapshot

bench:
	@scripts/deps build run bench image cluster
	$(CARGO) bench --locked --bench peers
	@scripts/test-cluster bench
	@UPDATE_DOCS=1 $(CARGO) test --locked --features testing --test documents plots

# With the library of the tests, as no figure of it counts.
bench-check:
	@scripts/deps build run bench
	$(CARGO) bench --locked --profile test --features testing --bench peers -- --short

cluster-build:
	@scripts/deps cluster
	@cluster/build

cluster-up: cluster-build
	@$(TARGET)/cluster/bin/localpool-cluster up

# Without a build: what it takes down may be half there.
cluster-down:
	@[[ ! -x $(TARGET)/cluster/bin/localpool-cluster ]] || $(TARGET)/cluster/bin/localpool-cluster down

cluster-check: cluster-build
	@scripts/deps build
	@cluster/check

test-cluster:
	@scripts/deps build run test image cluster
	@scripts/test-cluster

test-vm:
	@scripts/deps build vm
	@scripts/test-vm

clean:
	$(CARGO) clean
	rm -rf sanity/bin
