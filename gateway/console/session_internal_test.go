package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
)

// After a restore, a stream does not go on with the removed file.
func TestStreamEndsWithItsFile(t *testing.T) {
	s := newStage(t, nil)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(s.path+suffix, s.path+".away"+suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	db, err := database.OpenOrCreate("sqlite:" + s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Migrate(t.Context(), keystore.Migrations); err != nil {
		t.Fatal(err)
	}
	if e, err := s.console.nextEvent(t.Context(), s.request("GET", livePath, "")); err != nil || !e.isLast {
		t.Errorf("the stream goes on: %s, %v", e.bytes, err)
	}
}

// Pages that hold all their connections do not delay a form.
func TestFormsHaveConnections(t *testing.T) {
	s := newStage(t, nil)
	forms, err := database.Open("sqlite:" + s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer forms.Close()
	s.console.cfg.Forms = keystore.New(forms, nil, nil, "gw-1")
	s.db.SetMaxOpenConns(1)
	held, err := s.db.Connx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if w := s.send("POST", Home+"logout", ""); w.Code != 303 {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// The list and the page of a tenant show how much it has used, of both limits. A tenant that the gateway does not know yet hides
// nothing of the others. After another failure, no other tenant is asked for.
func TestUseOfQuotas(t *testing.T) {
	s := newStage(t, nil)
	ids := map[id.Tenant]string{}
	var last keystore.Tenant
	for _, name := range []string{"a", "b", "c"} {
		made, _, err := s.store.CreateTenant(t.Context(), keystore.TenantSpec{Name: name, Plan: "free"})
		if err != nil {
			t.Fatal(err)
		}
		ids[made.ID], last = name, made
	}
	var unknown error
	s.console.cfg.Quota = func(_ context.Context, tenant id.Tenant) (v quota.Verdict, err error) {
		if ids[tenant] == "b" {
			return v, unknown
		}
		v.Minute.Used, v.Minute.Limit, v.Day.Used, v.Day.Limit = 30, 60, 200, 1000
		return v, nil
	}
	for _, test := range []struct {
		err  error
		want int // tenants with known use
	}{
		{fmt.Errorf("%w: b", ErrUnknownTenant), 2}, {errors.New("Redis does not answer"), 1},
	} {
		unknown = test.err
		page := s.send("GET", Home+"tenants", "").Body.String()
		row := `data-title="Used now" class="number">50 %</td><td role="cell" data-title="Per day" class="number">1,000</td><td role="cell" data-title="Used today" class="number">20 %</td>`
		if n := strings.Count(page, row); n != test.want {
			t.Errorf("%v: the use of %d tenants, want %d:\n%s", test.err, n, test.want, page)
		}
	}
	if _, err := s.db.Exec("DROP TABLE usage_hours"); err != nil {
		t.Fatal(err)
	}
	w := s.send("GET", tenantPath(last.ID.String()), "")
	page := w.Body.String()
	for _, want := range []string{
		"Used now: 30 of 60 (50 %) of the last 60 seconds, and 200 of 1,000 (20 %) of this UTC day.", "The requests cannot be read: ", "Create a key",
	} {
		if w.Code != 200 || !strings.Contains(page, want) {
			t.Errorf("%d, want %q in\n%s", w.Code, want, page)
		}
	}
}
