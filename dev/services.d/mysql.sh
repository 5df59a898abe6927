# shellcheck shell=bash disable=SC2034,SC2154
# MariaDB and MySQL, which share all code but where their programs come from and
# how an empty server is made. Each has in $dev_dir/<name>:
#
#   server     a program that starts the server: server --defaults-file=… [option…]
#   my.cnf     its settings, written at every start
#   template/  the data of a server that never ran; tests copy it for servers of their own
#   data/, log, password
#
# Set up for tests: user and database leat, with every privilege; a password is
# asked over TCP and on the socket; TLS on; row-based binary log with full images
# and GTIDs; what a killed process wrote is kept, what a loss of power takes is not.

# --- MariaDB: the distribution's package ---------------------------------------------

mariadb_program() {
	local path
	for path in /usr/sbin/mariadbd /usr/libexec/mariadbd /usr/local/sbin/mariadbd; do
		if [[ -x $path ]]; then
			echo "$path"
			return
		fi
	done
	return 1
}

# The package's core has the programs and starts no server of its own.
mariadb_install() {
	if ! mariadb_program >/dev/null || ! command -v mariadb-install-db >/dev/null; then
		apt_install mariadb-server-core
	fi
	command -v openssl >/dev/null || apt_install openssl
	say mariadb "installed: $(mariadb_version)"
	my_template mariadb
}

mariadb_version() { "$(mariadb_program)" --no-defaults --version | sed 's/^.*Ver \([0-9.]*\).*/MariaDB \1/'; }

mariadb_server() {
	cat <<-SCRIPT
		#!/bin/sh
		exec $(mariadb_program) "\$@"
	SCRIPT
}

mariadb_make() {
	as_service mariadb-install-db --no-defaults --datadir="$1" --auth-root-authentication-method=normal \
		--skip-test-db --skip-name-resolve --innodb-log-file-size=16M
	{
		echo "FLUSH PRIVILEGES;" # a server without accounts does not know them until then
		echo "DELETE FROM mysql.global_priv WHERE User = '';"
		cat "$2"
	} | as_service "$(mariadb_program)" --no-defaults --datadir="$1" --bootstrap --innodb-log-file-size=16M
}

mariadb_settings() {
	cat <<-CONF
		innodb_log_file_size = 16M
		gtid_strict_mode = ON
		gtid_domain_id = 0
		log_slave_updates = ON
		binlog_row_metadata = ${LEAT_MYSQL_ROW_METADATA:-NO_LOG}
		innodb_flush_log_at_trx_commit = 2
	CONF
}

mariadb_start() { my_start mariadb "${LEAT_MARIADB_PORT:-}" 33306; }
mariadb_stop() { daemon_stop mariadb; }
mariadb_clean() { my_clean mariadb; }
mariadb_status() { my_status mariadb; }
mariadb_running() { daemon_pid mariadb >/dev/null; }
mariadb_env() { my_env mariadb LEAT_TEST_MARIADB; }

# --- MySQL: the packages of Debian's unstable release, unpacked -------------------------

# Nothing of them is installed: the server runs with their own loader and libraries.
mysql_root() { echo "$dev_dir/deb/mysql"; }

mysql_program() { [[ -x $(mysql_root)/usr/sbin/mysqld ]] && echo "$(mysql_root)/usr/sbin/mysqld"; }

mysql_install() {
	mysql_program >/dev/null || unpack_unstable mysql mysql-server-core
	command -v openssl >/dev/null || apt_install openssl
	say mysql "installed: $(mysql_version)"
	my_template mysql
}

mysql_version() { mysql_run --no-defaults --version | sed 's/^.*Ver \([0-9.]*\).*/MySQL \1/'; }

# mysql_run ARGUMENT… runs mysqld.
mysql_run() { bash -c "$(mysql_server)" mysqld "$@"; }

