// Package mysqltest gives tests a real MariaDB and a real MySQL: a connection, an empty database of their own, or a whole server of their
// own.
//
// Where the test servers listen is read from the environment, which `dev/services env` prints and `make test` sets. For MariaDB (for
// MySQL, with MYSQL in place of MARIADB):
//
//   - LEAT_TEST_MARIADB: URL of a database, as a user with all privileges, with its password;
//   - LEAT_TEST_MARIADB_SOCKET: the server's unix socket;
//   - LEAT_TEST_MARIADB_HOME: folder with what a server of one's own is made of: the program `server`, its settings `my.cnf`, and
//     `template`, the data of a server that never ran;
//   - LEAT_TEST_MYSQL_CA: file with the authority that signed the certificates of both (valid for localhost).
//
// [Server] makes an [Instance] of that, for tests that change settings, kill the server or need a replica. It takes a second.
//
// A test that asks for MariaDB where none is configured is skipped on a developer's machine and fails in CI (CI=true), so that a green
// CI cannot mean that nothing ran. MySQL cannot be had on every machine: its tests are skipped there, in CI too.
package mysqltest
