package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

func (c *Console) serveBans() {
	c.handle("GET "+Home+"bans", c.inSession(c.showBans))
	c.handle("POST "+Home+"bans", c.changing(addBan))
}

// addBan prepares a ban of the key that a field names.
func addBan(ctx context.Context, f *form) (prepared, error) {
	key, err := id.ParseKey(f.value("key"))
	if err != nil {
		f.reject("Key", err)
		_, err = banKey(ctx, f, operate.Owner{}, keystore.Key{}) // for the other mistakes
		return prepared{}, err
	}
	t, k, err := readKey(ctx, f.visit, key)
	if err != nil {
		return prepared{}, err
	}
	op, err := banKey(ctx, f, t, k)
	return prepared{Operation: op, title: "Ban: key " + k.ID.String(), verb: "Ban", back: Home + "bans"}, err
}

// bansPath is the address of the bans of a tenant, beginning after a cursor.
func bansPath(tenant id.Tenant, after string) string {
	return Home + "bans?" + url.Values{"tenant": {tenant.String()}, "after": {after}}.Encode()
}

// bansPage is the content of the page of bans.
type bansPage struct {
	Total string // empty: the page is about one tenant
	List  list
}

// showBans shows all bans, or those of one tenant.
func (c *Console) showBans(w http.ResponseWriter, r *http.Request, v *visit) error {
	until, key, err := parseBanCursor(r.URL.Query().Get("after"))
	if err != nil {
		return err
	}
	var tenant id.Tenant
	title := "Bans"
	if text := r.URL.Query().Get("tenant"); text != "" {
		t, err := v.store.Tenant(r.Context(), text)
		if err != nil {
			return err
		}
		tenant, title = t.ID, "Bans of "+t.Name
	}
	bans, err := readPage(r, func(most int) ([]keystore.NamedBan, error) {
		return v.store.FindBans(r.Context(), tenant, until, key, most)
	}, banCursor, viewBan)
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "bans", bans.views, bans.next); isData {
		return err
	}
	page := bansPage{List: banList(v, bans.views).paged(r, bans.next)}
	if tenant.IsZero() {
		n, err := v.store.CountBans(r.Context())
		if err != nil {
			return err
		}
		page.Total = operate.Either(n == 1, "One key is banned.", humanize.Comma(int64(n))+" keys are banned.")
	}
	return c.show(w, v, http.StatusOK, "bans", title, page)
}

func viewBan(b keystore.NamedBan) operate.BanView {
	return operate.ViewBan(b.Ban, b.TenantName, b.KeyName)
}

// banList returns the rows of bans. Those who may change something can lift each of them.
func banList(v *visit, bans []operate.BanView) list {
	l := list{
		Caption: "Bans", Columns: []column{"Key", "Name", "Tenant", "Ends", "Imposed by", "~Reason", "~Text for the tenant"},
		None: "No key is banned.",
	}
	if v.session.Role.Allows(keystore.RoleKeys) {
		l.Columns = append(l.Columns, "Lift")
	}
	for _, view := range bans {
		row := []cell{
			{Text: view.KeyID, Link: keyPath(view.KeyID)},
			quoted(view.Key),
			{Text: view.Tenant, Link: tenantPath(view.TenantID)},
			v.whenText(view.Until, "never"),
			{Text: view.By},
			quoted(view.Reason),
			quoted(view.Notice),
		}
		if v.session.Role.Allows(keystore.RoleKeys) {
			row = append(row, cell{Text: "Lift", Post: keyPath(view.KeyID) + "/lift", Label: "Lift the ban of " + view.KeyID})
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}

// A ban's cursor is its end in ms and its key.
func banCursor(b keystore.NamedBan) string { return fmt.Sprintf("%d.%s", b.Until, b.Key) }

func parseBanCursor(text string) (until instant.Millis, key id.Key, err error) {
	if text == "" {
		return 0, key, nil
	}
	var name string
	if _, err = fmt.Sscanf(text, "%d.%s", &until, &name); err == nil {
		key, err = id.ParseKey(name)
	}
	if err != nil {
		err = fmt.Errorf("%w: the address of the page: %w", keystore.ErrNotFound, err)
	}
	return until, key, err
}
