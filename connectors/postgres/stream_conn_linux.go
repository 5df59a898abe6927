package postgres

import (
	"net"
	"syscall"
)

// waitForBytes makes a connection readable only once n bytes are there.
func waitForBytes(c *net.TCPConn, n int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err //nolint:wrapcheck // the caller goes on without it, or says what was being done
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n) })
	if err == nil {
		err = set
	}
	return err //nolint:wrapcheck // the caller goes on without it, or says what was being done
}
