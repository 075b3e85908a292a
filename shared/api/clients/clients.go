// Package clients has the files of the clients, so that a gateway can hand them to those who call
// the API.
package clients

import "embed"

// Files are the files that a program needs of the clients for Go and TypeScript. Their last names
// differ.
//
//go:embed go/client.go go/error.go go/wait.go go/types.gen.go
//go:embed typescript/petgate.ts typescript/schema.d.ts
var Files embed.FS
