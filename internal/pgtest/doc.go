// Package pgtest gives tests a real PostgreSQL: a connection, an empty database of their own, or a whole server of their own.
//
// Where the test server listens is read from the environment, which `dev/services env` prints and `make test` sets:
//
//   - LEAT_TEST_POSTGRES: URL of a database, as a superuser, with its password;
//   - LEAT_TEST_PG_CA: file with the authority that signed the server's certificate (valid for localhost);
//   - LEAT_TEST_PG_SOCKET: folder of the server's unix socket, where no password is asked;
//   - LEAT_TEST_POSTGRES18: URL of a second server of a newer version, where one could be had.
//     `make test` runs the PostgreSQL tests once more with this value in LEAT_TEST_POSTGRES.
//
// [Server] makes a [Cluster] with the programs of that server, for tests that change settings, kill the server or need a standby. It
// takes two seconds.
//
// A test that asks for a server where none is configured is skipped on a developer's machine and
// fails in CI (CI=true), so that a green CI cannot mean that nothing ran.
package pgtest
