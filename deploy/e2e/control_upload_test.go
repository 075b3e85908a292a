package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// uploadBytes is the length of a body that a gateway reads only after it has checked the key.
const uploadBytes = 60_000

// uploads are ways to store a pet. Each has two parts: the first one does not end the request.
var uploads = map[string]func(token, pet string) (start, rest string){
	"small": func(token, pet string) (start, rest string) {
		return halves(token, pet, fmt.Sprintf("Content-Length: %d", len(pet)), pet)
	},
	"large": func(token, pet string) (start, rest string) {
		return halves(token, pet, fmt.Sprintf("Content-Length: %d", uploadBytes), pet+strings.Repeat(" ", uploadBytes-len(pet)))
	},
	"chunked": func(token, pet string) (start, rest string) {
		return halves(token, pet, "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s%s\r\n0\r\n\r\n", uploadBytes, pet, strings.Repeat(" ", uploadBytes-len(pet))))
	},
	"continue": func(token, pet string) (start, rest string) {
		return fleet.Request("POST /v1/pets", token, "", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", len(pet))), pet
	},
}

// halves returns a request whose content is cut in the middle.
func halves(token, pet, framing, content string) (start, rest string) {
	return fleet.Request("POST /v1/pets", token, "", framing) + content[:len(content)/2], content[len(content)/2:]
}

// upload is a request that is under way.
type upload struct {
	*fleet.Client
	what, name, rest string
	endedAt          time.Time // when the rest was sent
}

// end sends the rest, and returns the answer.
func (u *upload) end(t *testing.T) fleet.Reply {
	u.endedAt = time.Now()
	if err := u.Send(u.rest); err != nil {
		t.Errorf("%s: the rest: %v", u.what, err)
		return fleet.Reply{}
	}
	got, err := u.Read()
	if err != nil {
		t.Errorf("%s: %v", u.what, err)
	}
	return got
}

// beginUploads begins n uploads of each kind at each gateway, and returns when the gateways have what was sent.
func beginUploads(t *testing.T, f *fleet.Fleet, token, name string, n int) (all []*upload) {
	t.Helper()
	for range n {
		for kind, split := range uploads {
			for _, g := range f.Gateways {
				u := &upload{Client: g.Client(), what: kind + " at " + g.ID, name: fmt.Sprintf("%s %d", name, len(all))}
				start, rest := split(token, fmt.Sprintf(`{"name":%q,"categoryId":1}`, u.name))
				u.rest = rest
				t.Cleanup(u.Close)
				if got := u.Must(t, fleet.GetPets(token)); got.Status != http.StatusOK { // the gateway reads the connection
					t.Fatalf("before the upload: %v", got)
				}
				must.Do(t, u.Send(start))
				if kind == "continue" {
					if got, err := u.Read(); err != nil || got.Status != http.StatusContinue {
						t.Fatalf("instead of 100: %v %v", got, err)
					}
				}
				all = append(all, u)
			}
		}
	}
	for _, g := range f.Gateways {
		testkit.Eventually(t, fleet.ReplyWithin, "the first halves have arrived", func() bool {
			return g.Metric(t, "petgate_gateway_body_bytes", "") >= float64(2*n*uploadBytes/2)
		})
	}
	return all
}

// TestUploadsWhileTheirKeyEnds ends keys while uploads with them are under way at three gateways. A part of the uploads ends while the
// command runs. Those that end after it get a refusal, and store nothing.
func TestUploadsWhileTheirKeyEnds(t *testing.T) {
	t.Parallel()
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Gateways: 3, GatewayEnv: []string{"GATEWAY_READ_TIMEOUT=60s", "GATEWAY_DRAIN_DELAY=0s"},
	})
	stored := map[string]int{} // as the answers say
	check := func(name string) {
		t.Helper()
		if diff := cmp.Diff(stored, petRows(t, f)); diff != "" {
			t.Errorf("%s: what the answers say, and what the database has: %s", name, diff)
		}
	}
	const pace = 10 * time.Millisecond // a command takes about a tenth of a second
	n := testkit.Size(2, 10)

	key := f.NewTenant("kept", fleet.Unlimited...)
	for _, u := range beginUploads(t, f, key.Token, "kept", n) {
		if got := u.end(t); got.Status != http.StatusCreated {
			t.Errorf("%s without a change: %v", u.what, got)
		}
		stored[u.name]++
	}
	check("kept")

	for name, c := range map[string]struct {
		code    string
		command func(key fleet.Key) []string
	}{
		"revoked":   {"invalid_api_key", func(key fleet.Key) []string { return []string{"key", "revoke", key.ID, "--yes"} }},
		"suspended": {"tenant_suspended", func(key fleet.Key) []string { return []string{"tenant", "suspend", key.TenantID, "--yes"} }},
		"banned": {"key_banned", func(key fleet.Key) []string {
			return []string{"ban", "add", key.ID, "--for", "1h", "--reason", "test", "--yes"}
		}},
		"rotated": {"invalid_api_key", func(key fleet.Key) []string { return []string{"key", "rotate", key.ID, "--grace", "0", "--yes"} }},
	} {
		key := f.NewTenant(name, fleet.Unlimited...)
		all := beginUploads(t, f, key.Token, name, n)
		during, after := all[:len(all)/2], all[len(all)/2:]
		var early []*upload // those that got 201
		var ending sync.WaitGroup
		ending.Go(func() {
			for _, u := range during {
				switch got := u.end(t); {
				case got.Status == http.StatusCreated:
					early = append(early, u)
					stored[u.name]++
				case got.Code() != c.code:
					t.Errorf("%s, %s: %v, want %s", name, u.what, got, c.code)
				}
				<-time.After(pace)
			}
		})
		done := f.Keyadmin(append(c.command(key), "--wait", "20s")...)
		over := time.Now()
		if done.Code != 0 || !strings.Contains(done.Stderr, "confirmed by 3 of 3 gateways") {
			t.Errorf("%s: exit code %d\n%s", name, done.Code, done.Stderr)
		}
		ending.Wait()
		for _, u := range early {
			if u.endedAt.After(over) {
				t.Errorf("%s, %s: 201, and its rest was sent %v after the command", name, u.what, u.endedAt.Sub(over))
			}
		}
		for _, u := range after {
			if got := u.end(t); got.Code() != c.code {
				t.Errorf("%s, %s: %v, want %s", name, u.what, got, c.code)
			}
		}
		check(name)
		t.Logf("figure: %s: %d uploads at 3 gateways, %d stored before the command ended, 0 of %d after it", name, len(all), len(early), len(after))
	}
}
