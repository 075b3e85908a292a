//go:build e2e && linux && amd64 && !race

package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
	"petgate/shared/testkit/steps"
)

var update = flag.Bool("update", false,
	"record what a request costs, as is done at a release, instead of comparing with the record")

const (
	recordPath    = "testdata/instructions.txt"
	recordCommand = "go test -tags e2e -run TestInstructions ./deploy/e2e -update"

	// instructionsGrowthMax is by how many percent a request may grow until the next release: small
	// additions add up.
	instructionsGrowthMax = 10.0

	instructionCounts = 2

	// Requests before the first count: they fill pools and buffers, which then seldom grow, and let
	// stacks grow.
	instructionWarmUps = 40

	functionsShown = 25
)

// What the gateway executes for a request: instructions, allocations and system calls. They are
// counted, not timed, so even small additions show on a busy machine. With -v, the test prints
// which functions execute them.
func TestInstructions(t *testing.T) {
	if config := os.Getenv(countedVariable); config != "" {
		runCounted(t, config)
		return
	}
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t)})
	admitted := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	usedUp := fleet.GetPets(f.NewTenant("initech", "--plan", "enterprise", "--minute", "1", "--day", "1").Token)
	rows := []struct {
		name    string
		config  countedConfig
		request string
		status  int
	}{
		{"plain", countedConfig{}, admitted, 200},
		{"quotas in Redis", countedConfig{Redis: testkit.StartRedis(t).Addr}, admitted, 200},
		{"access log", countedConfig{AccessLog: true}, admitted, 200},
		{"TLS", countedConfig{TLS: true}, admitted, 200},
		{"over its quota", countedConfig{}, usedUp, 429},
		{"1,000 operations", countedConfig{Operations: 1000}, strings.Replace(admitted, "/v1/pets", "/group999/7/part/a-name", 1), 200},
		{"without a key", countedConfig{}, "GET /v1/pets HTTP/1.1\r\nHost: x\r\n\r\n", 401},
	}
	path := must.Get[string](t)(os.Executable())
	recorded := readRecord(t)
	next := &bytes.Buffer{}
	fmt.Fprintf(next, "# Instructions, allocations and system calls of a request, written by: %s\n%s\n", recordCommand,
		platform())
	for _, row := range rows {
		row.config.Database = f.Database
		cost := must.Get[steps.Cost](t)(countInstructions(t, row.config, row.request, row.status).Cost(path))
		fmt.Fprintf(next, "%d %d %d %s\n", cost.Steps, cost.Allocations, cost.SystemCalls, row.name)
		t.Logf("figure: %s: %d instructions, %d allocations and %d system calls a request", row.name, cost.Steps,
			cost.Allocations, cost.SystemCalls)
		for _, share := range cost.Functions[:min(functionsShown, len(cost.Functions))] {
			t.Logf("%7d %s", share.Steps, share.Function)
		}
		was, judged := recorded[row.name]
		most := int(float64(was.Steps) * (1 + instructionsGrowthMax/100))
		if judged && !*update &&
			(cost.Steps > most || cost.Allocations > was.Allocations || cost.SystemCalls > was.SystemCalls) {
			t.Errorf(
				"%s: more than at the last release: want at most %d instructions, %d allocations and %d system calls. With -v, the test prints the functions",
				row.name,
				most,
				was.Allocations,
				was.SystemCalls,
			)
		}
	}
	if *update && !t.Failed() {
		must.Do(t, os.WriteFile(recordPath, next.Bytes(), 0o644))
	}
}

// platform is what the counts depend on, besides the code of this repository. The version of Go
// includes experiments (GOEXPERIMENT).
func platform() string {
	name := fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if build, known := debug.ReadBuildInfo(); known {
		for _, s := range build.Settings {
			if s.Key == "GOAMD64" && s.Value != "v1" { // v1 is the default
				name += " GOAMD64=" + s.Value
			}
		}
	}
	return name
}

// readRecord returns the recorded costs by row, or nil if they are for another platform.
func readRecord(t *testing.T) map[string]steps.Cost {
	t.Helper()
	text, err := os.ReadFile(recordPath)
	if err != nil && !*update {
		t.Fatal(err)
	}
	recorded := map[string]steps.Cost{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		var cost steps.Cost
		switch n, _ := fmt.Sscan(line, &cost.Steps, &cost.Allocations, &cost.SystemCalls); {
		case strings.HasPrefix(line, "#"):
		case n == 3:
			recorded[strings.SplitN(line, " ", 4)[3]] = cost
		case line != platform():
			t.Logf("figure: instructions are not judged: they are recorded for %s, and this is %s; record them: %s",
				line, platform(), recordCommand)
			return nil
		}
	}
	return recorded
}

// countInstructions returns the least of several counts. A count is larger if a map grows, or
// random numbers are made in advance.
func countInstructions(t *testing.T, cfg countedConfig, request string, status int) (least steps.Profile) {
	t.Helper()
	g := startCounted(t, cfg)
	client := g.client()
	defer client.Close()
	ask := func(want int) {
		if got := client.Must(t, request); got.Status != want {
			t.Fatalf("%v, want %d", got, want)
		}
	}
	if status == 429 {
		ask(200) // uses up the quota
	}
	for range instructionWarmUps {
		ask(status)
	}
	for range instructionCounts {
		if profile := g.Count(t, func() { ask(status) }); least == nil || profile.Steps() < least.Steps() {
			least = profile
		}
	}
	return least
}
