package declare

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// head begins an exported document.
const head = "# Plans, tenants and keys of Petgate, as written by: keyadmin export\n" +
	"# What is named here is declared as a whole: a member that is left out has its default. " +
	"A tenant without the member keys\n" +
	"# keeps its keys. Tokens are not part of it.\n"

// What a document has of each record, in the order of the file. It is written from these types and
// read into them. A member that the database has and this list lacks is not exported.
type (
	// Document declares plans, tenants and keys.
	Document struct {
		source  string   // names it in mistakes: a path
		Version Version  `yaml:"version" required:""`
		Plans   []Plan   `yaml:"plans"`
		Tenants []Tenant `yaml:"tenants,omitempty"`
	}

	// Plan declares a plan.
	Plan struct {
		At                place            `yaml:"-"`
		Name              operate.PlanName `yaml:"name" required:""`
		operate.NewLimits `yaml:",inline"`
		TestMinute        operate.Limit `yaml:"testMinute,omitempty"`
	}

	// Tenant declares a tenant and, unless Keys is nil, all its keys.
	Tenant struct {
		At                place              `yaml:"-"`
		Name              operate.TenantName `yaml:"name" required:""`
		Plan              operate.PlanName   `yaml:"plan" required:""`
		operate.NewLimits `yaml:",inline"`
		MonthStarts       operate.MonthStarts `yaml:"monthStarts,omitempty"`
		Suspended         bool                `yaml:"suspended,omitempty"`
		Keys              []Key               `yaml:"keys,omitempty"`
	}

	// Key declares a key that exists.
	Key struct {
		At          place           `yaml:"-"`
		ID          operate.KeyID   `yaml:"id" required:""`
		Name        operate.Name    `yaml:"name" required:""`
		Environment environment     `yaml:"environment"`
		Scopes      []operate.Scope `yaml:"scopes,flow" required:""`
		Allow       []operate.Block `yaml:"allow,omitempty,flow"`
		Expires     expiry          `yaml:"expires,omitempty"`
		Minute      operate.Limit   `yaml:"minute,omitempty"`
		Day         operate.Limit   `yaml:"day,omitempty"`
		Disabled    bool            `yaml:"disabled,omitempty"`
	}
)

// place is where something stands in a document.
type place struct {
	line   int
	member string // tenants[2].plan
}

// Version is the format of a document. There is one.
type Version int

const current Version = 1

// UnmarshalText reads a version.
func (v *Version) UnmarshalText(text []byte) error {
	*v = current
	if string(text) != "1" {
		return fmt.Errorf("%q is not a version of the format: this keyadmin knows version 1", text)
	}
	return nil
}

// environment is the environment of a key. The zero value is live.
type environment struct{ apikey.Environment }

// MarshalText writes an environment.
func (e environment) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// expiry is a UTC date or an instant in seconds; 0: never.
type expiry instant.Millis

// MarshalText writes an expiry.
func (e expiry) MarshalText() ([]byte, error) { return []byte(instant.Millis(e).String()), nil }

// UnmarshalText reads an expiry.
func (e *expiry) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, string(text)); err == nil {
			*e = expiry(instant.Of(t))
			return nil
		}
	}
	return fmt.Errorf("%q is not a time: use 2026-12-31 or 2026-12-31T18:00:00Z", text)
}

// planOf returns what a document says of a plan.
func planOf(p keystore.Plan) Plan {
	return Plan{
		Name:       operate.PlanName(p.Name),
		NewLimits:  operate.NewLimitsOf(p.Limits),
		TestMinute: operate.Limit(p.Test.Minute),
	}
}

// tenantOf returns what a document says of a tenant, without its keys.
func tenantOf(t keystore.Tenant) Tenant {
	return Tenant{
		Name:        operate.TenantName(t.Name),
		Plan:        operate.PlanName(t.Plan),
		NewLimits:   operate.NewLimitsOf(t.Override),
		MonthStarts: operate.MonthStarts(t.MonthStarts),
		Suspended:   t.Suspended,
	}
}

