//go:build !linux

package postgres

import (
	"errors"
	"net"
)

// waitForBytes is only for systems that tell a reader of a number of bytes.
func waitForBytes(*net.TCPConn, int) error { return errors.ErrUnsupported }
