package docker_test

import (
	stdcmp "cmp"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"petgate/gateway/app"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

// program returns which of our programs a service runs, by its image. It is empty for other
// programs.
func program(image string) string {
	name, ours := strings.CutPrefix(image, "petgate-")
	if !ours {
		return ""
	}
	return name
}

// compose is the part of docker-compose.yml that the tests look at.
type compose struct {
	Services map[string]struct {
		Image       string
		Build       *struct{ Context, Dockerfile, Target string }
		Environment map[string]string
		Ports       []string
		Command     []string
		Entrypoint  []string
		Volumes     []string
		Healthcheck *struct{ Test []string }
		GracePeriod string                                `yaml:"stop_grace_period"`
		PullPolicy  string                                `yaml:"pull_policy"`
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Profiles    []string
		Networks    map[string]map[string]string
	}
	Volumes map[string]any
}

func load(t *testing.T) compose {
	t.Helper()
	var c compose
	must.Do(t, yaml.Unmarshal([]byte(read(t, "../../docker-compose.yml")), &c))
	if len(c.Services) < 8 {
		t.Fatalf("docker-compose.yml has %d services", len(c.Services))
	}
	return c
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(path)))
}

var (
	named      = regexp.MustCompile(`\$([A-Z][A-Z0-9_]+)`)
	secretName = regexp.MustCompile(`(?m)^  ([A-Z][A-Z0-9_]+)$`)
)

// declared returns the environment names that a program's settings declare: its help is written
// from them.
func declared(t *testing.T, program string) []string {
	t.Helper()
	p := testkit.Start(t, testkit.Build(t, "petgate/"+program), nil, "--help")
	if code := p.ExitCode(t); code != 0 {
		t.Fatalf("%s --help: exit code %d\n%s", program, code, p.Stderr)
	}
	var names []string
	for _, match := range named.FindAllStringSubmatch(p.Stdout.String(), -1) {
		names = append(names, match[1])
	}
	for _, match := range secretName.FindAllStringSubmatch(p.Stdout.String(), -1) {
		names = append(names, match[1], match[1]+"_FILE")
	}
	return names
}

