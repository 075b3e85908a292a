//go:build e2e

package e2e_test

import "petgate/shared/testkit/fleet"

func admitted(all []fleet.Shot) (n int) {
	for _, one := range all {
		if one.Status == 200 {
			n++
		}
	}
	return n
}

// inMode reports whether every gateway decides on quotas in this mode: "shared" or "outage".
func (s *quotaSite) inMode(mode string) bool {
	for _, g := range s.Gateways {
		if g.Metrics()[`petgate_gateway_limits_mode{mode="`+mode+`"}`] != 1 {
			return false
		}
	}
	return true
}
