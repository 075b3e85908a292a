package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type doctorCommand struct{}

// finding is something that is wrong, as JSON; scripts rely on its fields.
type finding struct {
	Part    string `json:"part"` // database, schema, redis, or the IDs of the gateways that have it
	Problem string `json:"problem"`
	Cure    string `json:"cure"`
}

// errUnhealthy is returned when doctor has found something.
var errUnhealthy = errors.New("something is wrong: see above")

func (doctorCommand) Run(ctx context.Context, a *app) error {
	d := doctor{app: a}
	d.examine(ctx)
	slices.SortStableFunc(d.findings, func(a, b finding) int { return cmp.Compare(a.Part, b.Part) })
	answered := operate.Plural(d.answered, "gateway")
	t := table{
		head: []string{"PART", "PROBLEM", "CURE"},
		none: "Nothing is wrong: the database is current, and " + answered + " without a problem.",
	}
	err := printViews(a, d.findings, t, func(f finding) []string { return []string{f.Part, f.Problem, f.Cure} })
	if err == nil && len(d.findings) > 0 {
		err = errUnhealthy
	}
	return err
}

// doctor collects findings.
type doctor struct {
	app      *app
	findings []finding
	answered int            // gateways
	causes   map[string]int // the findings by the cause of a gateway's problem
}

// find adds a finding, once. It returns its index.
func (d *doctor) find(part, problem, cure string) int {
	f := finding{part, operate.Printable(d.app.asCalled(strings.ReplaceAll(problem, "\n", ". "))), d.app.asCalled(cure)}
	at := slices.Index(d.findings, f)
	if at < 0 {
		at = len(d.findings)
		d.findings = append(d.findings, f)
	}
	return at
}

// The limits of what is normal.
const (
	lagMax          = 3 * time.Second // how long a gateway may need for a change
	clockSkewMax    = time.Second     // between two hosts
	redisVersionMin = 6               // major; the tests run with 7
)

func (d *doctor) examine(ctx context.Context) {
	if !d.examineDatabase(ctx) {
		return
	}
	store := d.app.operator.Store
	gateways, err := store.Gateways(ctx)
	last, lastErr := store.LastEvent(ctx)
	if err = cmp.Or(err, lastErr); err != nil {
		d.find("database", err.Error(),
			"let the role in the URL of the database read the tables, as in deploy/docker/roles.sql")
		return
	}
	lost, err := store.LostRefusals(ctx)
	if err == nil && len(lost) > 0 {
		d.find("database",
			operate.Plural(len(lost), "refusal")+" that gateways keep in force: the database has lost the changes",
			"repeat each change, or end it: `keyadmin gateway lost` lists them")
	}
	if len(gateways) == 0 {
		d.find("gateways", "no gateway is registered", "start one with the same DATABASE_URL")
	}
	holders, err := store.LockHolders(ctx)
	if err != nil {
		d.find("database", err.Error(), "run deploy/docker/roles.sql again")
	}
	for _, h := range holders {
		if h.Age < 0 || h.Age > lagMax.Milliseconds() {
			d.find("database", h.String(), h.Cure())
		}
	}
	d.examineRows(gateways, last)
	d.examineAnswers(ctx, gateways)
}

// examineDatabase opens the database. It reports whether the rest can be examined.
func (d *doctor) examineDatabase(ctx context.Context) bool {
	url, err := d.app.databaseURL()
	if err != nil {
		d.find("database", err.Error(), "correct the path of --database-url-file")
		return false
	}
	err = d.app.open(ctx)
	part, cure := "database", "start it, or correct $DATABASE_URL"
	switch {
	case err == nil:
		return true
	case errors.Is(err, keystore.ErrOutdated) && strings.Contains(err.Error(), "have version 0,"):
		part, cure = "schema", "correct $DATABASE_URL if it names another database, such as that of the pets; "+
			"otherwise `keyadmin migrate`"
	case errors.Is(err, keystore.ErrOutdated):
		part, cure = "schema", "`keyadmin migrate`"
	case errors.Is(err, keystore.ErrForeign):
		part, cure = "schema", "correct $DATABASE_URL"
	case errors.Is(err, keystore.ErrSchema):
		part, cure = "schema", "use the version of keyadmin that fits the database"
	case errors.Is(err, database.ErrNoFile):
		cure = "correct $DATABASE_URL, restore the file from a backup, or create it: `keyadmin migrate`"
	case strings.HasPrefix(url, "sqlite:"):
		cure = "correct $DATABASE_URL, or restore the file from a backup"
	case strings.Contains(err.Error(), "correct DATABASE_URL"): // the server has answered
		cure = "correct $DATABASE_URL"
	}
	d.find(part, err.Error(), cure)
	return false
}

// examineRows looks at what the gateways have registered.
func (d *doctor) examineRows(gateways []keystore.Gateway, last keystore.Change) {
	for _, g := range gateways {
		name := operate.Printable(g.ID)
		state := g.State(last)
		if problem, cure := operate.GatewayTrouble(g, state); problem != "" {
			d.find(name, problem, cure)
		}
		switch state {
		case keystore.GatewayBehind, keystore.GatewayStarting:
			if d.recent() {
				continue
			}
			d.find(name, fmt.Sprintf("it has yet to apply %s", operate.Plural(int(last-g.Applied), "change")),
				"look for errors in its log")
		}
	}
}

