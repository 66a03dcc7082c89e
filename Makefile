# The two commands are `make run` and `make test`; both install what they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GOBIN := $(CURDIR)/.tools
LINT  := $(GOBIN)/golangci-lint-2.15.0
FUMPT := $(GOBIN)/gofumpt-0.12.0

NPM   := contracts/node_modules/.package-lock.json
JARS  := docker/kafka/libs/.stamp

.PHONY: help run build test soak manifests check lint fmt contracts contracts-check fuzz bench bench-growth microbench deps clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t18

run: build ## the whole system in one process: chain, broker, Redis and every role
	@exec bin/lienstream up

build: $(NPM) ## the binary, bin/lienstream
	go build -o bin/lienstream .

test: deps ## every test, on the real servers
	go test -timeout 15m $$(go list ./... | grep -v /serving/system)
	go test -timeout 15m ./serving/system/... # alone: it measures for how long reads fail

check: lint contracts-check test ## what CI runs

lint: $(LINT) $(FUMPT) ## formatting, linters, imports that must run one way
	@test -z "$$($(FUMPT) -l $$(git ls-files '*.go'))" || { $(FUMPT) -d $$(git ls-files '*.go'); exit 1; }
	go mod verify
	$(LINT) run ./...

fmt: $(FUMPT) ## format the Go sources
	$(FUMPT) -w $$(git ls-files '*.go')

contracts: $(NPM) ## rebuild the contracts' ABI and bytecode, contracts/out
	cd contracts && node build.mjs

contracts-check: $(NPM)
	cd contracts && node build.mjs --check

soak: deps ## a hundred kills at random and outages of a minute; LIENSTREAM_SEED repeats a run
	LIENSTREAM_SOAK=1 LIENSTREAM_KILLS=100 go test -count=1 -timeout 60m -v -run 'TestCrashAnywhere|TestTwoOfEach|TestDependenciesAway|TestLyingNode' ./serving/system

manifests: ## k8s/ and docker/ against the Kubernetes API's types and the program's flags
	go test -count=1 ./k8s

fuzz: ## every fuzz test for half a minute
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz); do go test -run '^$$' -fuzz "^$$f\$$" -fuzztime 30s $$p || exit 1; done; done

bench: deps build ## the figures of the pipeline, beside their references: a table, and JSON
	go build -o bin/bench ./serving/system/bench
	bin/bench $(BENCH)

bench-growth: deps build ## the same at 2 million logs, and at 1, 4 and 16 partitions
	go build -o bin/bench ./serving/system/bench
	for p in 1 4 16; do bin/bench -only rebuild,reads,restart -runs 1 -partitions $$p -json bin/bench-$$p.json || exit 1; done
	bin/bench -only rebuild,reads,restart -runs 1 -logs 2000000 -json bin/bench-2m.json

microbench: deps ## every benchmark of a package
	go test -run '^$$' -bench . -benchmem ./...

deps: $(NPM) $(JARS) ## what the tests need: npm packages, Apache Kafka's jars, redis-server, Java, Chromium
	@.ci/deps java redis chromium

clean: ## remove what was built, downloaded or stored here
	rm -rf bin data .tools contracts/node_modules docker/kafka/libs

$(NPM): contracts/package-lock.json
	@.ci/deps node
	cd contracts && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(JARS): docker/kafka/pom.xml
	@.ci/deps java maven
	mvn -q -B -f docker/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime
	@touch $@

$(LINT):
	GOBIN=$(GOBIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(GOBIN)/golangci-lint $@

$(FUMPT):
	GOBIN=$(GOBIN) go install mvdan.cc/gofumpt@v0.12.0
	@mv $(GOBIN)/gofumpt $@
