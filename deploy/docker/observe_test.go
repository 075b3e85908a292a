package docker_test

import (
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"petgate/shared/testkit/must"
)

// isObserver reports whether a service runs only with the profile observe.
func isObserver(profiles []string) bool { return slices.Equal(profiles, []string{"observe"}) }

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
