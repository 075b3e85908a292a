package operators

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// setOnce reads the Idempotency-Key of a change.
func (v *visit) setOnce(r *http.Request, c *call, body []byte) error {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 || !c.isOnce() {
		return nil
	}
	v.key = keys[0]
	if len(keys) > 1 || v.key == "" || len(v.key) > 255 {
		return failure{
			status: http.StatusBadRequest, code: "invalid_request", field: "Idempotency-Key",
			message: "Idempotency-Key must be one text of 1 to 255 characters",
		}
	}
	id := hmac.New(sha256.New, []byte(v.token))
	id.Write([]byte("request " + v.key))
	asked := sha256.Sum256(slices.Concat([]byte(r.Method+" "+r.URL.EscapedPath()+"\n"), body))
	v.once = &keystore.Request{
		ID:   hex.EncodeToString(id.Sum(nil)),
		Body: hex.EncodeToString(asked[:]),
		Salt: rand.Text(),
	}
	err := v.findOnce()
	if errors.Is(err, keystore.ErrNotFound) {
		if err = v.derive(); err == nil {
			v.operator.Store = v.operator.Store.Once(*v.once)
		}
	}
	return err
}

// findOnce finds out whether the request was carried out before. Errors: keystore.ErrNotFound.
func (v *visit) findOnce() error {
	found, _, err := v.operator.Store.Request(v.ctx, v.once.ID)
	if err != nil {
		return err
	}
	if found.Body != v.once.Body {
		return failure{
			status: http.StatusUnprocessableEntity, code: "idempotency_key_reused", field: "Idempotency-Key",
			message: "another request had this Idempotency-Key: use a new one",
		}
	}
	v.once = &found
	return v.derive()
}

// derive makes what the token of a new key is made from.
func (v *visit) derive() (err error) {
	v.once.Random, err = hkdf.Key(sha256.New, []byte(v.token), []byte(v.once.Salt), "key of "+v.key, 512)
	return err
}

// replay answers a request that was carried out before: with what it has changed, as it is now.
func (a *API) replay(r *http.Request, v *visit) (answer, error) {
	_, e, err := v.operator.Store.Request(v.ctx, v.once.ID)
	if err != nil {
		return answer{}, err
	}
	view, err := v.changed(e)
	if err != nil {
		return answer{}, err
	}
	made := a.confirm(r, v, v.once.Event, "may not have applied it yet", view)
	made.isReplayed = true
	return made, nil
}

// changed returns the view of what an event has changed, as it is now.
func (v *visit) changed(e keystore.Event) (any, error) {
	switch {
	case e.Kind == keystore.BanAdded:
		var ban keystore.Ban
		if err := json.Unmarshal([]byte(e.After), &ban); err != nil {
			return nil, err
		}
		t, k, err := v.operator.Key(v.ctx, e.Key)
		return operate.ViewBan(ban, t.Name, k.Name), err
	case !e.Key.IsZero():
		_, k, err := v.operator.Key(v.ctx, e.Key)
		if err != nil {
			return nil, err
		}
		if e.Kind != keystore.KeyRotated {
			return v.withToken(k)
		}
		_, fresh, err := v.operator.Key(v.ctx, k.ReplacedBy)
		if err != nil {
			return nil, err
		}
		view, err := v.withToken(fresh)
		return operate.RotationView{
			KeyView:        view,
			Replaces:       k.ID.String(),
			OldGraceEndsAt: k.GraceEndsAt.String(),
			Repeated:       view.Token == "",
		}, err
	case !e.Tenant.IsZero():
		t, err := v.operator.Tenant(v.ctx, e.Tenant.String())
		return t.View(), err
	case e.Plan != "":
		p, err := v.operator.Store.Plan(v.ctx, e.Plan)
		return operate.ViewPlan(p), err
	}
	return nil, failure{
		status: http.StatusConflict, code: "conflict",
		message: "this request was carried out, and its change is no longer in the audit log",
	}
}

// withToken returns the view of a key, with its token if this request has made it.
func (v *visit) withToken(k keystore.Key) (operate.KeyView, error) {
	view, err := v.operator.ShowKey(v.ctx, k.ID)
	if err != nil {
		return view, err
	}
	token, err := v.once.Token(k.Environment)
	if err != nil {
		return view, err
	}
	if made, err := v.operator.Store.KeyByToken(v.ctx, token); err == nil && made.ID == k.ID {
		view.Token = token
	} else if err != nil && !errors.Is(err, keystore.ErrNotFound) {
		return view, err
	}
	return view, nil
}
