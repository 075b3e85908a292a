package quotas

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// What a gateway admitted in an outage still counts as its use after a restart, and is charged when
// Redis is back.
func TestUnreportedRequestsSurviveARestart(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(23 * time.Hour) // before there are gateways, an hour costs no work
		s, r := newSiteWithFiles(t, 3, files), asking(1, 100)
		s.server.fail(errRefused)
		must.Equal(t, s.use(r, s.gateways[0])+s.use(r, s.gateways[1]), 66, "admitted in the outage")
		s.restart(0)
		time.Sleep(saveEvery * 3 / 2)
		s.kill(1)
		s.start(1)
		must.Equal(t, s.use(r, s.gateways[0])+s.use(r, s.gateways[1]), 0, "more admitted after the restarts")
		s.back()
		if v := mustTake(t, s.gateways[2], r); v.Usages[quota.Minute].Used != 67 || v.Usages[quota.Day].Used != 67 {
			t.Errorf("after the outage: %+v, want 66 + 1 used", v)
		}
		time.Sleep(saveEvery * 3 / 2)
		if left, err := os.ReadDir(files); err != nil || len(left) != 0 {
			t.Errorf("all is reported, but there are files: %v, %v", left, err)
		}

		// Redis is back before the gateway.
		mustTake(t, s.gateways[0], r)
		s.server.fail(errRefused)
		must.Equal(t, s.use(asking(2, 100), s.gateways[1]), 33,
			"admitted by a process that has reported to Redis since it started")
		admitted := s.use(r, s.gateways[0])
		must.Do(t, s.gateways[0].Close(always))
		s.server.fail(nil)
		s.start(0)
		if v := mustTake(t, s.gateways[2], r); v.Usages[quota.Minute].Used != 68+admitted+1 || admitted != (100-68)/3 {
			t.Errorf("%d admitted in a second outage, then %+v", admitted, v)
		}

		// On the next day, nothing is reported.
		s.server.fail(errRefused)
		s.use(r, s.gateways[1])
		must.Do(t, s.gateways[1].Close(always))
		time.Sleep(time.Hour)
		s.server.fail(nil)
		s.start(1)
		if v := mustTake(t, s.gateways[1], r); v.Usages[quota.Minute].Used != 1 || v.Usages[quota.Day].Used != 1 {
			t.Errorf("a day later: %+v", v)
		}
	})
}

// A gateway that is killed loses the last second of its record. For a tenant that is not in the
// record, it then admits one more request.
func TestKilledInAnOutage(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, r := newSiteWithFiles(t, 2, files), asking(1, 100)
		s.server.fail(errRefused)
		for range 20 {
			mustTake(t, s.gateways[0], r)
		}
		time.Sleep(saveEvery * 3 / 2)
		lost := s.use(r, s.gateways[0])
		s.kill(0)
		s.start(0)
		must.Equal(t, s.use(r, s.gateways[0]), 0, "more admitted")
		other := asking(2, 100)
		lost += s.use(other, s.gateways[0])
		s.kill(0)
		s.start(0)
		must.Equal(t, s.use(other, s.gateways[0]), 1, "admitted of a tenant that is not in the record")
		s.back()
		if v := mustTake(t, s.gateways[1], r); v.Usages[quota.Minute].Used != 21 || lost != 30+1 {
			t.Errorf("after the outage: %+v; %d lost", v, lost)
		}
	})
}

// A host's clock that is set back between two processes does not make the use of a record last
// longer.
func TestRecordOfALaterClock(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, r := newSiteWithFiles(t, 1, files), asking(1, 100)
		s.server.fail(errRefused)
		s.use(r, s.gateways[0])
		s.end(0)
		s.clockStep.Add(-int64(time.Hour))
		s.start(0)
		time.Sleep(2 * time.Minute)
		must.Equal(t, s.use(r, s.gateways[0]), 1, "admitted two minutes later")
	})
}

// A record that cannot be written is reported until it is written.
func TestOutageFileThatCannotBeWritten(t *testing.T) {
	files := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		obstacle := filepath.Join(files, "file")
		must.Do(t, os.WriteFile(obstacle, nil, 0o600))
		s := newSiteWithFiles(t, 1, obstacle) // a directory is needed
		s.server.fail(errRefused)
		for _, isWritable := range []bool{false, true} {
			if isWritable {
				must.Do(t, os.Remove(obstacle))
			}
			s.use(asking(1, 100), s.gateways[0])
			time.Sleep(saveEvery * 3 / 2)
			problems := fmt.Sprint(s.gateways[0].Health(always))
			if strings.Contains(problems, "cannot be saved") == isWritable {
				t.Errorf("writable: %t; problems: %s", isWritable, problems)
			}
		}
	})
}

// A file that cannot be used is reported and ignored. The gateway then begins with the least share.
func TestUnusableOutageFile(t *testing.T) {
	f := func(name string, from int, spoil func(text []byte) []byte) {
		files := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			s, r := newSiteWithFiles(t, 2, files), asking(1, 100)
			s.server.fail(errRefused)
			s.use(r, s.gateways[from])
			s.end(from)
			text, err := os.ReadFile(s.file(from))
			if err != nil || !strings.Contains(string(text), `"minute":50`) {
				t.Fatalf("the record of 50 requests: %q, %v", text, err)
			}
			must.Do(t, os.WriteFile(s.file(0), spoil(text), 0o600))
			s.start(0)
			must.Equal(t, s.use(r, s.gateways[0]), 1, "%s: admitted", name)
			if log := s.logs.String(); strings.Count(log, "level=ERROR") != 1 ||
				!strings.Contains(log, "record of an outage is ignored") {
				t.Errorf("%s: log:\n%s", name, log)
			}
		})
	}
	f("empty", 0, func([]byte) []byte { return nil })
	f("cut off", 0, func(text []byte) []byte { return text[:len(text)-1] })
	f("of gw-1", 1, func(text []byte) []byte { return text })
}
