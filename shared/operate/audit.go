package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

// EventView is one change as JSON; scripts rely on its fields.
type EventView struct {
	ID       int64           `json:"id"`
	At       string          `json:"at"`
	Actor    string          `json:"actor"`
	Kind     string          `json:"kind"`
	TenantID string          `json:"tenantId,omitempty"`
	KeyID    string          `json:"keyId,omitempty"`
	Plan     string          `json:"plan,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"` // the record
	After    json.RawMessage `json:"after,omitempty"`

	Event  keystore.Event `json:"-"` // what the view is of
	Tenant string         `json:"-"` // its name; empty: there is no such tenant
}

// viewEvent returns the view of an event.
func viewEvent(e keystore.Event) EventView {
	v := EventView{
		ID:     int64(e.ID),
		At:     e.At.String(),
		Actor:  e.Actor,
		Kind:   e.Kind,
		Plan:   e.Plan,
		Before: withTimes([]byte(e.Before)),
		After:  withTimes([]byte(e.After)),
		Event:  e,
	}
	if !e.Tenant.IsZero() {
		v.TenantID = e.Tenant.String()
	}
	if !e.Key.IsZero() {
		v.KeyID = e.Key.String()
	}
	return v
}

// ViewEvents returns the views of events, with the names of their tenants.
func (o Operator) ViewEvents(ctx context.Context, events []keystore.Event) ([]EventView, error) {
	ids := ViewsOf(events, func(e keystore.Event) id.Tenant { return e.Tenant })
	tenants, err := lists.Of(o.Store).TenantsOf(ctx, ids)
	return ViewsOf(events, func(e keystore.Event) EventView {
		v := viewEvent(e)
		v.Tenant = tenants[e.Tenant].Name
		return v
	}), err
}

// difference describes the change between two records, as `plan free → pro`. For a new record it
// lists all members, for a deleted one its former members, as `was: reason scraping`. Empty: they
// are the same.
func difference(was, is map[string]string) string {
	names := maps.Clone(was)
	maps.Copy(names, is)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := was[name], is[name]
		of := members[name]
		member := cmp.Or(of.words, name)
		switch {
		case from == to || of.isUnchanging:
		case of.isTruth:
			parts = append(parts, Either(to == "true" || len(is) == 0, member, "not "+member))
		case len(was) == 0:
			parts = append(parts, member+" "+to)
		case len(is) == 0:
			parts = append(parts, member+" "+from)
		case from == "" && strings.HasSuffix(name, "At"):
			parts = append(parts, member+" "+to)
		default:
			parts = append(parts, member+" "+OrDash(from)+" → "+OrDash(to))
		}
	}
	text := strings.Join(parts, ", ")
	if len(is) == 0 && text != "" {
		text = "was: " + text
	}
	return text
}

// member is how a member of a record is written.
type member struct {
	words        string // its name; empty: that of JSON
	isFree       bool   // it can have any text: without quotes, it could look like a part of the sentence
	isWord       bool   // it has quotes if it is not a plain word
	isTruth      bool   // it is true or false
	isUnchanging bool   // it repeats another column, or says nothing about a change
}

// members has the members of all records by their JSON names. Those of the records that operators
// change are tags of their fields: see package keystore.
var members = func() map[string]member {
	all := map[string]member{
		"address":      {isWord: true},
		"adminAddress": {words: "admin address", isWord: true},
		"age":          {isUnchanging: true},
		"applied":      {isUnchanging: true},
		"endsAt":       {words: "ends"},
		"reapplied":    {words: "refusals made again"},
		"registeredAt": {isUnchanging: true},
		"seenAt":       {isUnchanging: true},
		"takenAt":      {words: "backup of"},
	}
	for _, record := range []any{keystore.Tenant{}, keystore.Plan{}, keystore.Key{}, keystore.Ban{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(record)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			words, option, _ := strings.Cut(f.Tag.Get("audit"), ",")
			if f.Type == reflect.TypeFor[plan.Limits]() {
				for _, policy := range plan.Policies {
					all[name+"."+policy] = member{words: words + " per " + policy}
				}
				continue
			}
			all[name] = member{
				words:        words,
				isFree:       option == "free",
				isWord:       option == "word",
				isTruth:      f.Type.Kind() == reflect.Bool,
				isUnchanging: words == "-",
			}
		}
	}
	return all
}()

// withTimes writes the times in a record as text, as in all other output. They are stored in ms; 0
// is never.
func withTimes(record json.RawMessage) json.RawMessage {
	return timeMembers.ReplaceAllFunc(record, func(member []byte) []byte {
		match := timeMembers.FindSubmatch(member)
		ms, err := strconv.ParseInt(string(match[2]), 10, 64)
		if err != nil {
			return member
		}
		return fmt.Appendf(nil, "%s%q", match[1], instant.Millis(ms).String())
	})
}

var timeMembers = regexp.MustCompile(`("(?:[a-zA-Z]+At|at|until)": ?)(\d+)`)

// fields returns the members of a JSON object as text. Members of inner objects are named like
// `limits.day`. Unset members are left out.
func fields(record json.RawMessage) map[string]string {
	var given map[string]json.RawMessage
	texts := map[string]string{}
	if json.Unmarshal(withTimes(record), &given) != nil {
		return texts
	}
	for name, value := range given {
		text, list := string(value), []string(nil)
		switch n, err := strconv.ParseInt(text, 10, 64); {
		case value[0] == '{':
			for inner, text := range fields(value) {
				texts[name+"."+inner] = text
			}
			continue
		case text == "0" || text == "false" || text == "null":
			continue
		case json.Unmarshal(value, &list) == nil:
			text = strings.Join(list, " ")
		case value[0] == '"':
			_ = json.Unmarshal(value, &text) // it was parsed above, so it cannot fail
		case err == nil:
			text = humanize.Comma(n)
		}
		if text != "" {
			texts[name] = text
			if of := members[name]; of.isFree || of.isWord && !plainWord.MatchString(text) {
				texts[name] = strconv.Quote(text)
			}
		}
	}
	return texts
}

// ChangeOf describes what an event has changed: `plan free → pro`.
func ChangeOf(e keystore.Event) string {
	return OrDash(difference(fields([]byte(e.Before)), fields([]byte(e.After))))
}

// Moved describes the change between two records in the words of the audit log. nil: there is no
// record. Empty: they are the same.
func Moved(was, is any) string {
	record := func(of any) map[string]string {
		text, err := json.Marshal(of)
		if err != nil {
			panic("bug: " + err.Error())
		}
		return fields(text)
	}
	return difference(record(was), record(is))
}

// SubjectOf names what an event is about besides its tenant: a key, a plan or a gateway. Empty: the
// tenant itself.
func SubjectOf(e keystore.Event) string {
	if e.Kind == keystore.GatewayForgot {
		return fields([]byte(e.Before))["id"]
	}
	v := viewEvent(e)
	return cmp.Or(v.KeyID, v.Plan)
}
