# The two commands are `make run` and `make test`; both install what they need.
SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

GOBIN := $(CURDIR)/.tools
LINT  := $(GOBIN)/golangci-lint-2.15.0
FUMPT := $(GOBIN)/gofumpt-0.12.0
DEADCODE := $(GOBIN)/deadcode-0.52.0
KUSTOMIZE   := $(GOBIN)/kustomize-5.8.1
KUBECONFORM := $(GOBIN)/kubeconform-0.8.0
SCHEMAS     := $(GOBIN)/kubernetes-1.37.0
SCHEMATHESIS := $(GOBIN)/schemathesis-4.32.5

NPM   := contracts/node_modules/.package-lock.json
CLIENTS := serving/clients/node_modules/.package-lock.json
JARS  := docker/kafka/libs/.stamp
STREAMS := bin/streams/.stamp

.PHONY: help run build test test-fast race soak soak-short days payments alerts manifests check lint fmt contracts contracts-check fuzz fuzz-short schemathesis simulate simulate-same judge pools bench bench-growth bench-streams microbench deps clean walks

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t18

run: build ## the whole system in one process: chain, broker, Redis and every role
	@exec bin/lienstream up

build: $(NPM) ## the binary, bin/lienstream
	go build -o bin/lienstream ./cmd/lienstream

test: deps ## every test, on the real servers
	$(if $(FUZZ),@.ci/beside ".ci/fuzz $(FUZZ)" )go test -p $$(($$(nproc) + 1)) -timeout 15m $$(go list ./... | grep -v /cmd/lienstream/system)
	LIENSTREAM_SOAK_FOR=2m go test -timeout 30m ./cmd/lienstream/system/... # alone: it measures for how long reads fail

test-fast: $(NPM) ## tests that need no chain, broker or browser, of the packages that a change has touched
	go test -short -vet=off -p 8 $$(go list ./... | grep -v /cmd/lienstream/system)

race: deps ## every test but the system's under the race detector, package by package
	@failed=; for p in $$(go list ./... | grep -v /cmd/lienstream/system); do nice go test -race -timeout 20m $$p || failed="$$failed $$p"; done; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

check: FUZZ = 20s
check: lint contracts-check manifests test ## what CI runs; every fuzz target runs for 20 s beside the tests of packages, which mostly wait

