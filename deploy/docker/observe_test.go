package docker_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"petgate/shared/testkit/must"
)

// isObserver reports whether a service runs only with the profile observe.
func isObserver(profiles []string) bool { return slices.Equal(profiles, []string{"observe"}) }

// Prometheus, Grafana and Jaeger ask for no password, so they are published on the loopback address, whatever PUBLISH says.
func TestObserversArePrivate(t *testing.T) {
	pinned := regexp.MustCompile(`:v?\d+\.\d+\.\d+$`)
	published := regexp.MustCompile(`^127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+$`)
	observers := 0
	for name, s := range load(t).Services {
		if !isObserver(s.Profiles) {
			continue
		}
		observers++
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s has the image %s, which is not one version", name, s.Image)
		}
		if len(s.Ports) != 1 || !published.MatchString(s.Ports[0]) {
			t.Errorf("%s publishes %v", name, s.Ports)
		}
		for _, mount := range s.Volumes {
			if strings.HasPrefix(mount, "./") && !strings.HasSuffix(mount, ":ro") {
				t.Errorf("%s can write %s", name, mount)
			}
		}
	}
	if observers != 3 {
		t.Errorf("%d services observe, want Prometheus, Grafana and Jaeger", observers)
	}
}

// Prometheus scrapes each admin port of the compose file but the console's, and keeps its data for the objectives.
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
