package redis

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

// quickRule releases slices while a history is being recorded.
var quickRule = quota.Rule{Slice: 2 * time.Millisecond, Slices: 4, Day: 50 * time.Millisecond}

// linear is the sequential model: the rule for each tenant. A history is linearizable if there is an instant for each decision,
// between its call and its return, such that the rule gives the same verdicts in the order of these instants.
func linear(rule quota.Rule) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byTenant := map[id.Tenant][]porcupine.Operation{}
			for _, op := range history {
				t := op.Input.(store.Demand).Tenant
				byTenant[t] = append(byTenant[t], op)
			}
			return slices.Collect(maps.Values(byTenant))
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			var rec quota.Record
			if form := state.(string); form != "" {
				var err error
				if rec, err = rule.Decode([]byte(form)); err != nil {
					panic("bug: " + err.Error())
				}
			}
			d, told := input.(store.Demand), output.(quota.Verdict)
			ruled := rule.Take(&rec, told.At, d.Quota())
			if state == "" && rec.IsUnused() {
				return ruled == told, state // a record that never counted anything is not kept
			}
			return ruled == told, string(rule.Append(nil, &rec))
		},
	}
}

// record lets clients compete for the quotas of two tenants. It records each demand, its verdict, and the instants of both.
func record(t *testing.T, b decider, history uint64) (ops []porcupine.Operation) {
	t.Helper()
	const clients, each = 5, 12
	began := time.Now()
	perClient := make([][]porcupine.Operation, clients)
	var all sync.WaitGroup
	for client := range clients {
		random := rand.New(rand.NewPCG(history, uint64(client)))
		all.Go(func() {
			var results [1]store.Result
			for range each {
				d := store.Demand{Request: requestOf(tenantNo(int(history)*2+random.IntN(2)), 1+random.Int64N(12), 40), Want: random.Int64N(4)}
				op := porcupine.Operation{ClientId: client, Input: d, Call: time.Since(began).Nanoseconds()}
				demands := []store.Demand{d}
				if err := b.Decide(background, demands, results[:]); err != nil || results[0].Err != nil {
					t.Error(err, results[0].Err)
					return
				}
				op.Input, op.Output, op.Return = demands[0], results[0].Verdict, time.Since(began).Nanoseconds()
				perClient[client] = append(perClient[client], op)
			}
		})
	}
	all.Wait()
	for _, own := range perClient {
		ops = append(ops, own...)
	}
	return ops
}

// batches decides one request at a time by batches.
type batches struct{ *Redis }

func (b batches) Decide(_ context.Context, demands []store.Demand, results []store.Result) error {
	d := &demands[0]
	if d.Want == 0 {
		var err error
		results[0].Verdict, err = b.Peek(background, *d)
		return err
	}
	d.Want = 1
	verdict, outcome := b.Take(store.Call{Request: d.Request})
	if outcome != Decided {
		return fmt.Errorf("outcome %d", outcome)
	}
	results[0] = store.Result{Verdict: verdict}
	return nil
}

func histories() uint64 {
	if testkit.FullSize {
		return 100
	}
	return 20
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	client, prefix := dialRedis(t)
	for name, b := range map[string]decider{
		"memory":  newMemory(quickRule, time.Now),
		"redis":   newScript(client, prefix, quickRule, takeScript),
		"batches": batches{open(t, Config{URL: "redis://" + client.Options().Addr, Prefix: prefix + "batches:", Rule: quickRule})},
	} {
		t.Run(name, func(t *testing.T) {
			decisions := 0
			for history := range histories() {
				ops := record(t, b, history)
				decisions += len(ops)
				if !porcupine.CheckOperations(linear(quickRule), ops) {
					t.Fatalf("history %d is not linearizable", history)
				}
			}
			t.Logf("linearizable: %d histories, %d decisions on %s", histories(), decisions, name)
		})
	}
}
