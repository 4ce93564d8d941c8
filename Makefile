# The names of what can be done. How is in scripts/, each of which also runs on
# its own and first sets up what it needs.

SHELL := bash
.DEFAULT_GOAL := help

FUZZTIME ?= 20s

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## bin/sidecar, one static binary, and bin/sidecar-engine with RocksDB
	@scripts/build

.PHONY: run
run: ## the sidecar beside a live application, or over STATE_DIR=/path
	@scripts/run

.PHONY: run-stored
run-stored: ## the sidecar over a stored copy of real state directories
	@STORED=1 scripts/run

.PHONY: test
test: ## every test with the race detector, and go vet
	@scripts/test

.PHONY: test-rocksdb
test-rocksdb: ## our word on thousands of damaged databases against RocksDB's own, some minutes
	@scripts/test-rocksdb

.PHONY: test-streams
test-streams: ## real Kafka Streams 2.8 to 4.4 against a real broker (needs a JDK and Maven)
	@scripts/test-streams

.PHONY: test-streams-full
test-streams-full: ## every way to stop an application, 300 times and more: an hour and a half
	@scripts/test-streams-full

.PHONY: test-live
test-live: ## the agent for ten minutes beside each of two live versions
	@LIVE=10m scripts/test-streams -run TestLive

.PHONY: test-verify-live
test-verify-live: ## verify for five minutes each beside RocksDB and two live versions: never damaged
	@scripts/test-verify-live

.PHONY: soak
soak: ## RocksDB beside the agent over 1,000 stores that all change, for eight minutes
	@scripts/soak

.PHONY: image
image: ## the container image, with docker, podman or buildah (docs/image.md)
	@scripts/image

.PHONY: test-image
test-image: ## builds that image with buildah on bases of Debian's packages, looks at it and runs it
	@scripts/test-image

.PHONY: lint
lint: ## gofmt and golangci-lint
	@scripts/lint

.PHONY: bench
bench: ## every benchmark, or those that match BENCH=regexp
	@scripts/bench

.PHONY: bench-large
bench-large: ## verify --deep of 5 GB of tables in 128 MiB of memory, some minutes
	@scripts/bench-large

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME=20s
	@FUZZTIME='$(FUZZTIME)' scripts/fuzz

.PHONY: fuzz-long
fuzz-long: FUZZTIME = 10m
fuzz-long: ## every fuzz target for ten minutes
	@FUZZTIME='$(FUZZTIME)' scripts/fuzz
