package kafka

import (
	"context"
	"net"
)

// SetDial makes a configuration reach brokers by a test's own way.
func (c *Connection) SetDial(dial func(ctx context.Context, network, host string) (net.Conn, error)) {
	c.dial = dial
}
