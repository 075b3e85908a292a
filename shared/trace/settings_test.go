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

// The settings have the names that OpenTelemetry specifies. A bad value is refused, with what to
// use instead.
func TestSettings(t *testing.T) {
	f := func(name, value, want string) {
		t.Helper()
		for _, endpoint := range []string{"http://127.0.0.1:4318", ""} {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv(name, value)
			var errs bytes.Buffer
			_, failed := service.Load(&settings{}, "prog", "", nil, &errs, &errs)
			isUsed := name == "OTEL_EXPORTER_OTLP_ENDPOINT" || endpoint != ""
			if failed != (want != "" && isUsed) || failed && !strings.Contains(errs.String(), want+"\n") ||
				strings.Contains(errs.String(), "hunter2") {
				t.Errorf("%s=%s with endpoint %q: %s", name, value, endpoint, errs.String())
			}
			t.Setenv(name, "")
		}
	}
	f("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector/base", "")
	for _, no := range []string{
		"collector:4317", "http:///x", "ftp://collector", "http://collector?a=b", "http://collector#a", "http://colle ctor",
	} {
		f("OTEL_EXPORTER_OTLP_ENDPOINT", no, "use http://host:port or https://host:port")
	}
	f("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:secret@collector",
		"it has a password: send it in OTEL_EXPORTER_OTLP_HEADERS")
	f("OTEL_TRACES_SAMPLER_ARG", "", "")
	f("OTEL_TRACES_SAMPLER_ARG", "0.01", "")
	f("OTEL_TRACES_SAMPLER_ARG", "1", "")
	f("OTEL_TRACES_SAMPLER_ARG", "0", "")
	f("OTEL_TRACES_SAMPLER_ARG", "-0.1", "use a number from 0 to 1, such as 0.01")
	f("OTEL_TRACES_SAMPLER_ARG", "1.5", "use a number from 0 to 1, such as 0.01")
	f("OTEL_TRACES_SAMPLER_ARG", "NaN", "use a number from 0 to 1, such as 0.01")
	f("OTEL_TRACES_SAMPLER_ARG", "endpoint=http://sampler:14250,pollingIntervalMs=5000",
		"use a number from 0 to 1, such as 0.01")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c=d%20e,", "")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=b,hunter2", "number 2 is not name=value with percent-encoding")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%zz", "number 1 is not name=value with percent-encoding")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0a", "a name or a value has characters that a header cannot have")
	f("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2", "a name or a value has characters that a header cannot have")
	f("OTEL_RESOURCE_ATTRIBUTES", "team=pets", "")
	f("OTEL_RESOURCE_ATTRIBUTES", "a=b,=pets", "number 2 is not name=value with percent-encoding")
	f("OTEL_RESOURCE_ATTRIBUTES", "team", "number 1 is not name=value with percent-encoding")
	f("OTEL_TRACES_SAMPLER", "parentbased_always_off", "")
	f("OTEL_TRACES_SAMPLER", "jaeger_remote",
		"OTEL_TRACES_SAMPLER: use always_on, always_off or traceidratio, or one of these after parentbased_")
	f("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER: use otlp or none")
	f("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL: use http/protobuf")
	f("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "OTEL_EXPORTER_OTLP_COMPRESSION: use gzip or none")
	f("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "OTEL_EXPORTER_OTLP_TIMEOUT: use milliseconds, such as 10000")
	f("OTEL_EXPORTER_OTLP_CERTIFICATE", "settings.go", "OTEL_EXPORTER_OTLP_CERTIFICATE: use a readable PEM file")
	f("OTEL_EXPORTER_OTLP_CLIENT_KEY", "settings.go", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: "+
		"use it with OTEL_EXPORTER_OTLP_CLIENT_KEY: two readable PEM files")
	f("OTEL_PROPAGATORS", "b3", "OTEL_PROPAGATORS: use tracecontext or tracecontext,baggage")
	f("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "OTEL_BSP_MAX_QUEUE_SIZE: use a number above 0")
}
