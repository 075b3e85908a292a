package main

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

type auditCommand struct {
	Since period `default:"7d" placeholder:"AGE" help:"How far back: 1h, 7d."`
}

func (auditCommand) Help() string {
	return `Lists every change and who made it, the oldest first. Changes come from operators, through keyadmin, and from
gateways, which impose bans. An operator is shown as keyadmin:NAME. NAME is $SUDO_USER, $USER or $LOGNAME, else the name of
the system's user; it is not authenticated.

Examples:

    # The last week
    keyadmin audit

    # Who revoked keys today
    keyadmin audit --since 24h -o json | jq '.[] | select(.kind == "key.revoked")'`
}

// eventView is one change as JSON; scripts rely on its fields.
type eventView struct {
	ID       int64           `json:"id"`
	At       string          `json:"at"`
	Actor    string          `json:"actor"`
	Kind     string          `json:"kind"`
	TenantID string          `json:"tenantId,omitempty"`
	KeyID    string          `json:"keyId,omitempty"`
	Plan     string          `json:"plan,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"` // the record as stored, times in ms
	After    json.RawMessage `json:"after,omitempty"`
}

func (c *auditCommand) Run(ctx context.Context, a *app) error {
	since := a.now().Add(-time.Duration(c.Since))
	if err := a.open(ctx); err != nil {
		return err
	}
	events, err := a.store.Events(ctx, since)
	if err != nil {
		return err
	}
	tenants, err := a.store.Tenants(ctx)
	if err != nil {
		return err
	}
	names := make(map[id.Tenant]string, len(tenants))
	for _, t := range tenants {
		names[t.ID] = t.Name
	}
	views := make([]eventView, 0, len(events))
	t := table{head: []string{"EVENT", "AT", "ACTOR", "KIND", "TENANT", "SUBJECT", "CHANGE"}}
	for _, e := range events {
		v := viewEvent(e)
		views = append(views, v)
		was, is := fields([]byte(e.Before)), fields([]byte(e.After))
		tenant := cmp.Or(names[e.Tenant], v.TenantID)
		subject := cmp.Or(v.KeyID, v.Plan)
		if e.Kind == keystore.GatewayForgot {
			subject = was["id"]
		}
		t.rows = append(t.rows, []string{
			strconv.FormatInt(v.ID, 10), v.At, v.Actor, v.Kind, orDash(tenant), orDash(subject), difference(was, is),
		})
	}
	return a.print(views, t)
}

func viewEvent(e keystore.Event) eventView {
	v := eventView{
		ID: int64(e.ID), At: e.At.String(), Actor: e.Actor, Kind: e.Kind, Plan: e.Plan, Before: []byte(e.Before), After: []byte(e.After),
	}
	if !e.Tenant.IsZero() {
		v.TenantID = e.Tenant.String()
	}
	if !e.Key.IsZero() {
		v.KeyID = e.Key.String()
	}
	return v
}

// difference describes the change between two records, as `plan free → pro`. For a new record it lists all members, for a
// deleted one its former members.
func difference(was, is map[string]string) string {
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := was[name], is[name]
		switch {
		case from == to || unchanging[name]:
		case len(was) == 0:
			parts = append(parts, name+" "+to)
		case len(is) == 0:
			parts = append(parts, "was "+name+" "+from)
		default:
			parts = append(parts, name+" "+orDash(from)+" → "+orDash(to))
		}
	}
	return orDash(strings.Join(parts, ", "))
}

// unchanging are members that repeat other columns or say nothing about a change.
var unchanging = map[string]bool{
	"id": true, "tenantId": true, "keyId": true, "createdAt": true, "imposedAt": true,
	"applied": true, "registeredAt": true, "seenAt": true, "age": true, "lastUsedAt": true,
}

// fields returns the members of a JSON object as text. Members of inner objects are named like `limits.day`. Unset members
// are left out.
func fields(record json.RawMessage) map[string]string {
	var members map[string]json.RawMessage
	if json.Unmarshal(record, &members) != nil {
		return nil
	}
	texts := make(map[string]string, len(members))
	for name, value := range members {
		text, list := string(value), []string(nil)
		switch ms, err := strconv.ParseInt(text, 10, 64); {
		case value[0] == '{':
			for inner, text := range fields(value) {
				texts[name+"."+inner] = text
			}
			continue
		case json.Unmarshal(value, &list) == nil:
			text = strings.Join(list, " ")
		case value[0] == '"':
			_ = json.Unmarshal(value, &text) // it was parsed above, so it cannot fail
		case err == nil && (strings.HasSuffix(name, "At") || name == "until"):
			text = instant.Millis(ms).String()
		}
		if text != "" && text != "0" && text != "false" && text != "null" {
			texts[name] = text
		}
	}
	return texts
}
