package main

import (
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed peers
var peerFiles embed.FS

// system is one row of the table, named by what runs.
type system struct {
	name  string
	start func(l *lab, listen string) ([]*process, error) // the processes whose work is the gateway's
	redis bool                                            // whether it asks Redis
	keys  bool                                            // whether it looks at keys
}

// The rows. The first is what every other one is divided by.
var systems = []system{
	{name: "nginx, plain proxy", start: peer("nginx", "nginx-plain.conf", "-e", "stderr", "-c")},
	{name: "haproxy, plain proxy", start: peer("haproxy", "haproxy-plain.cfg", "-db", "-f")},
	{name: "fasthttp, plain proxy", start: bare},
	{name: "Petgate, policy off", start: policyOff, keys: true},
	{name: "Petgate, quotas in memory", start: petgate(""), keys: true},
	{name: "Petgate, quotas in Redis", start: petgate("redis"), keys: true, redis: true},
	{name: "nginx + Lua, shared memory (one node)", start: peer("nginx", "nginx-lua-dict.conf", "-e", "stderr", "-c"), keys: true},
	{name: "nginx + Lua + Redis", start: peer("nginx", "nginx-lua-redis.conf", "-e", "stderr", "-c"), keys: true, redis: true},
	{name: "haproxy + stick tables (one node)", start: peer("haproxy", "haproxy-policy.cfg", "-db", "-f"), keys: true},
}

// peer starts another program on one of the configurations in peers/.
func peer(program, config string, args ...string) func(*lab, string) ([]*process, error) {
	return func(l *lab, listen string) ([]*process, error) {
		text, err := template.ParseFS(peerFiles, "peers/"+config)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(l.dir, config)
		file, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		redisHost, redisPort, err := net.SplitHostPort(l.redisAddr)
		if err != nil {
			return nil, err
		}
		if err := text.Execute(file, map[string]string{
			"Dir": l.dir, "Listen": listen, "Upstream": l.upstreamAddr, "Keys": l.keysPath, "KeyMap": l.keyMapPath,
			"RedisHost": redisHost, "RedisPort": redisPort,
		}); err != nil {
			return nil, err
		}
		return one(launch(nil, program, append(args, path)...))
	}
}

func bare(l *lab, listen string) ([]*process, error) {
	return one(launch(nil, l.binary("bare"), "-listen", listen, "-upstream", l.upstreamAddr))
}

// policyOff is our own edge without directory and quotas: every stage runs, but nothing is looked up and nothing counted.
func policyOff(l *lab, listen string) ([]*process, error) {
	return one(launch(nil, l.binary("policyoff"), "-listen", listen, "-upstream", "http://"+l.upstreamAddr))
}

// petgate starts the gateway as it is sold, with quotas in Redis or in its own memory.
func petgate(quotas string) func(*lab, string) ([]*process, error) {
	return func(l *lab, listen string) ([]*process, error) {
		admin, err := freeAddress()
		if err != nil {
			return nil, err
		}
		env := []string{
			"DATABASE_URL=" + l.databaseURL, "GATEWAY_ID=bench", "GATEWAY_LISTEN=" + listen, "GATEWAY_ADMIN_LISTEN=" + admin,
			"GATEWAY_UPSTREAMS=http://" + l.upstreamAddr, "GATEWAY_SNAPSHOT=", "GATEWAY_ACCESS_LOG=false",
		}
		if quotas == "redis" {
			env = append(env, "REDIS_URL=redis://"+l.redisAddr)
		}
		return one(launch(env, l.binary("gateway")))
	}
}

func one(p *process, err error) ([]*process, error) {
	if err != nil {
		return nil, err
	}
	return []*process{p}, nil
}

func find(name string) (system, error) {
	for _, s := range systems {
		if s.name == name {
			return s, nil
		}
	}
	return system{}, fmt.Errorf("no row is named %q", name)
}
