package quotas

import (
	"context"
	"log/slog"
	"time"

	"petgate/shared/background"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/usage"
)

// saveEvery is how often in-process quotas, or the record of an outage, are saved. If a save takes
// long, the next one comes later: see keepSaving. A killed process loses what it has not saved yet.
const saveEvery = time.Second

// Saver keeps the quota records of a process that decides without Redis.
type Saver interface {
	// SaveQuotas replaces the saved records of these tenants; now is the time of the save.
	SaveQuotas(ctx context.Context, now instant.Millis, records []usage.QuotaRecord) error
	// LoadQuotas returns all saved records.
	LoadQuotas(ctx context.Context) ([]usage.QuotaRecord, error)
}

// keepSaving saves what has changed until closing ends. What could not be saved is saved with the
// next second's changes. A save that takes long, because an outage has very many tenants, is
// followed by a longer pause: it uses at most a twentieth of a processor.
func keepSaving(closing context.Context, log *slog.Logger, save func() error) {
	failing := false
	for pause := saveEvery; background.Pause(closing, pause); {
		began := time.Now()
		err := save()
		pause = max(saveEvery, 19*time.Since(began))
		if err != nil && !failing {
			log.Error("quotas cannot be saved: a restart would forget them", "error", err)
		} else if err == nil && failing {
			log.Info("quotas are saved again")
		}
		failing = err != nil
	}
}
