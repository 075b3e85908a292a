// Policyoff is the gateway's own request path without a directory and without quotas. Every stage
// runs, but every well-formed key is accepted and nothing is counted. The difference to the gateway
// is what the policy costs.
package main

import (
	"flag"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/answers"
	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/usage"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// off accepts every key and admits every request.
type off struct{}

var verdict = quota.Verdict{
	Granted: 1,
	Usages: [quota.Policies]quota.Usage{
		quota.Minute: {
			Limit:     plan.LimitMax,
			Remaining: plan.LimitMax,
		}, quota.Day: {Limit: plan.LimitMax, Remaining: plan.LimitMax},
	},
}

func (off) Lookup(apikey.Hash) (directory.Entry, bool) {
	return directory.Entry{
		Environment: apikey.Live, Scopes: "pets:read pets:write",
		Terms: directory.Terms{Plan: "enterprise", Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}},
	}, true
}
func (off) Fresh(instant.Millis) bool                     { return true }
func (off) Ban(id.Key, instant.Millis, string)            {}
func (off) Count(usage.Request)                           {}
func (off) Take(quotas.Request) (quota.Verdict, error)    { return verdict, nil }
func (off) Current(quotas.Request) (quota.Verdict, error) { return verdict, nil }
func (off) Known(quotas.Request) quota.Verdict            { return verdict }
func (off) Fail(netip.Addr) (authfailures.State, bool)    { return authfailures.State{}, true }

// unguarded counts no failed attempts.
type unguarded struct{ off }

func (unguarded) Known(netip.Addr) authfailures.State { return authfailures.State{} }

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	upstream := flag.String("upstream", "http://127.0.0.1:8081", "URL of the origin")
	flag.Parse()
	operations := api.Pets().Operations
	e, err := edge.New(edge.Config{
		Environment:            apikey.Live,
		Upstreams:              []string{*upstream},
		UpstreamTimeout:        10 * time.Second,
		ReadTimeout:            4 * time.Second,
		BodyBytesMax:           64 << 10,
		BodiesBytesMax:         256 << 20,
		UpstreamConnsPerTenant: 512,
		ConcurrencyMax:         4096,
		ConnectionsMax:         32768,
	}, edge.Deps{
		Directory:  off{},
		Quotas:     off{},
		Guard:      unguarded{},
		Usage:      off{},
		Operations: operations,
		Pages:      new(answers.Pages),
		Log:        slog.Default(), Metrics: prometheus.NewRegistry(), Clock: time.Now,
	})
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(e.Serve(ln))
}
