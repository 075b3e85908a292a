package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// fleetOf are gateways that do not change.
type fleetOf []keystore.Gateway

func (f fleetOf) Gateways(context.Context) ([]keystore.Gateway, error) { return f, nil }

// A change that is not confirmed ends with 3, and what to do about it are commands of keyadmin. TestWait of package operate has the waiting.
func TestConfirm(t *testing.T) {
	t.Parallel()
	const laggards = "done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw-1, "
	for _, c := range []struct {
		gateway keystore.Gateway
		code    exitCode
		want    string
	}{
		{keystore.Gateway{ID: "gw-1", Applied: 7}, exitDone, "confirmed by 1 of 1 gateways in 0 ms\n"},
		{
			keystore.Gateway{ID: "gw-1", Applied: 6, Age: 43_000, MaxAge: 60_000}, exitUnconfirmed, laggards + "silent for 43 s, may still accept this key\n" +
				"A silent gateway refuses every call once its maximum age has passed: repeat the command with --wait 1m2s to see the change confirmed.\n",
		},
		{
			keystore.Gateway{ID: "gw-1", Applied: 6}, exitUnconfirmed, laggards + "last seen 0 ms ago, may still accept this key\n" +
				"Gateways seen recently are probably still catching up; check the LAG column of `keyadmin gateway list`.\n",
		},
	} {
		var said bytes.Buffer
		a := &app{stdio: stdio{Err: &said, Clock: func() time.Time { return time.UnixMilli(0) }, Sleep: operate.Sleep}}
		code := a.report(a.confirm(t.Context(), fleetOf{c.gateway}, 7, "may still accept this key", operate.Delay{Given: true}))
		if code != c.code || said.String() != c.want {
			t.Errorf("exit %d: %s\nwant %s", code, said.String(), c.want)
		}
	}
}
