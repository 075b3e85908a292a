package metering

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
)

// storedWithin is longer than a gateway needs to store its usage: usually --upstream-timeout, a
// minute and a few seconds.
const storedWithin = 15 * time.Minute

// Missing says which gateways keep open hours that ended before an instant, and where usage is
// missing, for people.
func (e *Export) Missing(ctx context.Context, now, before instant.Millis) (texts []string, err error) {
	gateways, err := e.Store.Gateways(ctx)
	if err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { texts = append(texts, fmt.Sprintf(format, args...)) }
	for _, g := range gateways {
		from := max(g.UsageThrough.Truncate(time.Hour), e.Seal.Through)
		open := fmt.Sprintf("The hours from %s on are open: gateway %s", max(from, e.Since), operate.GatewayName(g))
		switch {
		case from >= before.Truncate(time.Hour):
		case g.IsSilent():
			say("%s, last seen %s ago, may have usage of them. If it will not come back: %s", open, operate.Age(g),
				operate.ForgetCommand(g.ID))
		case g.UsageThrough == 0:
			say("%s stores no usage. See its log. If its version is older than the database's schema, update it.", open)
		case now.Sub(g.UsageThrough) > storedWithin:
			say("%s has stored no usage since %s. See its log.", open, g.UsageThrough)
		}
	}
	gaps, err := usage.Of(e.Store).UsageGaps(ctx, e.Since)
	if err != nil {
		return nil, err
	}
	for _, gap := range gaps {
		if gap.Since >= e.Until {
			continue
		}
		end, missing := gap.SeenAt, "some may be missing, usually the last 3 seconds"
		if gap.Cause == keystore.GapDropped {
			end, missing = gap.NotedAt, "some is missing"
		} else if end < e.Since {
			end = gap.NotedAt
		}
		say("Gateway %s %s. Of what it counted from %s to %s, %s.",
			operate.Printable(gap.Gateway), endings[gap.Cause], max(gap.Since, e.Since), end, missing)
	}
	return texts, nil
}

// endings say why gateways did not store all their usage.
var endings = map[string]string{
	keystore.GapKilled: "was killed", keystore.GapForgotten: "was forgotten", keystore.GapFenced: "was fenced",
	keystore.GapUnwritten: "could not write its last usage",
	keystore.GapDropped:   "dropped usage, because it could not write for too long",
}