// keyOf returns what a document says of a key.
func keyOf(k keystore.Key) Key {
	return Key{
		ID:          operate.KeyID{Key: k.ID},
		Name:        operate.Name(k.Name),
		Environment: environment{k.Environment},
		Scopes:      operate.ViewsOf(k.Scopes.Names(), func(s string) operate.Scope { return operate.Scope(s) }),
		Allow:       operate.ViewsOf(k.Allow, func(b netip.Prefix) operate.Block { return operate.Block{Prefix: b} }),
		Expires:     expiry(k.ExpiresAt),
		Minute:      operate.Limit(k.Limits.Minute),
		Day:         operate.Limit(k.Limits.Day),
		Disabled:    k.DisabledAt != 0,
	}
}

// applyTo returns the plan as the document declares it.
func (p Plan) applyTo(was keystore.Plan) keystore.Plan {
	is := was
	is.Name = string(p.Name)
	is.Limits = p.NewLimits.Limits()
	is.Test = plan.Limits{Minute: int64(p.TestMinute)}
	return is
}

// applyTo returns the tenant as the document declares it.
func (t Tenant) applyTo(was keystore.Tenant) keystore.Tenant {
	is := was
	is.Name = string(t.Name)
	is.Plan = string(t.Plan)
	is.Override = t.NewLimits.Limits()
	is.Suspended = t.Suspended
	if starts := uint8(t.MonthStarts); max(1, starts) != max(1, was.MonthStarts) { // 0 is day 1 too
		is.MonthStarts = starts
	}
	return is
}

// applyTo returns the key as the document declares it, with its scopes.
func (k Key) applyTo(was keystore.Key, scopes apikey.Scopes, now instant.Millis) keystore.Key {
	is := was.Enabled()
	is.Name = string(k.Name)
	is.Scopes = scopes
	is.Allow = operate.Prefixes(k.Allow)
	is.Limits = operate.NewLimits{Minute: k.Minute, Day: k.Day}.Limits()
	// a document has whole seconds
	if expires := instant.Millis(k.Expires); expires.String() != was.ExpiresAt.String() {
		is.ExpiresAt = expires
	}
	if k.Disabled {
		is.DisabledAt = cmp.Or(was.DisabledAt, now)
	}
	return is
}

// Export writes the state of a key database as YAML. The same state always gives the same bytes, on
// every database.
func Export(ctx context.Context, o operate.Operator, to io.Writer) error {
	w := writer{to: to, now: o.Now()}
	err := o.Store.PassState(ctx, keystore.StateRows{Plans: w.plans, Tenant: w.tenant, Key: w.key})
	return cmp.Or(err, w.end())
}

// writer writes a state as YAML, some rows at a time.
type writer struct {
	to      io.Writer
	now     instant.Millis
	tenants []Tenant // not written yet
	size    int      // how many tenants and keys are not written yet
	any     bool     // whether a tenant was written
}

// writtenRows is how many tenants and keys are written at once; a tenant is always written with all
// its keys.
const writtenRows = 1000

func (w *writer) plans(plans []keystore.Plan) error {
	d := Document{Version: current, Plans: operate.ViewsOf(plans, planOf)}
	// The databases sort the names of plans differently.
	slices.SortFunc(d.Plans, func(a, b Plan) int { return cmp.Compare(a.Name, b.Name) })
	if _, err := io.WriteString(w.to, head); err != nil {
		return err
	}
	return w.write("", d)
}

func (w *writer) tenant(t keystore.Tenant) (err error) {
	if w.size >= writtenRows { // before the tenant: all its keys are written with it
		err = w.flush()
	}
	w.size++
	w.tenants = append(w.tenants, tenantOf(t))
	return err
}

func (w *writer) key(k keystore.Key) error {
	if !k.Enabled().InUse(w.now) {
		return nil
	}
	of := &w.tenants[len(w.tenants)-1]
	of.Keys = append(of.Keys, keyOf(k))
	w.size++
	return nil
}

// flush writes the tenants that are not written yet.
func (w *writer) flush() (err error) {
	if len(w.tenants) == 0 {
		return nil
	}
	if !w.any {
		w.any = true
		_, err = io.WriteString(w.to, "tenants:\n")
	}
	err = cmp.Or(err, w.write("  ", w.tenants))
	w.tenants, w.size = w.tenants[:0], 0
	return err
}

func (w *writer) end() error {
	err := w.flush()
	if err == nil && !w.any {
		_, err = io.WriteString(w.to, "tenants: []\n")
	}
	return err
}

// write writes a value with an indent.
func (w *writer) write(indent string, value any) error {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		if _, err := w.to.Write(append([]byte(indent), line...)); err != nil {
			return err
		}
	}
	return nil
}
