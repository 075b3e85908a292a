package trace_test

import (
	"bytes"
	"strings"
	"testing"

	"petgate/shared/service"
	"petgate/shared/trace"
)

type settings struct {
	Traces           trace.Settings `embed:""`
	service.Settings `embed:"" envprefix:"TEST_"`
}

func (s *settings) Addresses() (public, admin string) { return "", "" }
func (s *settings) Written() []string                 { return nil }

func (s *settings) BadSettings() service.BadSettings {
	bad := s.Settings.BadSettings()
	s.Traces.Check(&bad)
	return bad
}

// The settings have the names that OpenTelemetry specifies. A bad value is refused, with what to use instead.
func TestSettings(t *testing.T) {
	f := func(name, value, want string) {
		t.Helper()
		for _, endpoint := range []string{"http://127.0.0.1:4318", ""} {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv(name, value)
			var errs bytes.Buffer
			_, failed := service.Load(&settings{}, "prog", "", nil, &errs, &errs)
			isUsed := name == "OTEL_EXPORTER_OTLP_ENDPOINT" || endpoint != ""
			if failed != (want != "" && isUsed) || failed && !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "hunter2") {
				t.Errorf("%s=%s with endpoint %q: %s", name, value, endpoint, errs.String())
			}
			t.Setenv(name, "")
		}
	}
	f("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector/base", "")
	f("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "use http://host:port")
	f("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:secret@collector", "OTEL_EXPORTER_OTLP_HEADERS")
	f("OTEL_TRACES_SAMPLER_ARG", "", "")
	f("OTEL_TRACES_SAMPLER_ARG", "0.01", "")
	f("OTEL_TRACES_SAMPLER_ARG", "1.5", "from 0 to 1")
	f("OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1")
	f("OTEL_TRACES_SAMPLER_ARG", "endpoint=http://sampler:14250,pollingIntervalMs=5000", "from 0 to 1")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c=d%20e,", "")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=b,hunter2", "number 2 is not name=value")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%zz", "number 1 is not name=value")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0a", "characters that a header cannot have")
	f("OTEL_RESOURCE_ATTRIBUTES", "team=pets", "")
	f("OTEL_RESOURCE_ATTRIBUTES", "team", "number 1 is not name=value")
}
