# Works from any directory (make -C or make -f), without git, and with GOFLAGS empty.
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
IN := cd "$(ROOT)" &&

# What a build adds to the version in shared/service/version.go: nothing for the tag of the release, and nothing without git.
export COMMIT ?= $(shell git -C "$(ROOT)" describe --tags --always --dirty 2>/dev/null)

# deploy/docker/Dockerfile has the same command; a test compares the two.
BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X petgate/shared/service.commit=$$COMMIT" -o bin/ ./gateway ./petsvc ./keyadmin

FUZZTIME ?= 30s
SEEDS ?= 1 2 3 4 5 6 7 8 9 10
DURATION ?= 2m

.PHONY: help run build dist test e2e soak lint fuzz bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' "$(ROOT)Makefile"

# Not by "go run": after Ctrl-C, it ends with 1 whatever the program's exit code was.
run: ## run the whole product in one process, on 127.0.0.1:8080 and :9090; ARGS="--listen 127.0.0.1:9000" passes flags
	@$(IN) { test -e bin/local || echo "Compiling: the first time, this takes one to three minutes."; } && \
		go build -buildvcs=false -ldflags "-X petgate/shared/service.commit=$$COMMIT" -o bin/local ./deploy/local && exec bin/local $(ARGS)

build: ## build bin/gateway, bin/petsvc and bin/keyadmin, static and stamped with the commit
	$(IN) $(BUILD)

dist: ## write archives, packages for Debian and Fedora, bills of materials and the sums to dist/
	$(IN) SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" go run -buildvcs=false ./deploy/dist

# Packages that the race detector leaves out, because it slows them three to six times and cannot find a race of ours in them: SQLite
# and its libc, which are C translated to Go. A package that uses generic types of the standard library cannot be left out: the linker
# may take its copy of them, which the detector does not see, for all.
UNRACED = modernc.org/sqlite/lib modernc.org/libc/...

# The programs are built once, not by each test that starts one. "make lint" runs go vet, so the tests need not. Many of the tests
# wait most of the time, so there may be more packages and more parallel tests than processors. The test processes are short-lived:
# GOGC lets them collect garbage less often. Packages run in the order given: the longest begin first, so that none of them runs alone
# at the end.
test: ## run the tests with the race detector, against real servers
	@$(IN) PETGATE_BIN="$(ROOT)bin" deploy/services.sh sh -c ' \
		$(BUILD) && exec env GOGC=400 go test -race $(UNRACED:%=-gcflags=%=-race=false) \
			-vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) + 2)) -parallel 4 -timeout 40m ./keyadmin ./deploy/e2e ./gateway/edge ./gateway/directory ./...'

# Only Linux has systemd.
e2e: ## run the tests in full size with built programs, and print a line for each figure
	@$(IN) TEST_PROGRAMS="haproxy nginx chromium nodejs esbuild prometheus sqlite3 $$(uname | sed -n s/Linux/systemd/p)" PETGATE_BIN="$(ROOT)bin" \
		deploy/services.sh sh -c '$(BUILD) && exec go run ./shared/testkit/figures'

# One test, which reports its progress. A seed repeats the order of the faults: make soak SEEDS=7
soak: ## break the built programs and servers at random for DURATION (2m) with each of SEEDS (1 to 10), and judge what clients see
	@$(IN) PETGATE_BIN="$(ROOT)bin" deploy/services.sh sh -c ' \
		$(BUILD) && exec env SEEDS="$(SEEDS)" DURATION=$(DURATION) go test -tags e2e -count=1 -v -timeout 0 -run "^TestRandomFaults$$" ./deploy/soak'

# Files that the tag e2e excludes are seen by vet for darwin.
lint: ## check format, vet, staticcheck, generated code, modules and scripts
	@$(IN) unformatted=$$(go tool gofumpt -l .) && \
		if [ -n "$$unformatted" ]; then echo "run go tool gofumpt -w on:" $$unformatted >&2; exit 1; fi
	@$(IN) go vet -tags e2e ./...
	@$(IN) GOOS=darwin GOARCH=arm64 go vet ./...
	@$(IN) go tool staticcheck -tags e2e ./...
	@$(IN) cd shared/api/clients/go && go tool oapi-codegen -config oapi-codegen.yaml ../../openapi.yaml | cmp - types.gen.go || \
		{ echo "run go generate ./shared/api/clients/go" >&2; exit 1; }
	@$(IN) go mod verify
	@$(IN) sh -n deploy/services.sh && sh -n deploy/docker/upgrade && sh -n deploy/e2e/testdata/engine && sh -n shared/api/clients/typescript/generate && bash -n .ci/run

fuzz: ## run every fuzz target for FUZZTIME (30s)
	@$(IN) grep -rno --include="*_test.go" "^func Fuzz[A-Za-z0-9_]*" . | while IFS=: read -r file _ target; do \
		echo "$${target#func } in $$(dirname "$$file") for $(FUZZTIME)"; \
		go test -run "^$$" -fuzz "^$${target#func }$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null || exit 1; \
	done

bench: ## measure the product under load and write the tables of docs/performance.md: about 10 minutes
	@$(IN) PETGATE_BIN="$(ROOT)bin" deploy/services.sh sh -c '$(BUILD) && exec bench/run'
