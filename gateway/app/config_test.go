package app_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"petgate/gateway/app"
	"petgate/shared/service"
	"petgate/shared/testkit/must"
)

// allBad has a setting of each kind that is refused.
const allBad = `DATABASE_URL=mysql://u:hunter2@h/d
REDIS_URL=redis://a,:hunter2@b
GATEWAY_LISTEN=8080
GATEWAY_UPSTREAMS=ftp://x
GATEWAY_BODY_BYTES_MAX=-1
GATEWAY_ENVIRONMENT=staging
GATEWAY_CORS_ORIGINS=https://app.example,https://App.example:443/
GATEWAY_BAN_AFTER=-1
GATEWAY_BAN_MAX=1s
GATEWAY_TRUSTED_PROXIES=10.0.0.0
GATEWAY_LIMITS_ON_OUTAGE=hope
GATEWAY_TLS_CERT=/nonexistent
GATEWAY_AUTH_FAILURES_PER_MINUTE=-1
GATEWAY_DIRECTORY_MAX_AGE=1s
GATEWAY_DRAIN_LIMIT=0s
GATEWAY_READ_TIMEOUT=0s
GATEWAY_IDLE_TIMEOUT=0s
GATEWAY_UPSTREAM_TIMEOUT=0s
GATEWAY_CONCURRENCY_MAX=0
GATEWAY_CONNECTIONS_MAX=0
GATEWAY_UPSTREAM_CONNS_PER_TENANT=0
GATEWAY_RESPONSE_BYTES_MAX=-1
GATEWAY_DATABASE_CONNECTIONS=0`

