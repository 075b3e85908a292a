package main

import (
	_ "embed"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/service"
	"petgate/shared/trace"
)

//go:embed config.go
var source string

// config are the settings of one pet service.
type config struct {
	// The database of pets: postgres://…, or sqlite:PATH with an existing file.
	DatabaseURL service.Secret `env:"DATABASE_URL" default:"sqlite:var/petgate.db"`

	// Address for the gateway's requests: host:port or unix:/path.
	Listen string `env:"PETSVC_LISTEN" default:"127.0.0.1:8081" placeholder:"ADDRESS"`

	// Private address: /healthz, /readyz, /metrics, /debug/pprof. Do not publish it.
	AdminListen string `env:"PETSVC_ADMIN_LISTEN" default:"127.0.0.1:9091" placeholder:"ADDRESS"`

	// Database connections for requests. One more watches the database.
	Connections int `env:"PETSVC_CONNECTIONS" default:"8" placeholder:"N"`

	pets.Config

	// Write a line for each request to standard output.
	AccessLog bool `env:"PETSVC_ACCESS_LOG" default:"true" negatable:""`

	Traces           trace.Settings `embed:""`
	service.Settings `embed:"" envprefix:"PETSVC_"`
}

// Source implements service.Described.
func (*config) Source() string { return source }

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
