package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

func (c *Console) serveKeys() {
	const key = Home + "keys/{key}"
	c.handle("GET "+key, c.inSession(c.showKey))
	c.handle("POST "+key+"/update", c.changing(ofKey("Update", updateKey)))
	c.handle("POST "+key+"/rotate", c.changing(ofKey("Rotate", rotateKey)))
	c.handle("POST "+key+"/disable", c.changing(ofKey("Disable", of(operate.Operator.DisableKey))))
	c.handle("POST "+key+"/enable", c.changing(ofKey("Enable", of(operate.Operator.EnableKey))))
	c.handle("POST "+key+"/revoke", c.changing(ofKey("Revoke", of(operate.Operator.RevokeKey))))
	c.handle("POST "+key+"/ban", c.changing(ofKey("Ban", banKey)))
	c.handle("POST "+key+"/lift", c.changing(ofKey("Lift the ban", liftBan)))
}

func keyPath(id string) string { return Home + "keys/" + url.PathEscape(id) }

// keyOfPath reads the key that the path of a request names, and its tenant.
func keyOfPath(ctx context.Context, r *http.Request, v *visit) (t operate.Owner, k keystore.Key, err error) {
	key, err := id.ParseKey(r.PathValue("key"))
	if err != nil {
		return t, k, fmt.Errorf("%w: %w", keystore.ErrNotFound, err)
	}
	return readKey(ctx, v, key)
}

// readKey reads a key and its tenant.
func readKey(ctx context.Context, v *visit, key id.Key) (t operate.Owner, k keystore.Key, err error) {
	if k, err = v.store.Key(ctx, key); err != nil {
		return t, k, err
	}
	t, err = v.operator.OwnerOf(ctx, k)
	return t, k, err
}

// keyPage is the content of the page of one key.
type keyPage struct {
	operate.KeyView
	Sheet    list
	Usage    usagePart
	Scopes   []scopeBox
	Lines    string // the allow-list, a block a line
	HasEnded bool
	IsBanned bool

	IsEditable bool // its terms can be changed. A later expiry makes an expired key valid again
}

type scopeBox struct {
	Name string
	Has  bool
}

// boxesOf returns a box for every scope that a key may have, and ticks those of the set. The empty set stands for the scopes of a new key.
func boxesOf(ctx context.Context, v *visit, set apikey.Scopes) (boxes []scopeBox, err error) {
	known, _, err := v.store.Scopes(ctx)
	if set == "" {
		set = known
	}
	names := slices.Concat(known.Names(), []string{apikey.UsageRead}, set.Names())
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		boxes = append(boxes, scopeBox{name, set.Has(name)})
	}
	return boxes, err
}

func (c *Console) showKey(w http.ResponseWriter, r *http.Request, v *visit) error {
	t, k, err := keyOfPath(r.Context(), r, v)
	if err != nil {
		return err
	}
	ban, err := v.operator.Ban(r.Context(), k.ID)
	if err != nil {
		return err
	}
	view := operate.ViewKey(k, t, ban.Until, v.operator.Now())
	if isData, err := c.sendData(w, r, v, view.ID, view, ""); isData {
		return err
	}
	page := keyPage{
		KeyView: view, Lines: strings.Join(view.Allow, "\n"), IsBanned: ban.Until != 0, IsEditable: k.RevokedAt <= 0 && k.GraceEndsAt == 0,
		HasEnded: slices.Contains(endedStates, view.Status),
	}
	if page.Scopes, err = boxesOf(r.Context(), v, k.Scopes); err != nil {
		return err
	}
	page.Sheet = list{Caption: "This key", Rows: [][]cell{
		{{Text: "Name"}, quoted(view.Name)},
		{{Text: "Tenant"}, {Text: view.Tenant, Link: tenantPath(view.TenantID)}},
		{{Text: "Status"}, keyStatus(view)},
		{{Text: "Last used"}, v.when(k.LastUsedAt, "never")},
		{{Text: "Last refused"}, v.whenText(view.LastRefusedAt, "never")},
		{{Text: "Expires"}, v.when(k.ExpiresAt, "never")},
		{{Text: "Environment"}, {Text: view.Environment}},
		{{Text: "Token ends in"}, {Text: view.Hint}},
		{{Text: "Scopes"}, {Text: strings.Join(view.Scopes, " ")}},
		{{Text: "Allowed from"}, {Text: operate.Anywhere(view.Allow)}},
		{{Text: "Own limits"}, {Text: operate.OrDash(view.OwnLimits())}},
		{{Text: "Created"}, v.when(k.CreatedAt, "-")},
		{{Text: "Revoked"}, v.when(k.Enabled().RevokedAt, "never")},
		{{Text: "Disabled"}, v.when(k.DisabledAt(), "never")},
	}}
	page.Usage = c.usageOf(r.Context(), v.operator, t.ID, k.ID, r.URL.Query().Get("usage"), plan.Limits{})
	if view.ReplacedBy != "" {
		page.Sheet.Rows = append(page.Sheet.Rows, []cell{{Text: "Replaced by"}, {Text: view.ReplacedBy, Link: keyPath(view.ReplacedBy)}})
	}
	if page.IsBanned {
		page.Sheet.Rows = append(page.Sheet.Rows, []cell{{Text: "Banned by"}, {Text: ban.By}},
			[]cell{{Text: "Banned because"}, quoted(ban.Reason)}, []cell{{Text: "Told the tenant"}, quoted(ban.Notice)})
	}
	return c.show(w, v, http.StatusOK, "key", "Key "+view.ID, page)
}