func TestEveryEnvironmentNameIsDeclared(t *testing.T) {
	known := make(map[string][]string)
	for _, program := range []string{"gateway", "petsvc", "keyadmin"} {
		known[program] = declared(t, program)
		if !slices.Contains(known[program], "DATABASE_URL") {
			t.Errorf("%s --help does not name DATABASE_URL: %v", program, known[program])
		}
	}
	checked := 0
	for name, s := range load(t).Services {
		if program(s.Image) == "" {
			continue
		}
		for variable := range s.Environment {
			checked++
			if !slices.Contains(known[program(s.Image)], variable) {
				t.Errorf("%s sets %s, which %s does not declare", name, variable, program(s.Image))
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d names were checked", checked)
	}
}

// The images have no shell: each program asks itself.
func TestHealthChecksProbe(t *testing.T) {
	checked := 0
	for name, s := range load(t).Services {
		if s.Environment["GATEWAY_ADMIN_LISTEN"]+s.Environment["PETSVC_ADMIN_LISTEN"] == "" {
			continue
		}
		checked++
		if want := []string{"CMD", program(s.Image), "--probe"}; s.Healthcheck == nil ||
			!slices.Equal(s.Healthcheck.Test, want) {
			t.Errorf("%s has the health check %+v, want %v", name, s.Healthcheck, want)
		}
	}
	if checked != 5 {
		t.Errorf("%d programs are checked, want two gateways, the console and two pet services", checked)
	}
}

// A program that is killed before it has drained, by Docker or by systemd, cuts off requests.
func TestGracePeriods(t *testing.T) {
	var settings app.Config // all programs have the same defaults
	if code, done := service.Load(&settings, "gateway", "", nil, io.Discard, io.Discard); done {
		t.Fatalf("the default settings: exit code %d", code)
	}
	for name, end := range map[string]time.Duration{"gateway": app.SignOffMax, "petsvc": trace.CloseMax} {
		_, rest, _ := strings.Cut(read(t, "../systemd/petgate-"+name+".service"), "\nTimeoutStopSec=")
		seconds, _, _ := strings.Cut(rest, "\n")
		periods := []string{seconds + "s"}
		for _, s := range load(t).Services {
			if program(s.Image) == name {
				periods = append(periods, s.GracePeriod)
			}
		}
		for _, period := range periods {
			if given, err := time.ParseDuration(period); err != nil || given <= settings.DrainMax()+end {
				t.Errorf("%s is killed after %q (%v), and may need %v", name, period, err, settings.DrainMax()+end)
			}
		}
	}
}

// One service is public, if PUBLISH says so. The console has keyadmin's rights, and those that
// observe ask for no password: they are published on the loopback address.
func TestPublishedPorts(t *testing.T) {
	published, pinned := map[string][]string{}, regexp.MustCompile(`:v?\d+\.\d+\.\d+$`)
	services := load(t).Services
	for name, s := range services {
		if len(s.Ports) > 0 {
			published[name] = s.Ports
		}
		if isObserver(s.Profiles) && !pinned.MatchString(s.Image) {
			t.Errorf("%s has the image %s, which is not one version", name, s.Image)
		}
	}
	if diff := cmp.Diff(map[string][]string{
		"haproxy": {"${PUBLISH:-127.0.0.1}:${PORT:-8080}:8080"}, "console": {"127.0.0.1:${CONSOLE_PORT:-9093}:9090"},
		"prometheus": {"127.0.0.1:${PROMETHEUS_PORT:-9092}:9090"},
		"grafana":    {"127.0.0.1:${GRAFANA_PORT:-3000}:3000"}, "jaeger": {"127.0.0.1:${JAEGER_PORT:-16686}:16686"},
	}, published); diff != "" {
		t.Error(diff)
	}
	trusted := services["gateway-1"].Environment["GATEWAY_TRUSTED_PROXIES"]
	proxy := services["haproxy"].Networks["default"]["ipv4_address"]
	must.Equal(t, trusted, proxy+"/32", "the proxies that gateways believe")
	console := services["console"]
	if !strings.HasPrefix(console.Environment["GATEWAY_LISTEN"], "127.") ||
		!slices.Equal(console.Profiles, []string{"console"}) {
		t.Errorf("the console serves clients on %s, with the profiles %v", console.Environment["GATEWAY_LISTEN"],
			console.Profiles)
	}
}

func TestImagesAreBuiltByTheMakefilesLine(t *testing.T) {
	line := func(path, start string) string {
		for text := range strings.Lines(read(t, path)) {
			if at := strings.Index(text, "CGO_ENABLED=0 go build"); at >= 0 && strings.HasPrefix(text, start) {
				return strings.TrimSpace(strings.ReplaceAll(text[at:], "$$", "$"))
			}
		}
		t.Fatalf("%s has no go build line", path)
		return ""
	}
	if image, local := line("Dockerfile", "    "), line("../../Makefile", "BUILD = "); image != local {
		t.Errorf("the image is built by\n%s\nand make build does\n%s", image, local)
	}
	dockerfile := read(t, "Dockerfile")
	built := make(map[string]int)
	for name, s := range load(t).Services {
		if s.Build == nil {
			if program(s.Image) != "" && s.PullPolicy != "never" {
				t.Errorf("%s may pull %s from a registry", name, s.Image)
			}
			continue
		}
		built[s.Image]++
		if program(s.Image) != s.Build.Target || s.Build.Dockerfile != "deploy/docker/Dockerfile" ||
			s.Build.Context != "." ||
			!strings.Contains(dockerfile, " AS "+s.Build.Target+"\n") {
			t.Errorf("%s is built from %+v, which does not exist", name, *s.Build)
		}
	}
	for _, image := range []string{"petgate-gateway", "petgate-petsvc", "petgate-keyadmin"} {
		if built[image] != 1 { // if two services built it, the next `docker compose up` would replace one of them
			t.Errorf("%s is built by %d services", image, built[image])
		}
	}
	out, err := exec.Command("go", "list", "-deps", "petgate/gateway", "petgate/petsvc", "petgate/keyadmin").Output()
	must.Do(t, err)
	for line := range strings.Lines(string(out)) {
		if path, ours := strings.CutPrefix(strings.TrimSpace(line), "petgate/"); ours {
			if dir, _, _ := strings.Cut(path, "/"); !strings.Contains(dockerfile, "\nCOPY "+dir+" "+dir+"\n") {
				t.Errorf("the image is built without %s", dir)
			}
		}
	}
	if !strings.Contains(dockerfile, "\nFROM scratch AS base\n") ||
		!strings.Contains(dockerfile, "\nUSER 10001:10001\n") {
		t.Error("the images have more than the programs, or run as root")
	}
}

// With --wait, a service that runs once would count as failed when it ends, unless another service
// waits for it.
func TestOneShotsAreWaitedFor(t *testing.T) {
	services := load(t).Services
	for _, name := range []string{"secrets", "migrate", "roles"} {
		waited := false
		for _, s := range services {
			waited = waited || len(s.Profiles) == 0 && s.DependsOn[name].Condition == "service_completed_successfully"
		}
		if !waited {
			t.Errorf("no service waits for %s to complete", name)
		}
	}
}

func TestDataIsKept(t *testing.T) {
	c := load(t)
	redis := strings.Join(c.Services["redis"].Command, " ")
	for _, want := range []string{"appendonly yes", "maxmemory-policy noeviction"} {
		if !strings.Contains(redis, want) {
			t.Errorf("redis is not started with %s", want)
		}
	}
	for name, s := range c.Services {
		for _, mount := range s.Volumes {
			volume, _, _ := strings.Cut(mount, ":")
			if file, ok := strings.CutPrefix(volume, "./"); ok {
				if _, err := os.Stat("../../" + file); err != nil || !strings.HasSuffix(mount, ":ro") {
					t.Errorf("%s mounts %s: %v", name, mount, err)
				}
			} else if _, ok := c.Volumes[volume]; !ok {
				t.Errorf("%s mounts %s, which is no declared volume", name, volume)
			}
		}
		for variable, value := range s.Environment {
			if strings.HasSuffix(variable, "PASSWORD") || strings.HasSuffix(variable, "SECRET") ||
				strings.Contains(value, "@") {
				t.Errorf("%s publishes a secret: %s", name, variable)
			}
		}
	}
}

// An attacker who controls a service gets only the secrets of this service: it mounts a volume of
// its own, which has only the files that it reads. When the script that generates the secrets runs
// again, it gives each reader the same files.
func TestEachServiceSeesItsOwnSecrets(t *testing.T) {
	services, dir := load(t).Services, t.TempDir()
	for _, sub := range []string{
		"secrets", "readers/postgres", "readers/redis", "readers/gateway", "readers/petsvc", "readers/keyadmin",
		"readers/owner", "readers/console",
	} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	entrypoint := services["secrets"].Entrypoint
	script := strings.NewReplacer("$$", "$", " /secrets", " "+dir+"/secrets", " /readers", " "+dir+"/readers").Replace(
		entrypoint[2],
	)
	given, texts := map[string][]string{}, map[string]string{} // by reader, and by reader and file
	for range 2 {
		if out, err := exec.Command(entrypoint[0], entrypoint[1], script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, path := range must.Get[[]string](t)(filepath.Glob(dir + "/readers/*/*")) {
			reader, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
			name, text := reader+"/"+file, read(t, path)
			if before, drawn := texts[name]; !drawn {
				texts[name], given[reader] = text, append(given[reader], file)
			} else if text != before {
				t.Errorf("%s drawn again: %q, %q before", name, text, before)
			}
		}
	}
	password := strings.TrimSpace(texts["owner/gateway_password"])
	if want := "postgres://gateway:" + password + "@postgres:5432/petgate?sslmode=disable\n"; len(password) != 48 ||
		texts["gateway/gateway_database_url"] != want {
		t.Errorf("the gateway's URL is %q, want %q", texts["gateway/gateway_database_url"], want)
	}
	if pets := texts["petsvc/petsvc_database_url"]; !strings.HasSuffix(
		pets, "@postgres:5432/pets?sslmode=disable\n",
	) { // a database of their own
		t.Errorf("the pet service's URL is %q", pets)
	}
	inText := regexp.MustCompile(`/run/petgate/(\w+)`)
	readers := map[string]string{
		"migrate": "owner",
		"roles":   "owner",
		"console": "console",
	} // owner: the superuser's, for services that run once and listen to nothing
	reads := make(map[string][]string)
	for name, s := range services {
		if name == "secrets" {
			continue
		}
		reader := stdcmp.Or(readers[name], program(s.Image), name)
		texts := append(slices.Concat(s.Command, s.Entrypoint), slices.Collect(maps.Values(s.Environment))...)
		if s.Healthcheck != nil {
			texts = append(texts, s.Healthcheck.Test...)
		}
		text, all := strings.Join(texts, "\n"), ""
		for _, role := range []string{"gateway", "petsvc", "keyadmin"} {
			all += strings.ReplaceAll(text, "$${role}", role) + "\n"
		}
		for _, match := range inText.FindAllStringSubmatch(all, -1) {
			reads[reader] = append(reads[reader], match[1])
			if !slices.Contains(given[reader], match[1]) {
				t.Errorf("%s reads %s, which it is not given", name, match[1])
			}
		}
		for _, mount := range s.Volumes {
			if volume, _, _ := strings.Cut(mount, ":"); strings.HasSuffix(volume, "secrets") &&
				mount != reader+"-secrets:/run/petgate:ro" {
				t.Errorf("%s mounts %s", name, mount)
			}
		}
	}
	for reader, files := range given {
		for _, file := range files {
			if !slices.Contains(reads[reader], file) {
				t.Errorf("%s is given %s, and does not read it", reader, file)
			}
		}
	}
}

// isObserver reports whether a service runs only with the profile observe.
func isObserver(profiles []string) bool { return slices.Equal(profiles, []string{"observe"}) }

// Prometheus scrapes each admin port of the compose file but the console's, and keeps its data for
// the objectives.
func TestPrometheusScrapesEachProgram(t *testing.T) {
	var config struct {
		Jobs []struct {
			Name    string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	must.Do(t, yaml.Unmarshal([]byte(read(t, "../prometheus/prometheus.yml")), &config))
	var scraped, programs []string
	for _, job := range config.Jobs {
		for _, list := range job.Targets {
			for _, target := range list.Targets {
				scraped = append(scraped, job.Name+" "+target)
			}
		}
	}
	services := load(t).Services
	for name, s := range services {
		if name == "console" { // usually it does not run, and it serves no requests
			continue
		}
		if admin := s.Environment["GATEWAY_ADMIN_LISTEN"] + s.Environment["PETSVC_ADMIN_LISTEN"]; admin != "" {
			programs = append(programs, s.Image+" "+admin)
		}
	}
	slices.Sort(programs)
	slices.Sort(scraped)
	if !slices.Equal(scraped, programs) || len(scraped) != 4 {
		t.Errorf("Prometheus scrapes %v, and the programs are %v", scraped, programs)
	}
	if !slices.Contains(services["prometheus"].Command, "--storage.tsdb.retention.time=35d") {
		t.Errorf("Prometheus keeps too little for objectives of 30 days: %v", services["prometheus"].Command)
	}
}