mysql_server() {
	local from loader
	from=$(mysql_root)
	loader=$(echo "$from"/usr/lib/*/ld-linux-*.so.*)
	cat <<-SCRIPT
		#!/bin/sh
		exec $loader --library-path $(dirname "$loader") $from/usr/sbin/mysqld "\$@" --basedir=$from/usr \\
			--lc-messages-dir=$from/usr/share/mysql --character-sets-dir=$from/usr/share/mysql/charsets --plugin-dir=$from/usr/lib/mysql/plugin
	SCRIPT
}

mysql_make() {
	as_service bash -c "$(mysql_server)" mysqld --no-defaults --datadir="$1" --initialize-insecure --init-file="$2" \
		--innodb-redo-log-capacity=16M
	rm -f "$1/auto.cnf" # a server that finds none takes an identity of its own
}

mysql_settings() {
	cat <<-CONF
		mysqlx = OFF
		innodb_redo_log_capacity = 32M
		gtid_mode = ON
		enforce_gtid_consistency = ON
		binlog_row_metadata = ${LEAT_MYSQL_ROW_METADATA:-MINIMAL}
		innodb_flush_log_at_trx_commit = 2
	CONF
}

mysql_start() { my_start mysql "${LEAT_MYSQL_PORT:-}" 33307; }
mysql_stop() { daemon_stop mysql; }
mysql_clean() { my_clean mysql; }
mysql_status() { my_status mysql; }
mysql_running() { daemon_pid mysql >/dev/null; }
mysql_env() { my_env mysql LEAT_TEST_MYSQL; }

# --- What both do -------------------------------------------------------------------------

# my_template NAME makes the data that servers start from, once for each version. It is made
# under another name and renamed when complete, so that a half-made one is never used.
my_template() {
	local name=$1 dir=$dev_dir/$1 password=${LEAT_TEST_PASSWORD:-leat-test}
	[[ $(cat "$dir/version" 2>/dev/null) != "$("${name}_version")" ]] || return 0
	[[ $password =~ ^[A-Za-z0-9._~-]+$ ]] || die "LEAT_TEST_PASSWORD: only letters, digits and . _ ~ - can stand in a URL as they are"
	ensure_service_user
	daemon_stop "$name"
	rm -rf "$dir"
	service_dir "$dir"
	service_dir "$dir/making" 700
	as_service tee "$dir/password" <<<"$password" >/dev/null
	as_service tee "$dir/accounts.sql" >/dev/null <<-SQL
		CREATE USER leat@'%' IDENTIFIED BY '$password';
		GRANT ALL ON *.* TO leat@'%' WITH GRANT OPTION;
		CREATE DATABASE leat;
	SQL
	"${name}_make" "$dir/making" "$dir/accounts.sql" >"$dir/making.log" 2>&1 || {
		tail -n 20 "$dir/making.log" >&2
		die "$name: no empty server could be made: see above"
	}
	mv "$dir/making" "$dir/template"
	as_service tee "$dir/version" <<<"$("${name}_version")" >/dev/null
}

my_configure() {
	local name=$1 port=$2 dir=$dev_dir/$1
	as_service tee "$dir/my.cnf" >/dev/null <<-CONF
		# Written by dev/services at every start.
		[mysqld]
		datadir = $dir/data
		socket = $(my_socket "$name" "$port")
		pid_file = $dir/data/server.pid
		bind_address = 127.0.0.1
		port = $port
		skip_name_resolve = ON
		ssl_ca = $tls_dir/ca.crt
		ssl_cert = $tls_dir/server.crt
		ssl_key = $tls_dir/server.key

		max_connections = 200
		max_allowed_packet = 64M
		innodb_buffer_pool_size = 64M
		character_set_server = utf8mb4
		default_time_zone = '+00:00'
		local_infile = ON
		secure_file_priv = ''

		server_id = $port
		log_bin = binlog
		binlog_format = ROW
		binlog_row_image = FULL
		max_binlog_size = 128M
		binlog_expire_logs_seconds = 259200
		sync_binlog = 0
		$("${name}_settings")
	CONF
	as_service tee "$dir/server" <<<"$("${name}_server")" >/dev/null
	chmod 755 "$dir/server"
}

my_socket() { echo "$socket_dir/$1.$2.sock"; }

my_start() {
	local name=$1 dir=$dev_dir/$1 port
	if daemon_pid "$name" >/dev/null; then
		say "$name" "already running on port $(my_port "$name")"
		return
	fi
	"${name}_program" >/dev/null || die "$name is not installed: dev/services install $name"
	ensure_service_user
	service_dir "$socket_dir"
	ensure_certificates
	my_template "$name"
	if [[ ! -e $dir/data ]]; then
		rm -rf "$dir/copying"
		as_service cp -a "$dir/template" "$dir/copying"
		mv "$dir/copying" "$dir/data"
	fi
	port=$(free_port "$2" "$3")
	rm -f "$(my_socket "$name" "$port")"* # of a server that was killed
	my_configure "$name" "$port"
	daemon_start "$name" "$dir/server" --defaults-file="$dir/my.cnf"
	daemon_wait "$name" 60 grep -q 'ready for connections' "$dir/log"
	say "$name" "started on port $port"
}

my_port() { sed -n 's/^port = //p' "$dev_dir/$1/my.cnf"; }

my_clean() {
	daemon_stop "$1"
	rm -rf "${dev_dir:?}/$1"
}

my_status() {
	if ! "${1}_program" >/dev/null; then
		say "$1" "not installed" 2>&1
		return 1
	elif ! daemon_pid "$1" >/dev/null; then
		say "$1" "stopped, $("${1}_version")" 2>&1
		return 1
	fi
	say "$1" "running, $("${1}_version"), port $(my_port "$1"), process $(daemon_pid "$1"), folder $dev_dir/$1" 2>&1
}

# my_env NAME VARIABLE prints nothing for a server that does not run.
my_env() {
	if ! daemon_pid "$1" >/dev/null; then
		say "$1" "not running: no $2"
		return
	fi
	local port
	port=$(my_port "$1")
	cat <<-ENV
		export $2='mysql://leat:$(cat "$dev_dir/$1/password")@127.0.0.1:$port/leat'
		export ${2}_HOME='$dev_dir/$1'
		export ${2}_SOCKET='$(my_socket "$1" "$port")'
		export LEAT_TEST_MYSQL_CA='$tls_dir/ca.crt'
	ENV
}