// recent reports whether the last change was made a moment ago, so that gateways may still be
// applying it.
func (d *doctor) recent() bool {
	events, err := lists.Of(d.app.operator.Store).FindEvents(context.Background(),
		lists.EventFilter{Since: d.app.now().Add(-lagMax)}, 0, 1)
	return err == nil && len(events) > 0
}

// examineAnswers asks all gateways at once, and compares them.
func (d *doctor) examineAnswers(ctx context.Context, gateways []keystore.Gateway) {
	var answered []operate.About
	for _, answer := range operate.AskAll(ctx, gateways) {
		name := operate.Printable(answer.Gateway.ID)
		if answer.Err != nil {
			d.find(name, "its admin port does not answer: "+answer.Err.Error(),
				"run keyadmin where the admin ports can be reached; check GATEWAY_ADMIN_LISTEN and GATEWAY_ADMIN_HOSTS")
			continue
		}
		for _, p := range answer.Problems {
			d.findProblem(name, p)
		}
		for _, server := range answer.Redis {
			d.examineRedis(name, server)
		}
		answered = append(answered, answer)
	}
	d.compareGateways(answered)
	d.answered = len(answered)
}

// findProblem adds a problem of a gateway. If other problems have the same cause, such as a full
// disk, it is one finding of all gateways.
func (d *doctor) findProblem(gateway string, p service.Problem) {
	_, cure, hasCause := strings.Cut(p.Cure, ": ")
	if !hasCause {
		cure = cmp.Or(p.Cure, service.CureOf(p.Name))
	}
	id := p.Cure
	if id == "" || id == service.CureOf(p.Name) { // the cause is not known
		id = p.Name + p.Detail
	}
	if d.causes == nil {
		d.causes = map[string]int{}
	}
	at, known := d.causes[id]
	if !known {
		d.causes[id] = d.find(gateway, p.Name+": "+p.Detail, cure)
	} else if known := &d.findings[at]; !slices.Contains(strings.Split(known.Part, ", "), gateway) {
		known.Part += ", " + gateway
	}
}

func (d *doctor) examineRedis(gateway string, s operate.RedisServer) {
	part := "redis"
	if s.Error != "" {
		d.find(part,
			fmt.Sprintf("%s does not answer gateway %s: %s", cmp.Or(s.Address, "the cluster"), gateway, s.Error),
			service.CureOf("quotas"))
		return
	}
	major, _, _ := strings.Cut(s.Version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < redisVersionMin {
		d.find(part, fmt.Sprintf("%s has version %s", s.Address, cmp.Or(s.Version, "unknown")),
			"use Redis 7 or newer: older ones are not tested")
	}
	if s.Policy != "noeviction" {
		d.find(part,
			fmt.Sprintf("%s may drop quotas when its memory is full: maxmemory-policy %s", s.Address, s.Policy),
			"redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf")
	}
	if !s.AppendOnly {
		d.find(part, s.Address+" forgets all quotas in a restart: appendonly no",
			"redis-cli CONFIG SET appendonly yes, and the same in redis.conf")
	}
	if skew := time.Duration(s.SkewMillis) * time.Millisecond; skew.Abs() > clockSkewMax {
		d.find(
			part,
			fmt.Sprintf("the clock of %s differs by %s from that of gateway %s", s.Address,
				skew.Abs().Round(100*time.Millisecond), gateway),
			service.CureOf("clock"),
		)
	}
}

// compareGateways finds settings and versions that differ between gateways of one environment.
func (d *doctor) compareGateways(answered []operate.About) {
	byEnvironment := map[string][]operate.About{}
	for _, g := range answered {
		byEnvironment[g.Environment] = append(byEnvironment[g.Environment], g)
	}
	for _, environment := range slices.Sorted(maps.Keys(byEnvironment)) {
		group := byEnvironment[environment]
		compare := func(what, cure string, value func(operate.About) string) {
			gatewaysOf := map[string][]string{}
			for _, g := range group {
				gatewaysOf[value(g)] = append(gatewaysOf[value(g)], operate.Printable(g.Gateway.ID))
			}
			var parts []string
			for _, v := range slices.Sorted(maps.Keys(gatewaysOf)) {
				parts = append(parts, fmt.Sprintf("%s at %s", cmp.Or(v, "none"), strings.Join(gatewaysOf[v], ", ")))
			}
			if len(parts) > 1 {
				d.find("gateways", what+strings.Join(parts, "; "), cure)
			}
		}
		compare("their versions differ: ", "finish the upgrade", func(g operate.About) string { return g.Version })
		compare("they serve different documents: ",
			"give all gateways the same file as GATEWAY_API, and send them SIGHUP",
			func(g operate.About) string { return operate.Printable(g.Gateway.Document.String()) })
		for _, setting := range slices.Sorted(maps.Keys(group[0].Settings)) {
			compare(operate.Either(setting == "redis-url", "REDIS_URL", "--"+setting)+" differs: ",
				"give all gateways the same value", func(g operate.About) string { return g.Settings[setting] })
		}
	}
}