lint: $(LINT) $(FUMPT) $(DEADCODE) ## formatting, linters, a tidy go.mod, imports that must run one way, no code without a caller
	@test -z "$$($(FUMPT) -l $$(git ls-files '*.go'))" || { $(FUMPT) -d $$(git ls-files '*.go'); exit 1; }
	@long=$$(git ls-files '*.go' | grep -vE '_(test|gen)\.go$$' | xargs wc -l | awk '$$1 > 400 && $$2 != "total"'); test -z "$$long" || { echo "over 400 lines: $$long"; exit 1; }
	@test $$(wc -w <README.md) -le 700 || { echo "README.md has more than 700 words"; exit 1; }
	go mod verify
	go mod tidy -diff
	$(LINT) run ./...
	@.ci/dead $(DEADCODE)
	@.ci/subjects
	@.ci/family >/dev/null || { .ci/family; exit 1; }
	@for patch in .ci/walks/*.patch; do git apply --check $$patch || exit 1; done

walks: deps ## how many files a new field and a new service take, built and tested on a copy
	.ci/walk

fmt: $(FUMPT) ## format the Go sources
	$(FUMPT) -w $$(git ls-files '*.go')

contracts: $(NPM) ## rebuild the contracts' ABI and bytecode, contracts/out
	cd contracts && node build.mjs

contracts-check: $(NPM)
	cd contracts && node build.mjs --check

soak: deps ## a hundred kills at random, outages of a minute, a fleet for 15 minutes; LIENSTREAM_SEED repeats a run
	LIENSTREAM_SOAK=1 LIENSTREAM_KILLS=100 go test -count=1 -timeout 60m -v -run 'TestCrashAnywhere|TestTwoOfEach|TestDependenciesAway|TestLyingNode|TestBrokerLost' ./cmd/lienstream/system
	LIENSTREAM_SOAK=1 go test -count=1 -run 'TestApacheCluster|TestEpochsRunOut' ./topics/broker/brokertest ./topics/kafka
	LIENSTREAM_SOAK_FOR=15m go test -count=1 -timeout 60m -v -run '^TestSoak$$' ./cmd/lienstream/system

soak-short: deps ## two minutes of the soak's fleet: three brokers, three processor nodes, two ingesters, two serving nodes
	LIENSTREAM_SOAK_FOR=2m go test -count=1 -timeout 20m -v -run '^TestSoak$$' ./cmd/lienstream/system

days: deps ## how much memory and disk `make run` takes, at speed: BLOCKS=80000, some twenty minutes
	LIENSTREAM_BLOCKS=$(or $(BLOCKS),80000) go test -count=1 -timeout 120m -v -run '^TestDays$$' ./cmd/lienstream/system

payments: deps ## every charged payment has a ticket, under 1,000 random kills and lies on kfake, and 100 on Apache Kafka: LIENSTREAM_SEED
	LIENSTREAM_SCHEDULES=1000 go test -count=1 -timeout 60m -parallel 12 -v -run '^TestKills$$/kfake' ./serving/support
	LIENSTREAM_SCHEDULES=100 go test -count=1 -timeout 60m -parallel 12 -v -run '^TestKills$$/apache' ./serving/support

alerts: deps ## each alert arrives, once if nobody is killed while sending it, through 250 kills on kfake and on Apache Kafka: LIENSTREAM_SEED
	LIENSTREAM_KILLS=250 go test -count=1 -timeout 60m -v -run '^TestKills$$' ./processors/notifier

# Exactly what a seed says, on Go's runtime without its own dice (overlay.sh); EXACT= builds on the runtime as it is.
EXACT ?= 1
# It has no C: a call of it ends whenever it does.
SIMULATE = $(if $(EXACT),CGO_ENABLED=0 GOEXPERIMENT=norandomizedheapbase64 )go test -c -vet=off $(if $(EXACT),-tags exact -overlay $(GOBIN)/overlay/overlay.json -modfile $(GOBIN)/overlay/go.mod )-o bin/simulate ./cmd/lienstream/simulation
SEEDS = GOMAXPROCS=1 GOGC=400 GODEBUG=adaptivestackstart=1 $(CURDIR)/bin/simulate -test.v -test.timeout 0 -test.run '^TestFreshSeeds$$' -sim.faults '$(FAULTS)' -sim.oracle $$oracle
# A build's oracle is computed once.
ORACLE = oracle=$(CURDIR)/bin/oracle-$$(sha256sum $(CURDIR)/bin/simulate | cut -c1-16); find $(CURDIR)/bin -name 'oracle-*' ! -path "$$oracle" -delete

simulate: $(NPM) ## the whole system in virtual time, under faults: MINUTES=1 SEED= RUNS= STORY=1 FAULTS=; a process a core
	$(if $(EXACT),@cmd/lienstream/simulation/overlay.sh $(GOBIN)/overlay)
	$(SIMULATE)
	@cd cmd/lienstream/simulation && seed=$${SEED:-$$(date +%s000)}; failed=0; pids=; $(ORACLE); \
	for core in $$(seq $(if $(or $(RUNS),$(STORY)),1,$$(nproc))); do \
	  $(SEEDS) -sim.seed $$((seed + (core - 1) * 1000000)) -sim.time $(or $(MINUTES),1)m $(if $(RUNS),-sim.runs $(RUNS)) $(if $(STORY),-sim.story) & pids="$$pids $$!"; \
	done; for pid in $$pids; do wait $$pid || failed=1; done; exit $$failed

simulate-same: $(NPM) ## whether a seed decides a run: compares all writes of TIMES=50 runs of SEED=20017, each in its own process, after AFTER=0 other seeds; WIRE= a file for each
	@cmd/lienstream/simulation/overlay.sh $(GOBIN)/overlay
	$(SIMULATE)
	@cd cmd/lienstream/simulation && $(ORACLE); [ -s $$oracle ] || $(SEEDS) -sim.runs 1 -sim.calm >/dev/null; seed=$(or $(SEED),20017); \
	for i in $$(seq $(or $(TIMES),50)); do \
	  $(SEEDS) -sim.seed $$((seed - $(or $(AFTER),0))) -sim.runs $$(($(or $(AFTER),0) + 1)) $(if $(WIRE),-sim.wire $(abspath $(WIRE)).$$i) | grep -o "seed $$seed: trace [0-9a-f]*"; \
	done | sort | uniq -c | tee /dev/stderr | awk 'END { exit NR != 1 }'

judge: $(NPM) ## whether the simulation finds faults that are put into the code: ONLY=name RUNS_EACH= SECONDS_EACH=120
	cmd/lienstream/simulation/judge.sh

manifests: $(KUSTOMIZE) $(KUBECONFORM) $(SCHEMAS) ## k8s/ against Kubernetes' schemas; with docker/ against the program's flags
	$(KUSTOMIZE) build k8s | $(KUBECONFORM) -strict -summary -schema-location '$(SCHEMAS)/{{.ResourceKind}}{{.KindSuffix}}.json'
	go test -count=1 ./k8s

fuzz: $(NPM) ## every fuzz target for 20 s, guided by coverage: some ten minutes
	@.ci/fuzz 20s -fuzz=.

fuzz-short: $(NPM) ## every fuzz target for 4 s
	@.ci/fuzz 4s

schemathesis: deps ## 10,000 requests made from the descriptions of the agent API and of the valuation service
	LIENSTREAM_SCHEMATHESIS=10000 go test -count=1 -timeout 60m -v -run TestNothingUndescribed ./serving/agent ./serving/valuation

pools: $(NPM) ## quotes, swaps and positions of 2,000 random pools against Uniswap's contracts, to the wei: LIENSTREAM_POOLS, LIENSTREAM_SEED
	LIENSTREAM_POOLS=$(or $(LIENSTREAM_POOLS),2000) go test -count=1 -timeout 60m -v -run '^TestAgainstUniswap$$' ./contracts

bench: deps build ## the figures of the pipeline, beside their references: a table, and JSON
	go build -o bin/bench ./cmd/lienstream/bench
	bin/bench $(BENCH)

bench-growth: deps build ## how it grows: DEALS=100000,1000000,10000000 of them, some 30 minutes; then bench at 2 million logs, and at 1, 4 and 16 partitions
	go build -o bin/bench ./cmd/lienstream/bench
	bin/bench -only growth -runs 1 $(if $(DEALS),-deals $(DEALS)) -json bin/bench-deals.json
	for p in 1 4 16; do bin/bench -partitions $$p -json bin/bench-$$p.json || exit 1; done
	bin/bench -runs 1 -logs 2000000 -json bin/bench-2m.json

bench-streams: deps build $(STREAMS) ## the processors beside Kafka Streams on one raw topic: LOGS=2000000 RUNS=3, some 20 minutes
	go build -o bin/bench ./cmd/lienstream/bench
	bin/bench -only streams -json bin/bench-streams.json -logs $(or $(LOGS),2000000) -runs $(or $(RUNS),3)

microbench: deps ## every benchmark of a package
	go test -run '^$$' -bench . -benchmem ./...

deps: $(NPM) $(CLIENTS) $(JARS) $(SCHEMATHESIS) ## what the tests need: npm packages, Apache Kafka's jars, redis-server, Java, Chromium, jq, schemathesis
	@.ci/deps java redis chromium jq patch

clean: ## remove what was built, downloaded or stored here
	rm -rf bin data .tools contracts/node_modules docker/kafka/libs

$(CLIENTS): serving/clients/package-lock.json
	@.ci/deps node
	cd serving/clients && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(NPM): contracts/package-lock.json
	@.ci/deps node
	cd contracts && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(JARS): docker/kafka/pom.xml
	@.ci/deps java maven
	mvn -q -B -f docker/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime
	@touch $@

$(STREAMS): cmd/lienstream/bench/streams/pom.xml $(wildcard cmd/lienstream/bench/streams/src/main/java/com/lienstream/bench/*.java)
	@.ci/deps java maven
	mvn -q -B -f cmd/lienstream/bench/streams/pom.xml compile dependency:copy-dependencies
	@touch $@

$(SCHEMATHESIS):
	@.ci/deps pip
	@rm -rf $@.tmp
	python3 -m pip install -q --root-user-action ignore --target $@.tmp schemathesis==4.32.5
	@mv $@.tmp $@

$(LINT):
	GOBIN=$(GOBIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(GOBIN)/golangci-lint $@

$(FUMPT):
	GOBIN=$(GOBIN) go install mvdan.cc/gofumpt@v0.12.0
	@mv $(GOBIN)/gofumpt $@

$(DEADCODE):
	GOBIN=$(GOBIN) go install golang.org/x/tools/cmd/deadcode@v0.52.0
	@mv $(GOBIN)/deadcode $@

$(KUSTOMIZE):
	GOBIN=$(GOBIN) go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
	@mv $(GOBIN)/kustomize $@

$(KUBECONFORM):
	GOBIN=$(GOBIN) go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
	@mv $(GOBIN)/kubeconform $@

# The schemas come in a Python package. They name each other by where they would be on the web; kubeconform
# is to look in the same folder.
$(SCHEMAS):
	@.ci/deps pip
	@rm -rf $@.tmp
	python3 -m pip download -q --no-deps -d $@.tmp kubernetes-validate==1.37.0
	cd $@.tmp && python3 -m zipfile -e *.whl . && mv kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict strict
	sed -i -e 's|"$$id": "https://kubernetes.io/api/|"$$comment": "|' -e 's|"/api/_definitions.json#|"_definitions.json#|' $@.tmp/strict/*.json
	@mv $@.tmp/strict $@ && rm -rf $@.tmp
