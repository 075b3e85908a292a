// Command gateway checks API keys and quotas in front of an API. `gateway --help` lists its
// settings.
package main

import (
	"context"
	"log/slog"
	"os"

	"petgate/gateway/app"
	"petgate/shared/service"
)

func main() {
	var cfg app.Config
	service.Main("gateway", "GATEWAY_", "API gateway: keys, plans and quotas in front of an API.", &cfg,
		func(ctx context.Context, log *slog.Logger) error {
			ports, err := service.OpenPorts(&cfg, "GATEWAY_")
			if err != nil {
				return err
			}
			return app.Run(ctx, cfg, ports, log, os.Stdout)
		})
}
