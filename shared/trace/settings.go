package trace

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"petgate/shared/service"
)

// Settings are the settings of traces, with the names that OpenTelemetry specifies for environment variables. An empty variable is
// the same as none.
type Settings struct {
	Endpoint   string         `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"OpenTelemetry collector that gets traces, such as http://127.0.0.1:4318; /v1/traces is added. Empty: no traces."`
	Protocol   string         `name:"otlp-protocol" env:"OTEL_EXPORTER_OTLP_PROTOCOL" default:"http/protobuf" placeholder:"NAME" help:"Protocol to the collector. Must be http/protobuf."`
	Headers    service.Secret `name:"otlp-headers" env:"OTEL_EXPORTER_OTLP_HEADERS" help:"Headers for the collector: name=value, separated by commas, with percent-encoding."`
	Sampler    string         `name:"traces-sampler" env:"OTEL_TRACES_SAMPLER" default:"parentbased_traceidratio" placeholder:"NAME" help:"Which requests are traced. Must be parentbased_traceidratio: those that a trusted caller has sampled, and a part of the others."`
	Ratio      string         `name:"traces-sampler-arg" env:"OTEL_TRACES_SAMPLER_ARG" default:"1" placeholder:"RATIO" help:"That part, from 0 to 1."`
	Service    string         `name:"traces-service" env:"OTEL_SERVICE_NAME" placeholder:"NAME" help:"Name of this service in traces. Default: the program's name."`
	Attributes string         `name:"traces-attributes" env:"OTEL_RESOURCE_ATTRIBUTES" placeholder:"NAME=VALUE" help:"More attributes of this service, separated by commas, with percent-encoding."`
}

const (
	protocol = "http/protobuf"
	sampler  = "parentbased_traceidratio"
)

// Check records what is wrong with the settings. Without an endpoint they are not used, and may be for other programs.
func (s *Settings) Check(bad *service.BadSettings) {
	if s.Endpoint == "" {
		return
	}
	_, err := s.url()
	bad.Require(err == nil, "otlp-endpoint", "%v", err)
	bad.Require(s.Protocol == "" || s.Protocol == protocol, "otlp-protocol",
		"use %s, and in OTEL_EXPORTER_OTLP_ENDPOINT the port of the collector for HTTP, usually 4318", protocol)
	bad.Require(s.Sampler == "" || s.Sampler == sampler, "traces-sampler",
		"use %s with a ratio in OTEL_TRACES_SAMPLER_ARG: 1 samples all requests, 0 those that a trusted caller has sampled", sampler)
	_, err = s.ratio()
	bad.Require(err == nil, "traces-sampler-arg", "%v", err)
	_, err = s.headers()
	bad.Require(err == nil, "otlp-headers", "%v", err)
	_, err = pairs(s.Attributes)
	bad.Require(err == nil, "traces-attributes", "%v", err)
}

// ratio returns the part of requests that is sampled, from 0 to 1. Nothing is 1, as OpenTelemetry specifies.
func (s *Settings) ratio() (float64, error) {
	if s.Ratio == "" {
		return 1, nil
	}
	number, err := strconv.ParseFloat(s.Ratio, 64)
	if err != nil || !(number >= 0 && number <= 1) {
		return 0, fmt.Errorf("%q is not a ratio: use a number from 0 to 1, such as 0.01", s.Ratio)
	}
	return number, nil
}

// url returns where spans are sent.
func (s *Settings) url() (string, error) {
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("use http://host:port or https://host:port")
	case u.User != nil:
		return "", errors.New("it has a password: send it in OTEL_EXPORTER_OTLP_HEADERS")
	}
	return u.JoinPath("v1", "traces").String(), nil
}

// headers returns the headers for the collector. Its error has no value, because values are secrets.
func (s *Settings) headers() (http.Header, error) {
	list, err := pairs(string(s.Headers))
	if err != nil {
		return nil, err
	}
	all := http.Header{}
	for _, one := range list {
		if !isToken(one[0]) || strings.ContainsFunc(one[1], isControl) {
			return nil, errors.New("a name or a value has characters that a header cannot have")
		}
		all.Add(one[0], one[1])
	}
	return all, nil
}

func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// pairs reads name=value, separated by commas, with percent-encoded values.
func pairs(list string) (all [][2]string, _ error) {
	for n, one := range strings.Split(list, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		name, value, found := strings.Cut(one, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || name == "" || err != nil {
			return nil, fmt.Errorf("number %d is not name=value with percent-encoding", n+1)
		}
		all = append(all, [2]string{name, value})
	}
	return all, nil
}