func TestProblems(t *testing.T) {
	// f sets variables, one a line, and wants each problem to be named once.
	f := func(name, environment string, want ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			for line := range strings.Lines(environment) {
				variable, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				t.Setenv(variable, value)
			}
			var cfg app.Config
			var out, errs bytes.Buffer
			code, _ := service.Load(&cfg, "gateway", "", nil, &out, &errs)
			if wantCode := min(len(want), 1) * 2; code != wantCode {
				t.Errorf("exit code %d, want %d: %s", code, wantCode, errs.String())
			}
			for _, problem := range want {
				if strings.Count(errs.String(), problem) != 1 {
					t.Errorf("not named, or not once: %s\n%s", problem, errs.String())
				}
			}
			if strings.Contains(errs.String(), "hunter2") {
				t.Errorf("a password is shown: %s", errs.String())
			}
		})
	}
	f("defaults", "")
	f("one port for two", "GATEWAY_LISTEN=127.0.0.1:9090", "GATEWAY_ADMIN_LISTEN", "it must differ from --listen")
	for _, address := range []string{"127.0.0.1:9090", "[::1]:9090", "localhost:9090"} {
		f("operators' API at "+address, "GATEWAY_OPERATORS_API=true\nGATEWAY_ADMIN_LISTEN="+address)
	}
	for _, address := range []string{":9090", "0.0.0.0:9090", "10.0.0.4:9090", "gateway.internal:9090"} {
		f("operators' API at "+address, "GATEWAY_OPERATORS_API=true\nGATEWAY_ADMIN_LISTEN="+address,
			"GATEWAY_OPERATORS_API",
			"tokens would cross the network in plain text: set --admin-tls-cert and --admin-tls-key")
	}
	f("no such port", "GATEWAY_LISTEN=:80800", `GATEWAY_LISTEN (--listen) is ":80800": use host:port`)
	f("everything set", `DATABASE_URL=postgres://petgate@db/petgate
REDIS_URL=redis://a:1,rediss://b:2
GATEWAY_LISTEN=:8443
GATEWAY_UPSTREAMS=http://a:1,unix:/run/pets.sock
GATEWAY_ENVIRONMENT=test
GATEWAY_BAN_AFTER=0
GATEWAY_TRUSTED_PROXIES=10.0.0.0/8,fd00::/8
GATEWAY_LIMITS_ON_OUTAGE=refuse
GATEWAY_SNAPSHOT=
GATEWAY_CORS_ORIGINS=https://app.example,http://127.0.0.1:3000
GATEWAY_DOCS=false
GATEWAY_DOCS_TITLE=Pets
GATEWAY_UPSTREAM_HEALTH_PATH=/readyz?from=petgate`)
	f("all at once", allBad,
		"DATABASE_URL", "REDIS_URL: number 2", `GATEWAY_LISTEN (--listen) is "8080"`,
		`GATEWAY_UPSTREAMS (--upstreams) is "[ftp://x]"`,
		`GATEWAY_BODY_BYTES_MAX (--body-bytes-max) is "-1": it must be positive`, "staging",
		`"https://App.example:443/" is not as browsers send it: use https://app.example`,
		"--ban-after", "--ban-max", "GATEWAY_TRUSTED_PROXIES", "GATEWAY_LIMITS_ON_OUTAGE", "--tls-cert",
		"--auth-failures-per-minute", "--directory-max-age", "--drain-limit", "--read-timeout", "--idle-timeout",
		"--upstream-timeout", "--concurrency-max", "--connections-max", "--upstream-conns-per-tenant",
		"--response-bytes-max", "--database-connections")
	f("a secret with a line break", "GATEWAY_UPSTREAM_SECRET=a\rb", "GATEWAY_UPSTREAM_SECRET: it has characters")
	f("just too much", `GATEWAY_BAN_AFTER=65536
GATEWAY_DATABASE_CONNECTIONS=101
GATEWAY_TLS_NAME=a.example`, "use 0 to 65535", "use 1 to 100", "it needs --tls-cert")

	f("an unknown option for Redis", "REDIS_URL=redis://:hunter2@a:1?master_name=b", "REDIS_URL: number 1")
	f("Redis behind Sentinel", "REDIS_URL=redis+sentinel://:hunter2@a:1,b:2/pets")
	f("Redis by a Unix socket", "REDIS_URL=unix://:hunter2@/run/redis.sock?db=1")
	f("a Unix socket without a path", "REDIS_URL=unix://:hunter2@run/redis.sock",
		"nor like unix://[user:password@]/path[?db=N]")
	f("a Unix socket in a cluster", "REDIS_URL=unix:///a,redis://:hunter2@b", "name a Unix socket alone")
	f("Sentinel without a master", "REDIS_URL=redis+sentinel://:hunter2@a:1,b:2",
		"REDIS_URL: it is not like redis+sentinel://")
	f("checks of upstreams at no path", "GATEWAY_UPSTREAM_HEALTH_PATH=readyz", "for example /readyz")
	f("memory for no body", "GATEWAY_BODY_BYTES_MAX=150000\nGATEWAY_BODIES_BYTES_MAX=60000",
		"GATEWAY_BODIES_BYTES_MAX", "it must be at least 65536, the memory for one body")
	f("upstreams by name", `GATEWAY_UPSTREAMS=https://a,orders=https://b:8443,orders=unix:/run/a=b
GATEWAY_UPSTREAM_HOST=api.example:443`)
	f("no upstream for the operations", "GATEWAY_UPSTREAMS=orders=https://b",
		"operation listPets: there is no upstream without a name")
	named := filepath.Join(t.TempDir(), "orders.yaml")
	orders := strings.Replace(ordersOf("1", "/orders"), "get: {", "get: {x-upstream: orders, ", 1)
	must.Do(t, os.WriteFile(named, []byte(orders), 0o600))
	f("no upstream for the gateway's own operations", "GATEWAY_API="+named+"\nGATEWAY_UPSTREAMS=orders=https://b")
	f("a bad upstream with a name", "GATEWAY_UPSTREAMS=orders=ftp://b",
		"GATEWAY_UPSTREAMS", `"ftp://b" is not an upstream`)
	f("a bad host and no authorities", `GATEWAY_UPSTREAM_HOST=a b
GATEWAY_UPSTREAM_CA=/dev/null
GATEWAY_UPSTREAM_SECRET=hunter2 `,
		"GATEWAY_UPSTREAM_SECRET: it has characters that a header field cannot have", "GATEWAY_UPSTREAM_HOST",
		"GATEWAY_UPSTREAM_CA", "it has no PEM certificate")

	const proxy = "GATEWAY_CONSOLE_PROXIES=10.0.0.7/32\nGATEWAY_CONSOLE_"
	f("an identity proxy", proxy+"USER_HEADER=X-Forwarded-User\nGATEWAY_CONSOLE_GROUPS=platform=admin,staff=read")
	f("an identity proxy without an address",
		"GATEWAY_CONSOLE_USER_HEADER=X-Forwarded-User\nGATEWAY_CONSOLE_GROUPS=platform=admin",
		"GATEWAY_CONSOLE_USER_HEADER", "it needs --console-proxies")
	f("a bad field of an identity proxy", proxy+"USER_HEADER=X User\nGATEWAY_CONSOLE_GROUPS=platform=admin",
		"GATEWAY_CONSOLE_USER_HEADER", "use names of header fields")
	f("a role that does not exist", proxy+"USER_HEADER=X-Forwarded-User\nGATEWAY_CONSOLE_GROUPS=platform=root",
		"is not a role: use read, keys or admin")
	f("the database of the console, if it has no URL of its own", "DATABASE_URL=mysql://h/d", "DATABASE_URL")
	f("the database of the console", "GATEWAY_CONSOLE_DATABASE_URL=mysql://u:hunter2@h/d",
		"GATEWAY_CONSOLE_DATABASE_URL: ")
}
