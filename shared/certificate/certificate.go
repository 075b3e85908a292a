// Package certificate says what is wrong with a certificate of TLS, and what an operator can do
// about it.
package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// nearlyOver is how long before its end a certificate is reported. The alert
// PetgateCertificateExpires begins then too.
const nearlyOver = 14 * 24 * time.Hour

// Fault is what is wrong with a certificate.
type Fault struct {
	IsNear bool // it ends soon, and is accepted until then

	problem, cure string
}

// Error continues a sentence that begins with the certificate, such as "expired at …".
func (f *Fault) Error() string { return f.problem }

// Cure has the problem and its cure.
func (f *Fault) Cure() string { return f.problem + ": " + f.cure }

// Check returns nil for a certificate that clients accept at an instant, and for longer than two
// weeks. If name is not empty, it has to be one of the certificate's names. It does not look at the
// issuer.
func Check(c *x509.Certificate, name string, now time.Time) *Fault {
	from, until := c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.After(c.NotAfter):
		return &Fault{problem: "expired at " + until, cure: "renew it, and replace its files"}
	case now.Before(c.NotBefore):
		return &Fault{
			problem: "is not valid before " + from,
			cure:    "check the clocks, or use the previous one until then",
		}
	case name != "" && c.VerifyHostname(name) != nil:
		names := slices.Clone(c.DNSNames)
		for _, ip := range c.IPAddresses {
			names = append(names, ip.String())
		}
		return &Fault{
			problem: fmt.Sprintf("is for %s, and not for %s", strings.Join(names, ", "), name),
			cure:    "get one that has this name, or correct the name in the settings",
		}
	case c.NotAfter.Sub(now) < nearlyOver:
		return &Fault{
			problem: fmt.Sprintf("expires at %s, in less than 14 days", until),
			cure:    "renew it, and replace its files",
			IsNear:  true,
		}
	}
	return nil
}

// Cure says why this program has refused a server's certificate, and what an operator can do about
// it. It is "" for other errors.
func Cure(err error, now time.Time) string {
	var fault *Fault
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		fault = Check(invalid.Cert, "", now)
	} else if named, ok := errors.AsType[x509.HostnameError](err); ok {
		fault = Check(named.Certificate, named.Host, now)
	} else if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "no authority that this host trusts has issued the server's certificate: " +
			"set SSL_CERT_FILE to the PEM file of its authority"
	}
	if fault == nil {
		return ""
	}
	return "the server's certificate " + fault.Cure()
}
