package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

// visit is a request of an open session.
type visit struct {
	session  sessions.ConsoleSession
	store    *keystore.Store  // its events name the session's person
	operator operate.Operator // of the store
	note     *note            // what the form before has changed; nil: nothing
	hasLeft  func() bool      // whether the browser has gone
	form     string           // the path of the page with the form that was sent; empty: none was
}

// ifMay returns a sentence about a form of the page. A session that may not send the form does not
// see it.
func (v *visit) ifMay(role sessions.Role, sentence string) string {
	return operate.Either(v.session.Role.Allows(role), sentence, "")
}

// cookieName returns the name of the cookie with a session's token. A browser has one set of
// cookies for all ports of a host (RFC 6265, section 8.5), so the name has the port: two consoles
// may be forwarded to one host. The prefix makes browsers refuse a cookie that came without TLS.
func cookieName(r *http.Request) string {
	name := "petgate-console"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		return "__Secure-" + name
	}
	return name
}

// setCookie sets the cookie of a session, which the browser forgets when it closes, or removes it
// if token is empty. The session ends in the database.
func setCookie(w http.ResponseWriter, r *http.Request, token string) {
	cookie := http.Cookie{
		Name:     cookieName(r),
		Value:    token,
		Path:     "/console",
		HttpOnly: true,
		Secure:   r.TLS != nil,
		SameSite: http.SameSiteStrictMode,
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, &cookie)
}

// rememberedWithin is how long the database has to confirm a session that it has confirmed before.
const rememberedWithin = time.Second

// sessionOf returns the open session of a request: that of an identity proxy, or that of the
// cookie. If the database is away, it is the one that the database has confirmed before: that is
// enough for reading. Errors: http.ErrNoCookie, or keystore.ErrNotFound if the session has ended.
func (c *Console) sessionOf(
	ctx context.Context, store *keystore.Store, r *http.Request,
) (session sessions.ConsoleSession, err error) {
	if session, err = c.cfg.Proxies.session(r); !errors.Is(err, http.ErrNoCookie) {
		return session, err
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return session, err
	}
	token := sha256.Sum256([]byte(cookie.Value))
	kept, isKept := c.sessions.Load(token)
	if isKept && isRead(r) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rememberedWithin)
		defer cancel()
	}
	if err = store.Reopen(); err == nil {
		session, err = sessions.Of(store).ConsoleSession(ctx, cookie.Value)
	}
	switch {
	case err == nil:
		c.sessions.Store(token, session)
	case errors.Is(err, keystore.ErrNotFound):
		c.sessions.Delete(token)
	case isKept && isRead(r) && !hasLeft(r):
		if remembered := kept.(sessions.ConsoleSession); instant.Of(c.cfg.Clock()) < remembered.EndsAt {
			return remembered, nil
		}
	}
	return session, err
}

// handler serves a request of an open session.
type handler func(http.ResponseWriter, *http.Request, *visit) error

// inSession serves requests of an open session that has a role. It sends those without a session to
// the page that opens one.
func (c *Console) inSession(role sessions.Role, serve handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		store := c.cfg.Store
		if !isRead(r) {
			store = c.cfg.Forms
		}
		session, err := c.sessionOf(r.Context(), store, r)
		switch {
		case errors.Is(err, http.ErrNoCookie):
			toLogin(w, r, "")
			return
		case errors.Is(err, keystore.ErrNotFound):
			setCookie(w, r, "")
			toLogin(w, r, "?ended")
			return
		case hasLeft(r):
			return
		case errors.Is(err, errNotAdmitted):
			_ = c.say(w, nil, http.StatusForbidden, "You may not use this console", sentence(err.Error()))
			return
		case errors.Is(err, keystore.ErrUnavailable) && !isRead(r):
			c.cfg.Log.Warn("console: the database cannot be used", "error", err)
			_ = c.say(
				w,
				nil,
				http.StatusServiceUnavailable,
				"Forms are closed",
				"Nothing was changed. The database is away; the overview shows what the gateways do. The error: "+
					""+err.Error(),
			)
			return
		case err != nil:
			c.fail(w, nil, err)
			return
		}
		store = store.As(session.Actor)
		v := &visit{
			session:  session,
			store:    store,
			operator: operate.Operator{Store: store, Clock: c.cfg.Clock},
			hasLeft:  func() bool { return hasLeft(r) },
		}
		if kept, isKept := c.notes.Load(r.URL.Query().Get("done")); isKept && kept.(*note).session == session.ID {
			v.note = kept.(*note)
		}
		switch {
		case !session.Role.Allows(role):
			err = c.say(
				w,
				v,
				http.StatusForbidden,
				operate.Either(v.session.Role == sessions.RoleRead, "This session is read-only",
					"This session may only change keys and bans"),
				"Nothing was changed. For a session that may do more, run keyadmin console without --read-only, "+
					"or have the identity provider put you into another group.",
			)
		case hasToken(url.Values{"": {r.URL.Path}}) || hasToken(r.URL.Query()):
			err = c.say(w, v, http.StatusBadRequest, "An address must not have a token", tokenPasted)
		case !utf8.ValidString(r.URL.Path) || strings.Contains(r.URL.Path, "\x00"):
			err = c.say(w, v, http.StatusBadRequest, "This address cannot be read",
				"It contains bytes that are not text.")
		default:
			err = serve(w, r, v)
		}
		if err != nil {
			c.fail(w, v, err)
		}
	}
}

// withoutSession serves requests that need no session.
func (c *Console) withoutSession(serve func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			c.fail(w, nil, err)
		}
	}
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// hasLeft reports whether the browser has gone without waiting for the response.
func hasLeft(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// toLogin answers a request without an open session. The script gets an error: it would take the
// login page for figures.
func toLogin(w http.ResponseWriter, r *http.Request, query string) {
	if r.URL.Path == livePath {
		http.Error(w, "There is no open session.", http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, loginPath+query, http.StatusSeeOther)
}

const tokenPasted = "Use the ID of the key, key_…. The token is not repeated here. If it was in the address of " +
	"a page, the history of the " +
	"browser has it now: rotate its key."

// hasToken reports whether a value has a token.
func hasToken(values url.Values) bool {
	for _, all := range values {
		if operate.HasToken(strings.Join(all, " ")) {
			return true
		}
	}
	return false
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) error {
	problem := operate.Either(r.URL.Query().Has("ended"), "Your session has ended.", "")
	return c.show(w, nil, http.StatusOK, "login", "Sign in", problem)
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) error {
	if err := c.cfg.Forms.Reopen(); err != nil {
		return err
	}
	token, session, err := sessions.Of(c.cfg.Forms).OpenConsole(r.Context(), r.PostFormValue("code"), c.cfg.Address)
	if errors.Is(err, keystore.ErrNotFound) {
		return c.show(
			w,
			nil,
			http.StatusForbidden,
			"login",
			"Sign in",
			"This code cannot be used. A code works once, within a minute, and only at the gateway of its link. "+
				"Get a new link with keyadmin console.",
		)
	}
	if err != nil {
		return err
	}
	c.cfg.Log.Info("console: session opened", "session", session.ID, "actor", session.Actor, "until",
		session.EndsAt.String())
	setCookie(w, r, token)
	http.Redirect(w, r, Home, http.StatusSeeOther)
	return nil
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request, v *visit) error {
	if err := sessions.Of(v.store).EndConsole(r.Context(), v.session); err != nil {
		return err
	}
	c.sessions.Clear() // the others are confirmed again
	setCookie(w, r, "")
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
	return nil
}
