package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"petgate/shared/operate"
	"petgate/shared/operate/declare"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	s := newShell(t, testkit.SQLite(t))
	s.want(exitFailed, "`keyadmin migrate` creates it", "tenant", "list")
	if got := s.keyadmin("migrate", "-o", "csv").stdout; !strings.HasPrefix(got, "from,to\r\n0,") {
		t.Errorf("migrate: %q", got)
	}
	s.want(exitDone, "The key tables are up to date", "migrate")
	must.Get[sql.Result](t)(s.open().Exec(`UPDATE keys_schema SET version_id = version_id + 1000`))
	s.want(exitFailed, "upgrade the program", "tenant", "list")
	s.want(exitFailed, "use a newer keyadmin", "migrate")
}

// The columns of CSV are the members of JSON, which scripts rely on.
func TestFields(t *testing.T) {
	t.Parallel()
	const (
		limits = "limits.minute,limits.day,limits.month"
		shares = "minuteUsed,minuteLimit,minuteShare,dayUsed,dayLimit,dayShare,bannedKeys," +
			"monthUsed,monthLimit,monthShare"
		explain = "%[1]s.limit,%[1]s.used,%[1]s.remaining,%[1]s.resetAt"
	)
	policy := func(name string) string { return fmt.Sprintf(explain, name) }
	for want, rows := range map[string]any{
		"id,name,plan," + limits + ",override.minute,override.day,override.month,monthStarts,suspended,createdAt": []operate.TenantView{},

		"name," + limits + ",test.minute,test.day,test.month,createdAt": []operate.PlanView{},

		"id,token,tenantId,tenant,name,hint,environment,scopes,allow," + limits + ",status,createdAt,expiresAt,revokedAt,graceEndsAt," +
			"replacedBy,bannedUntil,lastUsedAt,lastRefusedAt,disabledAt,replaces,oldGraceEndsAt,repeated": []operate.RotationView{},

		"keyId,key,tenantId,tenant,imposedAt,until,automatic,reason,notice,by": []operate.BanView{},

		"id,adminAddress,state,applied,lag,registeredAt,seenAt,ageMillis,generation,document.hash,document.title," +
			"document.version,document.scopes,document.keyPrefix,document.costs": []operate.GatewayView{},

		"kind,tenantId,keyId,at,reportedBy,reportedAt":               []operate.LostView{},
		"id,at,actor,kind,tenantId,keyId,plan,before,after":          []operate.EventView{},
		"start,operation,key,keyName,outcome,requests,charged,units": []operate.UsageView{},
		"start,attempts": []operate.MinuteView{},
		"tenantId,tenant,plan," + limits + ",requests,charged,units,busiestDay":                          []operate.TopView{},
		"operation,deprecatedAt,sunsetAt,daysLeft,successor,tenantId,tenant,key,keyName,requests,before": []operate.DeprecatedView{},

		"name,token,role,status,createdAt,expiresAt":                        []operatorView{},
		"action,kind,name,keyId,change":                                     []declare.ChangeView{},
		"part,problem,cure":                                                 []finding{},
		"file,takenAt,schema,lastEvent,tables":                              []backupView{},
		"takenAt,live,newer,lost,restored":                                  []restoreView{},
		"url,gateway,readOnly":                                              []consoleView{},
		"at,activeTenants,gateways,tenants,problem":                         []topView{},
		"tenantId,tenant,plan,requestsPerSecond,refusedPerSecond," + shares: []topTenant{},
		"id,adminAddress,error,mode,requestsPerSecond,refusedPerSecond,p50Millis,p99Millis,bansImposed": []topGateway{},

		"passes,status,code,reason,until,keyId,tenantId,tenant,plan,environment,scopes,allow,from,operation,gateway,mode,degraded," +
			policy("minute") + "," + policy("day") + "," + policy("month") + "," + policy("keyMinute") + "," +
			policy("keyDay"): []operate.Explanation{},
	} {
		var out bytes.Buffer
		must.Do(t, operate.WriteCSV(&out, rows))
		must.Equal(t, strings.TrimSpace(out.String()), want, "%T", rows)
	}
}
