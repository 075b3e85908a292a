package operate

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

// AskWithin is how long a gateway has to answer AskAdmin. A variable, because tests have to pass on
// a busy machine.
var AskWithin = 2 * time.Second

const answerBytesMax = 1 << 20

type adminTLSKey struct{}

// WithAdminTLS returns a context with which AskAdmin uses a configuration of TLS.
func WithAdminTLS(ctx context.Context, config *tls.Config) context.Context {
	return context.WithValue(ctx, adminTLSKey{}, config)
}

// adminTLS returns what WithAdminTLS has put into ctx, or nil.
func adminTLS(ctx context.Context) *tls.Config {
	config, _ := ctx.Value(adminTLSKey{}).(*tls.Config)
	return config
}

// AdminURL returns the address of a path at a gateway's admin port.
func AdminURL(g keystore.Gateway, path string) url.URL {
	scheme, host, isURL := strings.Cut(g.AdminAddress, "://") // https://… if the admin port uses TLS
	if !isURL {
		scheme, host = "http", g.AdminAddress
	}
	return url.URL{Scheme: scheme, Host: host, Path: path}
}

// AskAdmin reads JSON from a gateway's admin port. path may have a query. A response of 503 has a
// body too.
func AskAdmin(ctx context.Context, g keystore.Gateway, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, AskWithin)
	defer cancel()
	path, query, _ := strings.Cut(path, "?")
	ask := AdminURL(g, path)
	ask.RawQuery = query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ask.String(), nil)
	if err != nil {
		return err
	}
	// Not http.DefaultClient: it would use a proxy from the environment, which cannot reach the
	// private admin port. Redirects are not followed: a false gateway could make this program ask
	// any other address.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: adminTLS(ctx)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && path != ReadyPath {
		return fmt.Errorf("GET %s: %s", ask.String(), response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, answerBytesMax)).Decode(answer); err != nil {
		return fmt.Errorf("GET %s: %w", ask.String(), err)
	}
	return nil
}

// About is a gateway's response to GET /about on its admin port: what keyadmin compares between
// gateways. It has no secrets.
type About struct {
	Gateway     keystore.Gateway `json:"-"`
	Version     string           `json:"version"`
	Environment string           `json:"environment"`
	NowMillis   instant.Millis   `json:"nowMillis"` // by its host's clock
	Mode        string           `json:"mode"`      // where it counts quotas: shared, memory or outage
	Console     bool             `json:"console"`   // it serves the operators' console
	// those that all gateways should share, by the names of their flags
	Settings   map[string]string `json:"settings"`
	Operations []AboutOperation  `json:"operations"`
	Redis      []RedisServer     `json:"redis"`

	Problems []service.Problem `json:"-"` // of AskAll
	Err      error             `json:"-"` // of AskAll: why there is no answer
}

// AboutOperation is an operation that a gateway serves.
type AboutOperation struct {
	ID           string         `json:"id"`
	Scopes       []string       `json:"scopes"` // that a key needs
	Gone         bool           `json:"gone"`   // it is no longer served
	IsDeprecated bool           `json:"isDeprecated"`
	DeprecatedAt instant.Millis `json:"deprecatedAt,omitempty"` // 0: it is not deprecated
	SunsetAt     instant.Millis `json:"sunsetAt,omitempty"`     // from then on it is gone; 0: never
	Successor    string         `json:"successor,omitempty"`    // the path of what replaces it
}

// RedisServer is a Redis that a gateway uses.
type RedisServer struct {
	Address    string `json:"address"`
	Version    string `json:"version"`
	Policy     string `json:"maxmemoryPolicy"`
	AppendOnly bool   `json:"appendOnly"`
	SkewMillis int64  `json:"skewMillis"` // its clock minus the gateway's
	Error      string `json:"error,omitempty"`
}

// ReadyPath is the path of a gateway's readiness on its admin port. A response of 503 has a body
// too.
const ReadyPath = "/readyz"

// AskProblems asks a gateway what it reports on /readyz.
func AskProblems(ctx context.Context, g keystore.Gateway) ([]service.Problem, error) {
	var answer struct {
		Problems []service.Problem `json:"problems"`
	}
	err := AskAdmin(ctx, g, ReadyPath, &answer)
	return answer.Problems, err
}

// AskAll asks all gateways at once about themselves, and each that answers for its problems.
func AskAll(ctx context.Context, gateways []keystore.Gateway) []About {
	answers := make([]About, len(gateways))
	var group sync.WaitGroup
	for i, g := range gateways {
		group.Go(func() {
			a, err := AskAbout(ctx, g)
			if err == nil {
				a.Problems, err = AskProblems(ctx, g)
			}
			a.Err = err
			answers[i] = a
		})
	}
	group.Wait()
	return answers
}

// AskAbout asks a gateway about itself.
func AskAbout(ctx context.Context, g keystore.Gateway) (About, error) {
	answer := About{Gateway: g}
	err := AskAdmin(ctx, g, "/about", &answer)
	return answer, err
}

// askQuota asks a gateway how much of the quotas of a call is used.
func askQuota(ctx context.Context, g keystore.Gateway, t id.Tenant, k keystore.Key, operation string) (figures, error) {
	f := figures{from: g, cost: max(1, g.Document.Costs[operation])}
	query := url.Values{}
	if f.cost > 1 {
		query.Set("cost", strconv.FormatInt(f.cost, 10))
	}
	if k.Limits.IsSet() {
		query.Set("key", k.ID.String())
	}
	err := AskAdmin(ctx, g, "/quota/"+t.String()+"?"+query.Encode(), &f)
	return f, err
}
