package postgres

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// patiently lets the connections of a dialer be read in large pieces. The server sends every change by itself, and to wake up for each
// costs both sides more than the change.
func patiently(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return patient(conn), nil
	}
}
