// Package systemd has the units of the programs. Its tests need systemd's own tools, so they run on
// Linux only.
package systemd
