package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tailRows are the rows of -tail. Gateways are traced too; the program policyoff has no admin port for that.
var tailRows = []struct {
	system
	as setup
}{
	{system: nginx},
	{system: nginx, as: setup{log: toFile}},
	{system: system{name: policyIsOff, start: policyOff}},
	{system: inMemory},
	{system: inRedis},
	{system: inRedis, as: setup{log: toFile}},
}

// tail measures the latency of the slowest requests. After each run of a gateway, a further run is traced: the trace slows the
// gateway, so that run is not in the table of latencies.
func tail(ctx context.Context, l *lab, p *program) (turn, error) {
	sites := make([]*site, len(tailRows))
	for i, row := range tailRows {
		var err error
		if sites[i], err = l.open(ctx, row.system, row.as); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) (runs []Run, err error) {
		for _, o := range sites {
			name := o.name
			if o.as.log == toFile {
				name += ", access log to a file"
			}
			run, err := l.run(ctx, name, someConnections, p.duration, l.keysPath, o)
			if err != nil {
				return nil, err
			}
			runs = append(runs, run)
			admin, isTraced := o.process.setting("GATEWAY_ADMIN_LISTEN")
			if !isTraced {
				continue
			}
			e, err := l.trace(ctx, o, admin)
			if err != nil {
				return nil, fmt.Errorf("%s: trace: %w", name, err)
			}
			p.traces[name] = append(p.traces[name], e)
		}
		return runs, nil
	}, nil
}

// tracedFor is how long a trace is, in seconds.
const tracedFor = 1

// trace loads a gateway and reads a trace of its runtime.
func (l *lab) trace(ctx context.Context, o *site, admin string) (*execution, error) {
	loaded := make(chan error, 1)
	go func() {
		_, err := wrk(ctx, o, traffic{connections: someConnections, duration: (tracedFor + 2) * time.Second, keysPath: l.keysPath})
		loaded <- err
	}()
	path := filepath.Join(l.dir, "trace")
	err := download(ctx, fmt.Sprintf("http://%s/debug/pprof/trace?seconds=%d", admin, tracedFor), path)
	if loadErr := <-loaded; err == nil {
		err = loadErr
	}
	if err != nil {
		return nil, err
	}
	parse := exec.CommandContext(ctx, "go", "tool", "trace", "-d=parsed", path)
	var stderr strings.Builder
	parse.Stderr = &stderr
	text, err := parse.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := parse.Start(); err != nil {
		return nil, err
	}
	e, err := readTrace(text)
	if ended := parse.Wait(); ended != nil && err == nil {
		err = fmt.Errorf("go tool trace: %w\n%s", ended, stderr.String())
	}
	return e, err
}

func download(ctx context.Context, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, response.Body)
	return err
}

// setting returns a variable of the environment that bench has given to the process.
func (p *process) setting(name string) (value string, given bool) {
	for _, one := range p.cmd.Env {
		if found, is := strings.CutPrefix(one, name+"="); is {
			value, given = found, true
		}
	}
	return value, given
}

// writeTails writes the latencies of -tail, and what the traces say about them.
func (r Result) writeTails(b *strings.Builder) {
	plain := func(at row) row { at.system = nginxPlain; return at }
	r.writeTable(b, fmt.Sprintf("Latency, %d connections", someConnections), r.rowsOf("tail", someConnections),
		append(slices.Clone(loadColumns), ratioTo("the p99 of "+nginxPlain, latency(p99), plain), ratioTo("its p99.9", latency(p999), plain)))
	for _, name := range r.systems("tail") {
		writeTail(b, name, r.traces[name])
	}
}
