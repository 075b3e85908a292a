package trace

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"petgate/shared/service"
)

// Settings are the settings of traces that have flags. Their variables, and all others that are
// read here and by the SDK, have the names, defaults and meanings that OpenTelemetry specifies. An
// empty variable is the same as none.
type Settings struct {
	// OpenTelemetry collector that gets traces by OTLP over HTTP, such as http://127.0.0.1:4318;
	// /v1/traces is added. Empty: no traces.
	Endpoint string `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL"`

	// Headers for the collector: name=value, separated by commas, with percent-encoding.
	Headers service.Secret `name:"otlp-headers" env:"OTEL_EXPORTER_OTLP_HEADERS"`

	// Share of requests to trace, from 0 to 1. For the requests of a trusted caller that sends a
	// trace, the caller decides.
	Ratio string `name:"traces-sampler-arg" env:"OTEL_TRACES_SAMPLER_ARG" default:"1" placeholder:"RATIO"`

	// Name of this service in traces. Default: the program's name.
	Service string `name:"traces-service" env:"OTEL_SERVICE_NAME" placeholder:"NAME"`

	// More attributes of this service, separated by commas, with percent-encoding.
	Attributes string `name:"traces-attributes" env:"OTEL_RESOURCE_ATTRIBUTES" placeholder:"NAME=VALUE"`
}

//go:embed settings.go
var source string

// Source implements service.Described.
func (*Settings) Source() string { return source }

// values are what the settings say.
type values struct {
	url            string // where spans are sent
	headers        http.Header
	timeout        time.Duration // of one attempt
	isCompressed   bool
	tls            *tls.Config
	ratio          float64
	ignoresCallers bool // the flag of a trusted caller does not decide
	attributes     [][2]string
}

// Check records what is wrong with the settings. Without an endpoint they are not used, and may be
// for other programs.
func (s *Settings) Check(bad *service.BadSettings) {
	if !s.isOff() {
		s.read(bad)
	}
}

// isOff reports whether no spans are exported.
func (s *Settings) isOff() bool {
	return s.Endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" ||
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none"
}

// Destination is where spans go, for the log: the URL, or "off".
func (s *Settings) Destination() string {
	if s.isOff() {
		return "off"
	}
	return s.url(new(service.BadSettings))
}

func (s *Settings) read(bad *service.BadSettings) values {
	v := values{url: s.url(bad), tls: certificates(bad)}
	v.ratio, v.ignoresCallers = s.sampler(bad)

	var err error
	v.headers, err = headers(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), string(s.Headers)))
	bad.Require(err == nil, "otlp-headers", "%v", err)
	v.attributes, err = pairs(s.Attributes)
	bad.Require(err == nil, "traces-attributes", "%v", err)

	v.timeout = postTimeout
	if text := exporterVariable("TIMEOUT"); text != "" {
		milliseconds, err := strconv.Atoi(text)
		requireVariable(bad, err == nil && milliseconds > 0, "OTEL_EXPORTER_OTLP_TIMEOUT",
			"use milliseconds, such as 10000")
		v.timeout = time.Duration(milliseconds) * time.Millisecond
	}
	compression := exporterVariable("COMPRESSION")
	v.isCompressed = compression == "gzip"
	requireOneOf(bad, "OTEL_EXPORTER_OTLP_COMPRESSION", compression, "gzip", "none")
	requireOneOf(bad, "OTEL_EXPORTER_OTLP_PROTOCOL", exporterVariable("PROTOCOL"), "http/protobuf")
	requireOneOf(bad, "OTEL_TRACES_EXPORTER", os.Getenv("OTEL_TRACES_EXPORTER"), "otlp", "none")
	requireOneOf(bad, "OTEL_PROPAGATORS", os.Getenv("OTEL_PROPAGATORS"), "tracecontext", "tracecontext,baggage")
	for _, name := range numbers {
		text := os.Getenv(name)
		n, err := strconv.Atoi(text)
		requireVariable(bad, text == "" || err == nil && n > 0, name, "use a number above 0")
	}
	return v
}

// numbers are variables of the SDK, which would ignore what is no number, and panic at a size below
// zero.
var numbers = []string{
	"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
	"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT",
	"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
}

// exporterVariable returns the variable for traces, or else the one for all signals.
func exporterVariable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// requireVariable records a variable that has no flag as bad unless ok.
func requireVariable(bad *service.BadSettings, ok bool, name, rule string) {
	bad.Require(ok, "", "%s: %s", name, rule)
}

func requireOneOf(bad *service.BadSettings, name, value string, known ...string) {
	requireVariable(bad, value == "" || slices.Contains(known, value), name, "use "+strings.Join(known, " or "))
}

// url returns where spans are sent. The variable for traces has the whole URL.
func (s *Settings) url(bad *service.BadSettings) string {
	own := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	u, err := url.Parse(cmp.Or(own, s.Endpoint))
	isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.RawQuery == "" &&
		u.Fragment == ""
	bad.Require(isURL, "otlp-endpoint", "use http://host:port or https://host:port")
	if !isURL {
		return ""
	}
	bad.Require(u.User == nil, "otlp-endpoint", "it has a password: send it in OTEL_EXPORTER_OTLP_HEADERS")
	if own != "" {
		return own
	}
	return u.JoinPath("v1", "traces").String()
}

// sampler returns the share of traces that are sampled. Without OTEL_TRACES_SAMPLER, it is that of
// parentbased_traceidratio.
func (s *Settings) sampler(bad *service.BadSettings) (ratio float64, ignoresCallers bool) {
	ratio = 1
	if s.Ratio != "" {
		var err error
		ratio, err = strconv.ParseFloat(s.Ratio, 64)
		bad.Require(err == nil && ratio >= 0 && ratio <= 1, "traces-sampler-arg",
			"use a number from 0 to 1, such as 0.01")
	}
	name := os.Getenv("OTEL_TRACES_SAMPLER")
	kind, isParentBased := strings.CutPrefix(name, "parentbased_")
	switch kind {
	case "", "traceidratio":
	case "always_on":
		ratio = 1
	case "always_off":
		ratio = 0
	default:
		requireVariable(bad, false, "OTEL_TRACES_SAMPLER",
			"use always_on, always_off or traceidratio, or one of these after parentbased_")
	}
	return ratio, name != "" && !isParentBased
}

// certificates returns the configuration of TLS for the collector: the authority that it is checked
// with, and the certificate that is shown to it.
func certificates(bad *service.BadSettings) *tls.Config {
	c := &tls.Config{}
	if path := exporterVariable("CERTIFICATE"); path != "" {
		c.RootCAs = x509.NewCertPool()
		text, err := os.ReadFile(path)
		requireVariable(bad, err == nil && c.RootCAs.AppendCertsFromPEM(text), "OTEL_EXPORTER_OTLP_CERTIFICATE",
			"use a readable PEM file")
	}
	certificate, key := exporterVariable("CLIENT_CERTIFICATE"), exporterVariable("CLIENT_KEY")
	if certificate+key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		requireVariable(bad, err == nil, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
			"use it with OTEL_EXPORTER_OTLP_CLIENT_KEY: two readable PEM files")
		c.Certificates = []tls.Certificate{pair}
	}
	return c
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
