//go:build e2e && linux && amd64 && !race

package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/steps"
)

var update = flag.Bool("update", false, "record the instructions of a request instead of comparing with those that are recorded")

const (
	recordPath    = "testdata/instructions.txt"
	recordCommand = "go test -tags e2e -run TestInstructions ./deploy/e2e -update"

	// How far a count may be from the recorded one, in percent. The least of instructionCounts counts differs by less than a quarter
	// of that between two runs, because Go's maps and its generator of random numbers begin at random.
	instructionsChangeMax = 1.0
	instructionCounts     = 3

	// Requests before the first count: they fill pools and buffers, and let stacks grow.
	instructionWarmUps = 8

	functionsShown = 25
)

// What the gateway executes for a request, in instructions. They are counted, not timed, so even small additions show on a busy
// machine. With -v, the test prints which functions execute them.
func TestInstructions(t *testing.T) {
	if config := os.Getenv(countedVariable); config != "" {
		runCounted(t, config)
		return
	}
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t)})
	admitted := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	usedUp := fleet.GetPets(f.NewTenant("initech", "--plan", "enterprise", "--minute", "1", "--day", "1").Token)
	fromScript := strings.Replace(admitted, "\r\n", "\r\nOrigin: https://shop.example\r\n", 1)
	rows := []struct {
		name    string
		config  countedConfig
		request string
		status  int
	}{
		{"plain", countedConfig{}, admitted, 200},
		{"access log", countedConfig{AccessLog: true}, admitted, 200},
		{"traces at ratio 0", countedConfig{Traces: "http://127.0.0.1:1"}, admitted, 200},
		{"CORS", countedConfig{CORSOrigins: []string{"*"}}, fromScript, 200},
		{"TLS", countedConfig{TLS: true}, admitted, 200},
		{"over its quota", countedConfig{}, usedUp, 429},
		{"without a key", countedConfig{}, "GET /v1/pets HTTP/1.1\r\nHost: x\r\n\r\n", 401},
	}
	recorded := readRecord(t)
	next := &bytes.Buffer{}
	fmt.Fprintf(next, "# Instructions of a request, written by: %s\n%s\n", recordCommand, platform())
	for _, row := range rows {
		row.config.Database = f.Database
		profile := countInstructions(t, row.config, row.request, row.status)
		n := profile.Steps()
		fmt.Fprintf(next, "%d %s\n", n, row.name)
		was := recorded[row.name]
		if was == 0 {
			t.Logf("figure: %s: %d instructions a request", row.name, n)
		} else {
			t.Logf("figure: %s: %d instructions a request, %+.2f %%", row.name, n, percent(n, was))
		}
		logFunctions(t, profile)
		if !*update && recorded != nil {
			judgeInstructions(t, row.name, n, was)
		}
	}
	if *update {
		if err := os.WriteFile(recordPath, next.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func percent(n, was int) float64 { return 100 * (float64(n)/float64(was) - 1) }

func judgeInstructions(t *testing.T, name string, n, was int) {
	t.Helper()
	switch {
	case was == 0:
		t.Errorf("%s: nothing is recorded; record it: %s", name, recordCommand)
	case percent(n, was) > instructionsChangeMax:
		t.Errorf("%s: %d instructions a request, %d are recorded: a request does more than before. go test -v shows the functions. If it must do more, record it: %s",
			name, n, was, recordCommand)
	case percent(n, was) < -instructionsChangeMax:
		t.Errorf("%s: %d instructions a request, %d are recorded: a request does less than before. Record it, so that it stays: %s",
			name, n, was, recordCommand)
	}
}

// platform is what the counts depend on, besides the code of this repository.
func platform() string {
	return fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// readRecord returns the recorded counts, or nil if they are for another platform.
func readRecord(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(recordPath)
	if err != nil && !*update {
		t.Fatal(err)
	}
	recorded := map[string]int{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		count, name, _ := strings.Cut(line, " ")
		n := 0
		switch _, err := fmt.Sscan(count, &n); {
		case strings.HasPrefix(line, "#"):
		case err == nil:
			recorded[name] = n
		case line != platform():
			t.Logf("figure: instructions are not judged: they are recorded for %s, and this is %s; record them: %s", line, platform(), recordCommand)
			return nil
		}
	}
	return recorded
}

// countInstructions returns the least of several counts. A count is larger if a map grows, or random numbers are made in advance.
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

func logFunctions(t *testing.T, profile steps.Profile) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all, err := profile.Functions(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range all[:min(functionsShown, len(all))] {
		t.Logf("%7d %s", share.Steps, share.Function)
	}
}
