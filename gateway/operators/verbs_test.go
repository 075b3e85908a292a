package operators

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"petgate/shared/operate"
	"petgate/shared/testkit/must"
	"petgate/shared/testkit/verbs"
)

// Each call for a change does what its verb does. Package operate has the texts.
func TestVerbs(t *testing.T) {
	var all []verbs.Verb
	for i := range calls {
		c := &calls[i]
		verb, isChange := reflect.New(c.arguments).Elem().Interface().(operate.Preparer)
		if !isChange {
			continue
		}
		all = append(all, verbs.Verb{
			Name: c.method + c.path, Arguments: verb, NeverAsks: !c.asks,
			Send: func(t *testing.T, w *verbs.World, of verbs.Call) verbs.Answer { return sendCall(t, w, c, of) },
		})
	}
	if len(all) < 20 {
		t.Errorf("only %d calls make changes", len(all))
	}
	verbs.Check(t, "operator:prog", all)
}

// sendCall sends a call with its arguments: those that its path names, and a body or a query.
func sendCall(t *testing.T, w *verbs.World, c *call, of verbs.Call) verbs.Answer {
	t.Helper()
	s := serveSite(t, w.DB, verbs.Noon)
	path, query, body := c.path, url.Values{}, map[string]any{}
	for name, values := range of.Given {
		switch {
		case c.inPath(name):
			path = strings.Replace(path, "{"+name+"}", url.PathEscape(values[0]), 1)
		case !c.hasBody():
			query[name] = values
		case len(values) > 1:
			body[name] = values
		default:
			body[name] = values[0]
		}
	}
	if of.Sure {
		query.Set("confirm", "true")
	}
	text := ""
	if c.hasBody() {
		text = string(must.Get[[]byte](t)(json.Marshal(body)))
	}
	got := s.as(w.Token, c.method+" "+path+"?"+query.Encode(), text)
	answer := verbs.Answer{IsQuestion: got.status == http.StatusConflict, Text: got.member("message"), JSON: got.text}
	if !answer.IsQuestion && got.status != http.StatusOK && got.status != http.StatusCreated {
		t.Errorf("%d: %s", got.status, got.text)
	}
	return answer
}
