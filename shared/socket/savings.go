package socket

import (
	"os"
	"strings"
)

// variable is the environment variable that lists the savings to use, separated by commas. Without it, all are on. "none" turns
// all off; connections then behave like those of package net.
const variable = "PETGATE_SOCKETS"

// savings are the savings of this package.
type savings struct {
	quiet     bool // calls are not announced to the scheduler
	exchange  bool // Exchange skips the read that would find nothing
	deadlines bool // Deadline coalesces
}

var saves = parseSavings(os.LookupEnv(variable))

func parseSavings(list string, given bool) savings {
	if !given {
		return savings{quiet: canCallQuietly, exchange: true, deadlines: true}
	}
	var s savings
	for name := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(name) {
		case "quiet":
			s.quiet = canCallQuietly
		case "exchange":
			s.exchange = true
		case "deadlines":
			s.deadlines = true
		}
	}
	return s
}
