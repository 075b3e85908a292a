package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"petgate/shared/core/access"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

// Proxies says whom identity proxies sign in. They must remove both fields from what browsers send.
type Proxies struct {
	From []netip.Prefix // their addresses: fields of others are ignored
	// the field with the name of the person; empty: nobody is signed in by a proxy
	UserHeader   string
	GroupsHeader string                   // the field with the groups of the person, separated by commas
	Roles        map[string]sessions.Role // by group
}

// errNotAdmitted is the error for a person whom a proxy names and who may not use the console.
var errNotAdmitted = errors.New("you may not use the console")

// session returns the session of the person whom a proxy names in a request. There is none, with
// http.ErrNoCookie, if no proxy has sent the request, or if it names nobody. The session is as long
// as the request: the proxy decides each time.
func (p Proxies) session(r *http.Request) (s sessions.ConsoleSession, err error) {
	users := r.Header.Values(p.UserHeader)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if p.UserHeader == "" || len(users) == 0 || err != nil || !access.Contains(p.From, from.Addr().Unmap()) {
		return s, http.ErrNoCookie
	}
	user := strings.TrimSpace(users[0])
	if err := keystore.CheckText(user, keystore.NameRunesMax); err != nil || len(users) > 1 {
		return s, fmt.Errorf("%w: the proxy must name you once, in %s, by a name of one line", errNotAdmitted,
			p.UserHeader)
	}
	sum := sha256.Sum256([]byte(user))
	s = sessions.ConsoleSession{ID: "user-" + hex.EncodeToString(sum[:16]), Actor: keystore.ConsoleActor + user}
	for group := range strings.SplitSeq(strings.Join(r.Header.Values(p.GroupsHeader), ","), ",") {
		if role := p.Roles[strings.TrimSpace(group)]; role != "" && (s.Role == "" || role.Allows(s.Role)) {
			s.Role = role
		}
	}
	if s.Role == "" {
		return s, fmt.Errorf("%w: none of the groups of %s has a role in --console-groups", errNotAdmitted,
			operate.Printable(user))
	}
	return s, nil
}
