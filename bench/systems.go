package main

import (
	"embed"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
)

//go:embed peers
var peerFiles embed.FS

// system is one row of a table.
type system struct {
	name  string
	start func(l *lab, listen string, as setup) (*process, error)
	redis bool // it asks Redis
}

// setup is how a system is configured. The zero setup has no TLS and no access log.
type setup struct {
	tls    bool
	hasLog bool // to a file
	redis  clients
}

// The systems of several tables.
var (
	nginx     = system{name: nginxPlain, start: peer("nginx", "nginx-plain.conf", "-e", "stderr", "-c")}
	haproxy   = system{name: haproxyPlain, start: peer("haproxy", "haproxy-plain.cfg", "-db", "-f")}
	inMemory  = system{name: petgateMemory, start: petgate("memory")}
	inRedis   = system{name: petgateRedis, start: petgate("redis"), redis: true}
	bySocket  = system{name: petgateRedis + ", by a Unix socket", start: petgate("unix"), redis: true}
	oneThread = system{name: petgateRedis + ", one thread", start: petgate("redis", "GOMAXPROCS=1"), redis: true}
	luaRedis  = system{
		name:  nginxLuaRedis,
		start: peer("nginx", "nginx-lua-redis.conf", "-e", "stderr", "-c"),
		redis: true,
	}
)

// The rows of the main table. Ratios are to the first one.
var systems = []system{
	nginx,
	haproxy,
	{name: "fasthttp, plain proxy", start: bare},
	{name: policyIsOff, start: policyOff},
	inMemory,
	inRedis,
	oneThread,
	{name: "nginx + Lua, shared memory (one node)", start: peer("nginx", "nginx-lua-dict.conf", "-e", "stderr", "-c")},
	luaRedis,
	{name: haproxyTables, start: peer("haproxy", "haproxy-policy.cfg", "-db", "-f")},
}

// peer starts another program on one of the configurations in peers/.
func peer(program, config string, args ...string) func(*lab, string, setup) (*process, error) {
	return func(l *lab, listen string, as setup) (*process, error) {
		text, err := template.ParseFS(peerFiles, "peers/"+config, "peers/*-parts.*")
		if err != nil {
			return nil, err
		}
		path := filepath.Join(l.dir, listen+"-"+config)
		file, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		redisHost, redisPort, err := net.SplitHostPort(l.redis[as.redis].addr)
		if err != nil {
			return nil, err
		}
		fields := map[string]string{
			"Dir": l.dir, "Listen": listen, "Upstream": l.upstreamAddr, "Keys": l.keysPath, "KeyMap": l.keyMapPath,
			"RedisHost": redisHost, "RedisPort": redisPort,
		}
		if as.tls {
			fields["Certificate"], fields["PrivateKey"], fields["Identity"] = l.certificate, l.privateKey, l.identity
		}
		stdout, err := l.openLog(as, listen)
		if err != nil {
			return nil, err
		}
		if stdout != nil {
			defer stdout.Close()
			fields["Log"] = stdout.Name()
		}
		if err := text.Execute(file, fields); err != nil {
			return nil, err
		}
		return l.launchTo(stdout, nil, program, append(args, path)...)
	}
}

func bare(l *lab, listen string, _ setup) (*process, error) {
	return l.launch(nil, l.binary("bare"), "-listen", listen, "-upstream", l.upstreamAddr)
}

// openLog opens the file for the access log of the program that listens on this address; nil: it
// writes none. Some programs inherit the file as their standard output; others open it by its name.
func (l *lab) openLog(as setup, listen string) (*os.File, error) {
	if !as.hasLog {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(l.dir, listen+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// policyOff is the gateway's request path without directory and quotas: every stage runs, but
// nothing is looked up or counted.
func policyOff(l *lab, listen string, _ setup) (*process, error) {
	return l.launch(nil, l.binary("policyoff"), "-listen", listen, "-upstream", "http://"+l.upstreamAddr)
}

// petgate starts the product's gateway with quotas in "redis", in Redis by its "unix" socket, or in
// "memory". settings are added to its environment.
func petgate(quotas string, settings ...string) func(*lab, string, setup) (*process, error) {
	return func(l *lab, listen string, as setup) (*process, error) {
		admin, err := freeAddress()
		if err != nil {
			return nil, err
		}
		stdout, err := l.openLog(as, listen)
		if err != nil {
			return nil, err
		}
		env := append([]string{
			"DATABASE_URL=" + l.postgres.url, "GATEWAY_ID=" + listen, "GATEWAY_LISTEN=" + listen,
			"GATEWAY_ADMIN_LISTEN=" + admin,
			"GATEWAY_UPSTREAMS=http://" + l.upstreamAddr, "GATEWAY_SNAPSHOT=",
			"GATEWAY_ACCESS_LOG=" + strconv.FormatBool(stdout != nil),
		}, settings...)
		switch quotas {
		case "redis":
			env = append(env, "REDIS_URL=redis://"+l.redis[as.redis].addr)
		case "unix":
			env = append(env, "REDIS_URL=unix://"+l.redis[as.redis].socket)
		}
		if as.tls {
			env = append(env, "GATEWAY_TLS_CERT="+l.certificate, "GATEWAY_TLS_KEY="+l.privateKey)
		}
		if stdout != nil {
			defer stdout.Close()
		}
		return l.launchTo(stdout, env, l.binary("gateway"))
	}
}

// databaseConnections is the number of connections that the pet service and pgbench have.
const databaseConnections = 8

// petsvc starts the product's pet service.
func petsvc(l *lab, listen string, _ setup) (*process, error) {
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return l.launch([]string{
		"DATABASE_URL=" + l.postgres.url, "PETSVC_LISTEN=" + listen, "PETSVC_ADMIN_LISTEN=" + admin,
		"PETSVC_ACCESS_LOG=false",
		"PETSVC_CONNECTIONS=" + strconv.Itoa(databaseConnections),
	}, l.binary("petsvc"))
}
