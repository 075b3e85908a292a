// Command gateway checks API keys and quotas in front of the service. `gateway --help` lists its settings.
package main

import (
	"context"
	"os"

	"petgate/gateway/app"
	"petgate/shared/service"
)

func main() {
	var cfg app.Config
	if code, done := service.Load(&cfg, "gateway", "API gateway: keys, plans and quotas in front of the pet service.",
		os.Args[1:], os.Stdout, os.Stderr); done {
		os.Exit(code)
	}
	log := service.NewLog(os.Stderr, cfg.LogLevel, "gateway")
	service.WarnUnknown(log, &app.Config{}, "GATEWAY_", os.Environ())
	os.Exit(service.Run(log, func(ctx context.Context) error {
		ports, err := app.Listen(cfg)
		if err != nil {
			return err
		}
		return app.Run(ctx, cfg, ports, log, os.Stdout)
	}))
}
