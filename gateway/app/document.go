package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"petgate/gateway/portal"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

// Document returns the API that the settings name. The settings must have been checked.
func (c *Config) Document() *api.API { return c.document }

// readDocument reads the document that the settings name.
func (c *Config) readDocument() (*api.API, error) {
	if c.API == "" && c.OwnPrefix == "" {
		return api.Pets(), nil
	}
	if c.API == "" {
		return api.LoadWith("openapi.yaml", api.Pets().Source(), c.OwnPrefix)
	}
	data, err := os.ReadFile(c.API)
	if err != nil {
		return nil, api.Problems{err.Error()}
	}
	return api.LoadWith(c.API, data, c.OwnPrefix)
}

// requireDocument reads the document, and names all its problems.
func (c *Config) requireDocument(bad *service.BadSettings) {
	if prefix := c.OwnPrefix; prefix != "" && api.CheckPrefix(prefix) != nil {
		bad.Require(false, "own-prefix", "%v", api.CheckPrefix(prefix))
		return
	}
	if c.API != "" {
		if path, err := filepath.Abs(c.API); err == nil {
			c.API = path // for programs that change their directory
		}
	}
	var err error
	c.document, err = c.readDocument()
	problems, _ := errors.AsType[api.Problems](err)
	for _, problem := range problems {
		bad.Require(false, "api", "%s", problem)
	}
}

// checkServices returns an error if operations name upstreams that the settings do not have.
func (c *Config) checkServices(of *api.API) error {
	pools, err := upstream.NewPools(upstream.Config{URLs: c.Upstreams})
	if err != nil {
		return err
	}
	var wrong []error
	for _, o := range of.Operations {
		if _, err := pools.Of(o.Upstream); err != nil && !o.ByGateway {
			wrong = append(wrong, fmt.Errorf("operation %s: %w", o.ID, err))
		}
	}
	return errors.Join(wrong...)
}

// WriteOperations writes what the gateway would serve.
func (c *Config) WriteOperations(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	head := "METHOD\tPATH\tOPERATION\tSCOPE\tUPSTREAM\tPUBLIC\tDEPRECATED"
	hasCosts := len(c.document.Costs()) > 0
	if hasCosts {
		head += "\tCOST"
	}
	fmt.Fprintln(table, head)
	for _, o := range c.document.Operations {
		upstream := o.Upstream
		if o.ByGateway {
			upstream = "(the gateway)"
		}
		cells := []string{o.Method, o.Path, o.ID, o.Scope, upstream, yes(o.IsPublic), yes(o.IsDeprecated)}
		if hasCosts {
			cost := ""
			if !o.IsPublic && !o.IsReport() {
				cost = fmt.Sprint(max(1, o.Cost))
			}
			cells = append(cells, cost)
		}
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush() // the writer's own errors are the caller's
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// describe returns what other programs learn about a document and the keys.
func (c *Config) describe(a *api.API) keystore.Document {
	return keystore.Document{
		Hash:      a.Hash,
		Title:     a.Title,
		Version:   a.Version,
		Scopes:    a.Scopes(),
		KeyPrefix: c.KeyPrefix,
		Costs:     a.Costs(),
	}
}

// followDocument reads the document again at each SIGHUP until ctx ends.
func (g *gateway) followDocument(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			g.reload()
		}
	}
}

// reload serves the document as it is now. One that cannot be served changes nothing.
func (g *gateway) reload() {
	next, err := g.cfg.readDocument()
	if err == nil {
		err = g.cfg.checkServices(next)
	}
	if err == nil {
		err = g.docs.admit(g.cfg.describe(next))
	}
	if err == nil {
		err = g.public.SetOperations(next.Operations)
	}
	if err != nil {
		kept := g.cfg.describe(g.api.Load())
		g.log.Error("the document cannot be served, so the gateway keeps the one before",
			"path", g.cfg.API, "document", kept.String(), "error", err)
		g.badDocument.Store(&err)
		return
	}
	g.badDocument.Store(nil)
	g.showDocs(next)
	g.api.Store(next)
	read := g.cfg.describe(next)
	g.keys.Describe(read)
	g.log.Info("the document was read again", "document", read.String(), "operations", len(next.Operations))
}

// showDocs replaces the documentation, if there is to be one.
func (g *gateway) showDocs(a *api.API) {
	if !g.cfg.Docs {
		return
	}
	g.docs.show(portal.Config{
		API:         a,
		Title:       g.cfg.DocsTitle,
		Environment: g.cfg.Environment,
		KeyPrefix:   g.cfg.KeyPrefix,
		Bans:        g.cfg.edge().BanRule,
	})
}
