package quotas

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/durable"
)

// outageRecord is what Redis still has to get from this gateway: requests that it admitted during
// an outage. A file keeps it over a restart, in JSON. The restarted process reports it to Redis and
// counts it as use of its own share.
type outageRecord struct {
	Gateway    string         `json:"gateway"` // whose record it is
	SavedAt    instant.Millis `json:"savedAt"` // by the clock of Redis; the use of the window counts from here
	Ahead      int64          `json:"ahead"`   // ms: the clock of Redis minus the host's
	Unreported []entry        `json:"debts"`
	// Left is what other gateways report since this gateway signed off. It only counts as use of
	// its shares.
	Left []entry `json:"left,omitempty"`
}

// entry is the unreported use of a record as it is saved.
type entry struct {
	Tenant    id.Tenant      `json:"tenant"`
	Since     instant.Millis `json:"since,omitzero"` // see store.Name
	Test      bool           `json:"test,omitzero"`
	Key       id.Key         `json:"key,omitzero"`
	Minute    int64          `json:"minute"`
	Day       int64          `json:"day"` // days since the Unix epoch
	DayUsed   int64          `json:"dayUsed"`
	MonthEnds int64          `json:"monthEnds,omitzero"` // see quota.Period
	MonthUsed int64          `json:"monthUsed,omitzero"`
}

func entryOf(n store.Name, spent quota.Use) entry {
	return entry{
		Tenant:    n.Tenant,
		Since:     n.Since,
		Test:      n.Test,
		Key:       n.Key,
		Minute:    spent.Minute,
		Day:       spent.Day.Ends - 1,
		DayUsed:   spent.Day.Used,
		MonthEnds: spent.Month.Ends,
		MonthUsed: spent.Month.Used,
	}
}

func (e *entry) name() store.Name {
	return store.Name{Tenant: e.Tenant, Since: e.Since, Test: e.Test, Key: e.Key}
}

func (e *entry) use() quota.Use {
	return quota.Use{
		Minute: e.Minute,
		Day:    quota.Period{Ends: e.Day + 1, Used: e.DayUsed},
		Month:  quota.Period{Ends: e.MonthEnds, Used: e.MonthUsed},
	}
}

// readRecord returns the record in the file. Its error wraps fs.ErrNotExist if there is none.
func readRecord(path, gateway string) (r outageRecord, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.Gateway != gateway {
		return outageRecord{}, fmt.Errorf("it was written by gateway %q, this is %q", r.Gateway, gateway)
	}
	return r, nil
}

// write replaces the file, or removes it if there is nothing to keep. A reader never sees half a
// file.
func (s *Shared) write(r *outageRecord) error {
	path := s.config.OutageFile
	if path == "" {
		return nil
	}
	if len(r.Unreported)+len(r.Left) == 0 {
		return durable.Remove(path)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Write(path, text)
}

// restore loads the record from before a restart. A file that cannot be used is ignored: this
// process then knows nothing of its earlier use, as after a first start.
func (s *Shared) restore() {
	path := s.config.OutageFile
	if path == "" {
		return
	}
	r, err := readRecord(path, s.config.GatewayID)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	s.saved = -1 // the first save replaces or removes the file
	if err != nil {
		s.config.Log.Error("the record of an outage is ignored: "+
			"what this gateway admitted before its restart is not reported to Redis", "path", path, "error", err)
		return
	}
	s.redis.Continue(time.Duration(r.Ahead) * time.Millisecond)
	now := s.redisNow()
	at := min(r.SavedAt, now)
	for _, one := range r.Unreported {
		s.standIn.restore(one, at, true)
	}
	rule := s.config.Rule
	today := int64(now) / rule.Day.Milliseconds()
	minuteEnds := at.Add(rule.Window() + rule.Slice)
	s.left = slices.DeleteFunc(r.Left, func(one entry) bool {
		return minuteEnds <= now && one.Day != today && one.MonthEnds <= today
	})
	for _, one := range s.left {
		s.standIn.restore(one, at, false)
	}
	s.config.Log.Info("the record of an outage is loaded", "tenants", len(r.Unreported))
}

// save writes the record if it has changed since the last save.
func (s *Shared) save() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.saveWith()
}

// saveWith is save for a caller that holds writing. more is what this gateway is about to take
// over.
func (s *Shared) saveWith(more ...outageRecord) error {
	mark := s.standIn.changes.Load()
	if s.config.OutageFile == "" || mark == s.saved && len(more) == 0 {
		return nil
	}
	r := s.record()
	for _, other := range more {
		r.Unreported = append(r.Unreported, other.Unreported...)
	}
	if err := s.write(&r); err != nil {
		s.metrics.unsaved.Inc()
		s.unsaved.Store(&err)
		return fmt.Errorf("quotas: save the record of the outage: %w", err)
	}
	s.unsaved.Store(nil)
	s.saved = mark
	return nil
}

func (s *Shared) record() outageRecord {
	return outageRecord{
		Gateway:    s.config.GatewayID,
		SavedAt:    s.redisNow(),
		Ahead:      s.skew().Milliseconds(),
		Unreported: s.standIn.entries(),
		Left:       s.left,
	}
}
