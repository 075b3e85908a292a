// Keyadmin is the operators' command line for tenants, plans, keys, bans and gateways. It writes
// every change to the database and then waits until each registered gateway has applied it.
package main

import "os"

func main() {
	code := run(os.Args[1:], os.Environ(), system())
	os.Exit(int(code))
}