// ofKey prepares a change of the key that the path names.
func ofKey(verb string, prepare func(context.Context, *form, operate.Owner, keystore.Key) (operate.Operation, error)) func(context.Context, *form) (prepared, error) {
	return func(ctx context.Context, f *form) (prepared, error) {
		t, k, err := keyOfPath(ctx, f.r, f.visit)
		if err != nil {
			return prepared{}, err
		}
		op, err := prepare(ctx, f, t, k)
		return prepared{Operation: op, title: verb + ": key " + k.ID.String(), verb: verb, back: keyPath(k.ID.String())}, err
	}
}

// updateKey sets the terms whose fields differ from what the page showed. The others stay as they are now: another person may have
// changed them since.
func updateKey(_ context.Context, f *form, t operate.Owner, k keystore.Key) (operate.Operation, error) {
	name, scopes, allow := f.text("name", "Name", keystore.NameRunesMax), f.scopes(), f.blocks()
	limits := f.keyLimits()
	var expiresAt instant.Millis
	if f.isChanged("expires") {
		expiresAt = f.moment("expires", "Expires", f.operator.Now())
	}
	return f.operator.UpdateKey(t, k, func(k *keystore.Key) {
		if f.isChanged("name") {
			k.Name = name
		}
		if f.isChanged("scope") {
			k.Scopes = scopes
		}
		if f.isChanged("allow") {
			k.Allow = allow
		}
		if f.isChanged("expires") {
			k.ExpiresAt = expiresAt
		}
		if f.isChanged("minute") {
			k.Limits.Minute = limits.Minute
		}
		if f.isChanged("day") {
			k.Limits.Day = limits.Day
		}
	}), nil
}

// keyLimits reads the limits of a key itself.
func (f *form) keyLimits() plan.Limits {
	return plan.Limits{Minute: f.limit("minute", "Per minute", operate.ParseLimit), Day: f.limit("day", "Per day", operate.ParseLimit)}
}

func rotateKey(_ context.Context, f *form, t operate.Owner, k keystore.Key) (operate.Operation, error) {
	var grace operate.Grace
	if text := f.value("grace"); text != "" {
		length, err := operate.ParseDuration(text)
		f.reject("The old token works for", err)
		grace = operate.Grace{Given: true, Length: length}
	}
	return f.operator.RotateKey(t, k, grace), nil
}

// of prepares a change whose form has no fields.
func of(change func(operate.Operator, operate.Owner, keystore.Key) operate.Operation) func(context.Context, *form, operate.Owner, keystore.Key) (operate.Operation, error) {
	return func(_ context.Context, f *form, t operate.Owner, k keystore.Key) (operate.Operation, error) {
		return change(f.operator, t, k), nil
	}
}

func liftBan(ctx context.Context, f *form, t operate.Owner, k keystore.Key) (operate.Operation, error) {
	return f.operator.LiftBan(ctx, t, k)
}

func banKey(_ context.Context, f *form, t operate.Owner, k keystore.Key) (operate.Operation, error) {
	return f.operator.AddBan(t, k, f.period("for", "For"), f.text("reason", "Reason", keystore.NameRunesMax),
		f.optional("notice", "Text for the tenant", keystore.NoticeRunesMax)), nil
}
