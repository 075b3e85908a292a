// Keyadmin is the operator's command line: tenants, plans, keys, bans and what gateways know of them. Every change is
// written to the database and then waited for until each registered gateway has applied it.
package main

import "os"

func main() {
	code := run(os.Args[1:], os.Environ(), system())
	os.Exit(int(code))
}
