# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# What every service script needs: messages, packages, the user that servers run
# as, the folder they live in, ports and certificates. Sourced by dev/services.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly root

say() { printf '%-11s %s\n' "$1" "$2" >&2; }

die() {
	printf 'dev/services: %s\n' "$1" >&2
	exit 1
}

am_root() { [[ $(id -u) -eq 0 ]]; }

# --- Packages -----------------------------------------------------------------

# apt_install PACKAGE… installs without a question; the package lists are fetched
# only when the ones at hand are missing or too old to install from.
apt_install() {
	command -v apt-get >/dev/null || die "no apt-get here: install $* by hand"
	am_root || die "not root: first run: apt-get install $*"
	local log=$dev_dir/apt.log
	local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
	local install=("${apt[@]}" install -y --no-install-recommends -o Dpkg::Use-Pty=0 "$@")
	"${install[@]}" >"$log" 2>&1 || {
		"${apt[@]}" update >>"$log" 2>&1
		"${install[@]}" >>"$log" 2>&1
	} || {
		tail -n 30 "$log" >&2
		die "apt-get install $*: the end of $log is above"
	}
}

# --- The user that servers run as ------------------------------------------------

# Database servers refuse to run as root: root lends them a user without a login.
service_user() { if am_root; then echo leat; else id -un; fi; }

ensure_service_user() {
	am_root || return 0
	id leat >/dev/null 2>&1 ||
		useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin leat
}

# as_service COMMAND… runs the command as that user, in a folder that it may enter,
# and without our locks, which a server would otherwise hold for as long as it lives.
as_service() {
	(
		exec 8>&- 9>&-
		cd /
		am_root || exec "$@"
		exec setpriv --reuid=leat --regid=leat --clear-groups -- "$@"
	)
}

# service_dir PATH [MODE] makes a folder that belongs to that user.
service_dir() { install -d -o "$(service_user)" -m "${2:-755}" "$1"; }

# --- The folder of data, logs and sockets ------------------------------------------

# open_to_others DIR: every folder on the way there can be entered by any user.
open_to_others() {
	local dir=$1
	while [[ -d $dir ]]; do
		[[ $(stat -c %A "$dir") == *[xt] ]] || return 1
		[[ $dir != / ]] || return 0
		dir=$(dirname "$dir")
	done
	return 1
}

find_dev_dir() {
	if [[ -n ${LEAT_DEV_DIR:-} ]]; then
		echo "$LEAT_DEV_DIR"
		return
	fi
	# A socket's path has at most 107 bytes, of which about 25 are our own.
	if [[ ${#root} -le 75 ]] && { ! am_root || open_to_others "$root"; }; then
		echo "$root/.dev"
		return
	fi
	local tmp=${TMPDIR:-/tmp}
	open_to_others "$tmp" || tmp=/tmp
	echo "$tmp/leat-dev-$(printf %s "$root" | sha256sum | cut -c1-12)"
}
dev_dir=$(realpath -m "$(find_dev_dir)")
readonly dev_dir
readonly socket_dir=$dev_dir/run # servers share it: a socket's name has the port in it
readonly tls_dir=$dev_dir/tls

# with_lock COMMAND… : two people who install, start or stop at once take turns.
with_lock() {
	(
		flock 9
		"$@"
	) 9>"$dev_dir/lock"
}

# --- Ports --------------------------------------------------------------------------

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port WANTED DEFAULT: a wanted port or nothing; else the default or one near it.
free_port() {
	local port
	if [[ -n $1 ]]; then
		! port_taken "$1" || die "port $1 is taken by another program"
		echo "$1"
		return
	fi
	for ((port = $2; port < $2 + 200; port += 10)); do
		if ! port_taken "$port"; then
			echo "$port"
			return
		fi
	done
	die "no free port at or above $2"
}

# --- TLS ----------------------------------------------------------------------------

# ensure_certificates: ca.crt, and server.crt + server.key for localhost that it
# signed; made anew when they are about to expire. The authority's key is thrown away.
ensure_certificates() {
	local week=604800
	if openssl x509 -checkend $week -noout -in "$tls_dir/server.crt" >/dev/null 2>&1; then return; fi
	rm -rf "$tls_dir"
	service_dir "$tls_dir"
	as_service bash -euo pipefail -c '
		cd "$1"
		key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
		openssl req -x509 "${key[@]}" -keyout ca.key -out ca.crt -days 365 -subj "/CN=leat test authority" \
			-addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign"
		openssl req -new "${key[@]}" -keyout server.key -out server.csr -subj "/CN=localhost"
		openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.crt \
			-extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")
		chmod 600 server.key
		rm -f ca.key ca.srl server.csr
	' bash "$tls_dir" >"$dev_dir/openssl.log" 2>&1 || {
		cat "$dev_dir/openssl.log" >&2
		die "openssl could not make the test certificates"
	}
}
