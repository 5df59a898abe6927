//go:build !linux

package postgres

import "net"

// patient is only for systems whose calls are known to be worth it.
func patient(conn net.Conn) net.Conn { return conn }
