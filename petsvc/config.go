package main

import (
	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/service"
	"petgate/shared/trace"
)

// config are the settings of one pet service.
type config struct {
	DatabaseURL service.Secret `env:"DATABASE_URL" default:"sqlite:var/petgate.db" help:"The database of pets: postgres://…, or sqlite:PATH with an existing file."`

	Listen      string `env:"PETSVC_LISTEN" default:"127.0.0.1:8081" placeholder:"ADDRESS" help:"Address for the gateway's requests: host:port or unix:/path."`
	AdminListen string `env:"PETSVC_ADMIN_LISTEN" default:"127.0.0.1:9091" placeholder:"ADDRESS" help:"Private address: /healthz, /readyz, /metrics, /debug/pprof. Do not publish it."`
	Connections int    `env:"PETSVC_CONNECTIONS" default:"8" placeholder:"N" help:"Database connections for requests. One more watches the database."`

	pets.Config
	AccessLog bool `env:"PETSVC_ACCESS_LOG" default:"true" negatable:"" help:"Write a line for each request to standard output."`

	Traces           trace.Settings `embed:""`
	service.Settings `embed:"" envprefix:"PETSVC_"`
}

// Addresses returns the addresses of both ports.
func (c *config) Addresses() (public, admin string) { return c.Listen, c.AdminListen }

// BadSettings checks the values.
func (c *config) BadSettings() service.BadSettings {
	bad := c.Settings.BadSettings()
	err := database.CheckURL(string(c.DatabaseURL))
	bad.Require(err == nil, "database-url", "%v", err)
	bad.RequirePorts(c.Listen, c.AdminListen)
	bad.Require(c.Connections >= 1 && c.Connections <= 1000, "connections", "use 1 to 1000")
	bad.Require(c.Queue >= 0, "queue", "it must not be negative")
	bad.Require(c.BodyBytesMax > 0, "body-bytes-max", "it must be positive")
	c.Traces.Check(&bad)
	return bad
}
