package app

import (
	"fmt"
	"log/slog"
	"syscall"

	"petgate/gateway/edge"
)

// otherDescriptors bounds the files that a gateway has open besides the connections to clients and
// upstreams: logs, the database, Redis, the admin port.
const otherDescriptors = 128

// fitDescriptors lowers the maximum of connections to what the limit of open files allows. It
// returns an error if the limit leaves no room for a connection.
func fitDescriptors(cfg *edge.Config, log *slog.Logger) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("app: limit of open files: %w", err)
	}
	need := uint64(cfg.Descriptors() + otherDescriptors)
	if need <= limit.Cur {
		return nil
	}
	over := need - limit.Cur
	if over >= uint64(cfg.ConnectionsMax) {
		return fmt.Errorf("app: the limit of open files is %d, and %d are needed beside those for clients: "+
			"raise it, with ulimit -n or LimitNOFILE=", limit.Cur, need-uint64(cfg.ConnectionsMax))
	}
	asked := cfg.ConnectionsMax
	cfg.ConnectionsMax -= int(over)
	log.Warn("fewer connections are held than --connections-max says: raise the limit of open files, "+
		"with ulimit -n or LimitNOFILE=",
		"connections", cfg.ConnectionsMax, "connectionsMax", asked, "openFiles", limit.Cur, "needed", need)
	return nil
}
