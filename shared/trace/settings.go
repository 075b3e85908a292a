package trace

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"petgate/shared/service"
)

// Settings are the settings of traces, with the names that OpenTelemetry specifies for environment
// variables. An empty variable is the same as none.
type Settings struct {
	Endpoint   string         `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"OpenTelemetry collector that gets traces by OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added. Empty: no traces."`
	Headers    service.Secret `name:"otlp-headers" env:"OTEL_EXPORTER_OTLP_HEADERS" help:"Headers for the collector: name=value, separated by commas, with percent-encoding."`
	Ratio      string         `name:"traces-sampler-arg" env:"OTEL_TRACES_SAMPLER_ARG" default:"1" placeholder:"RATIO" help:"Share of requests to trace, from 0 to 1. For the requests of a trusted caller that sends a trace, the caller decides."`
	Service    string         `name:"traces-service" env:"OTEL_SERVICE_NAME" placeholder:"NAME" help:"Name of this service in traces. Default: the program's name."`
	Attributes string         `name:"traces-attributes" env:"OTEL_RESOURCE_ATTRIBUTES" placeholder:"NAME=VALUE" help:"More attributes of this service, separated by commas, with percent-encoding."`
}

// values are what the settings say.
type values struct {
	url        string // where spans are sent
	headers    http.Header
	ratio      float64
	attributes [][2]string
}

// Check records what is wrong with the settings. Without an endpoint they are not used, and may be
// for other programs.
func (s *Settings) Check(bad *service.BadSettings) {
	if s.Endpoint != "" {
		s.read(bad)
	}
}

func (s *Settings) read(bad *service.BadSettings) (v values) {
	u, err := url.Parse(s.Endpoint)
	isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.RawQuery == "" &&
		u.Fragment == ""
	bad.Require(isURL, "otlp-endpoint", "use http://host:port or https://host:port")
	if isURL {
		bad.Require(u.User == nil, "otlp-endpoint", "it has a password: send it in OTEL_EXPORTER_OTLP_HEADERS")
		v.url = u.JoinPath("v1", "traces").String()
	}
	v.ratio = 1
	if s.Ratio != "" {
		v.ratio, err = strconv.ParseFloat(s.Ratio, 64)
		bad.Require(err == nil && v.ratio >= 0 && v.ratio <= 1, "traces-sampler-arg",
			"use a number from 0 to 1, such as 0.01")
	}
	v.headers, err = headers(string(s.Headers))
	bad.Require(err == nil, "otlp-headers", "%v", err)
	v.attributes, err = pairs(s.Attributes)
	bad.Require(err == nil, "traces-attributes", "%v", err)
	return v
}

// headerName matches a token (RFC 9110, section 5.6.2).
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// headers reads the headers for the collector. Its error has no value, because values are secrets.
func headers(list string) (http.Header, error) {
	all := http.Header{}
	parsed, err := pairs(list)
	for _, one := range parsed {
		if !headerName.MatchString(one[0]) || strings.ContainsFunc(one[1], unicode.IsControl) {
			return nil, errors.New("a name or a value has characters that a header cannot have")
		}
		all.Add(one[0], one[1])
	}
	return all, err
}

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
