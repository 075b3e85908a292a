package quotas

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"petgate/gateway/quotas/store"
	"petgate/shared/background"
	"petgate/shared/core/quota"
)

// fleetEvery is how often the other gateways are looked at.
const fleetEvery = time.Second

// fleet is what this gateway knows of the others, for its shares. What a gateway admitted still
// counts after it has left. For the minute, shares divide by the largest number of gateways of the
// last window. For the day and the month, a gateway that leaves writes down what Redis has not got.
type fleet struct {
	largest atomic.Int64                             // number of gateways
	left    atomic.Pointer[map[store.Name]quota.Use] // admitted by gateways that have left; Redis has not got it

	// Only watch uses the following fields.
	numbers    []int64         // numbers of gateways, of the last window and slice
	texts      []string        // the texts from which left was read
	adopted    map[string]bool // reported here, although the database may still have them: a commit failed
	complaints rate.Sometimes
}

func newFleet(window time.Duration) *fleet {
	return &fleet{numbers: make([]int64, window/fleetEvery+2), complaints: rate.Sometimes{Interval: time.Minute}}
}

// leftOf returns a record's use that gateways have left.
func (f *fleet) leftOf(n store.Name) quota.Use {
	if left := f.left.Load(); left != nil {
		return (*left)[n]
	}
	return quota.Use{}
}

// watch follows the other gateways until closing ends, also while Redis answers.
func (s *Shared) watch(closing context.Context) {
	f := s.fleet
	for n := 0; n == 0 || background.Pause(closing, fleetEvery); n++ {
		f.numbers[n%len(f.numbers)] = s.config.liveGateways()
		f.largest.Store(slices.Max(f.numbers))
		if s.config.Leavers != nil {
			s.followLeavers(closing)
		}
	}
}

// followLeavers reads what gateways have left. While Redis decides, it adopts that and reports
// it.
func (s *Shared) followLeavers(ctx context.Context) {
	f, texts := s.fleet, s.config.Leavers.Unreported()
	if !slices.Equal(f.texts, texts) {
		left := map[store.Name]quota.Use{}
		for _, r := range s.readAll(texts) {
			for _, d := range r.Unreported {
				left[d.name()] = plus(left[d.name()], d.use())
			}
		}
		f.texts = texts
		f.left.Store(&left)
	}
	if len(texts) == 0 || !s.decides(ctx) {
		return
	}
	if err := s.config.Leavers.TakeUnreported(ctx, s.adopt); err != nil {
		f.complaints.Do(func() {
			s.config.Log.Warn("what gateways have left cannot be reported to Redis yet", "error", err)
		})
		return
	}
	f.adopted = nil
	s.redis.Resume()
}

// decides reports whether Redis decides. It asks Redis, because a gateway without requests may not
// have noticed an outage.
func (s *Shared) decides(ctx context.Context) bool {
	for n := range *s.fleet.left.Load() {
		_, err := s.peek(ctx, store.Request{Name: n})
		return err == nil && !s.redis.IsDown()
	}
	return !s.redis.IsDown()
}

// adopt turns requests that gateways have left into unreported requests of this one. They are in
// the file before the database drops them. A process that is killed between the two leaves them in
// both, and they are reported twice.
func (s *Shared) adopt(texts []string) error {
	texts = slices.DeleteFunc(texts, func(text string) bool { return s.fleet.adopted[text] })
	records := s.readAll(texts)
	s.writing.Lock() // until restore has them: another save would remove them from the file
	defer s.writing.Unlock()
	if err := s.saveWith(records...); err != nil {
		return err
	}
	for _, r := range records {
		for _, one := range r.Unreported {
			s.standIn.restore(one, min(r.SavedAt, s.redisNow()), true)
		}
		s.config.Log.Info("this gateway reports to Redis what another one has left", "gateway", r.Gateway, "tenants",
			len(r.Unreported))
	}
	if s.fleet.adopted == nil {
		s.fleet.adopted = map[string]bool{}
	}
	for _, text := range texts {
		s.fleet.adopted[text] = true
	}
	return nil
}

// readAll reads texts that Leave wrote.
func (s *Shared) readAll(texts []string) (all []outageRecord) {
	for _, text := range texts {
		var r outageRecord
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			s.config.Log.Error("what a gateway has left cannot be read: Redis does not get it", "error", err)
			continue
		}
		all = append(all, r)
	}
	return all
}

// Leave is called once, after Close. It calls signOff with the requests that Redis has not got, as
// a text for the other gateways; "" if there are none. If signOff returns true, another gateway
// will report them. Otherwise, or if this process is killed before signOff succeeds, the next start
// of this gateway does it, from the file.
func (s *Shared) Leave(signOff func(unreported string) bool) {
	s.writing.Lock()
	defer s.writing.Unlock()
	r := s.record()
	text, err := json.Marshal(&r)
	switch {
	case err != nil || len(r.Unreported) == 0:
		signOff("")
	case !signOff(string(text)):
		s.config.Log.Warn("Redis has not got all requests of an outage: "+
			"only the next start of this gateway reports them, from the file",
			"tenants", len(r.Unreported), "path", s.config.OutageFile)
	default:
		// The next start has to know that its shares are used up.
		r.Left = append(r.Left, r.Unreported...)
		r.Unreported = nil
		if err := s.write(&r); err != nil {
			s.config.Log.Error("requests of an outage may be reported to Redis twice", "error", err)
		}
	}
}
