# leat: build, check, test. `make help` lists the targets. Go 1.26 or newer, gcc and g++ (for DuckDB).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# DuckDB's Arrow interface is behind a build tag: every go command here has it.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -tags=duckdb_arrow)

PKG      ?= ./...
SEEDS    ?= 10000
FUZZTIME ?= 20s

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := .dev/bin/golangci-lint-$(GOLANGCI_VERSION)

BASE  ?= HEAD
HEAD  ?=
BENCH ?= .

BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da
BENCHSTAT         := .dev/bin/benchstat-$(BENCHSTAT_VERSION)

## build: bin/leat, with every connector
.PHONY: build
build:
	go build -trimpath -o bin/leat ./cmd/leat

## test: all tests, against real servers that are installed, started and stopped
.PHONY: test
test:
	dev/services install
	dev/services run -- dev/test $(PKG)

## test-short: the tests that need no server and little time
.PHONY: test-short
test-short:
	dev/test -short $(PKG)

## check: everything that can be said without running a test
.PHONY: check
check: gates lint build-nocgo generate-clean

## gates: the part of check that needs no tool but Go: gofmt, vet, clauses
.PHONY: gates
gates:
	@unformatted=$$(gofmt -l .); \
	if [[ -n $$unformatted ]]; then echo "gofmt these files:" $$unformatted >&2; exit 1; fi
	go vet ./...
	go run ./dev/clauses -quiet -strict

## lint: golangci-lint, with the formatters and the import rules of .golangci.yml
.PHONY: lint
lint: $(GOLANGCI)
	$(GOLANGCI) fmt --diff
	$(GOLANGCI) run $(PKG)

## fmt: format all Go files
.PHONY: fmt
fmt: $(GOLANGCI)
	$(GOLANGCI) fmt

$(GOLANGCI):
	GOFLAGS= CGO_ENABLED=0 GOBIN=$(CURDIR)/.dev/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .dev/bin/golangci-lint $@

.PHONY: build-nocgo
build-nocgo: # without cgo all of leat but DuckDB builds
	CGO_ENABLED=0 go build ./...

## generate: write the generated files: docs, schemas
.PHONY: generate
generate:
	go generate ./...

.PHONY: generate-clean
generate-clean: # generated files are as their sources say
	@state() { git diff; git ls-files -z --others --exclude-standard | xargs -0 -r sha256sum; }; \
	before=$$(state); $(MAKE) --no-print-directory generate; after=$$(state); \
	diff <(echo "$$before") <(echo "$$after") || { echo "make generate changed files: commit them" >&2; exit 1; }

## clauses: which promise of docs/clauses.md which tests prove, and what is missing
.PHONY: clauses
clauses:
	go run ./dev/clauses

## mutants: the code is broken on purpose, in many places one at a time, and tests have to notice; ONLY=regexp for some
.PHONY: mutants
mutants:
	dev/services install
	dev/services run -- go run ./dev/mutants $(if $(ONLY),-only '$(ONLY)')

## mutants-quick: those that need no server and little time
.PHONY: mutants-quick
mutants-quick:
	go run ./dev/mutants -quick

## sim: the engine's simulation, SEEDS=10000 runs of it
.PHONY: sim
sim:
	LEAT_SIM_SEEDS=$(SEEDS) LEAT_TEST_SEEDS=$(SEEDS) go test -run "^Test(Simulation|Follow|Parts|Shards|Records|Model)$$" -count=1 -timeout=0 ./internal/engine ./internal/backfill

## fuzz: every fuzz target for FUZZTIME=20s
.PHONY: fuzz
fuzz:
	dev/fuzz $(FUZZTIME)

## bench-micro: every micro-benchmark, without tests; PKG=./format/csv BENCH=regexp for some
.PHONY: bench-micro
bench-micro:
	dev/services run -- go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

## bench-diff: the benchmarks of two commits in turns, compared: BASE=rev HEAD=rev (or the files as they are) PKG=./... BENCH=regexp
.PHONY: bench-diff
bench-diff: $(BENCHSTAT)
	BENCHSTAT=$(CURDIR)/$(BENCHSTAT) dev/bench-diff '$(BASE)' '$(HEAD)' '$(BENCH)' $(PKG)

$(BENCHSTAT):
	GOFLAGS= CGO_ENABLED=0 GOBIN=$(CURDIR)/.dev/bin go install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
	mv .dev/bin/benchstat $@

## allocs: no hot path allocates more for each row than dev/allocs/recorded.txt says
.PHONY: allocs
allocs:
	go run ./dev/allocs

.PHONY: allocs-record
allocs-record: # write dev/allocs/recorded.txt anew
	go run ./dev/allocs -record

## bench: whole jobs beside limits and other tools; writes docs/PERFORMANCE.md. JOB=name for some, JOB=all for the long ones too, ROUNDS=n
.PHONY: bench
bench: bench-build
	dev/services install
	dev/services run -- bin/bench $(if $(JOB),-job '$(JOB)') $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(SCALE),-scale $(SCALE)) $(if $(MOST),-most $(MOST))

## bench-page: docs/PERFORMANCE.md anew, of the results that are there
.PHONY: bench-page
bench-page: bench-build
	bin/bench -page-only

## bench-smoke: every job of bench once, tiny, outputs compared; writes nothing
.PHONY: bench-smoke
bench-smoke: bench-build
	dev/services install
	dev/services run -- bin/bench -smoke

.PHONY: bench-build
bench-build: build
	go build -o bin/ ./bench ./bench/meter

## services: install and start the test servers, and leave them running
.PHONY: services
services:
	dev/services install
	dev/services start
	@echo 'For tests in this shell: eval "$$(dev/services env)"; dev/services stop ends them.'

## clean: delete what was built
.PHONY: clean
clean:
	rm -rf bin

## help: this list
.PHONY: help
help:
	@sed -n 's/^## \([^:]*\): /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'
