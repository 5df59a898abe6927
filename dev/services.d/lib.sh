# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# What every service script needs: messages, packages, the user that servers run
# as, the folder they live in, ports and certificates. Sourced by dev/services.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly root

say() { printf '%-12s %s\n' "$1" "$2" >&2; }

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

# unpack_unstable NAME PACKAGE… unpacks packages of Debian's unstable release, and all that
# they need to run, into $dev_dir/deb/NAME. This machine's own packages stay as they are: apt
# has lists of its own here, and a machine without any package but Perl.
unpack_unstable() {
	local name=$1 mirror apt=$dev_dir/deb/apt log=$dev_dir/deb/apt.log deb
	shift
	mirror=$(apt-get indextargets --format '$(SITE) $(REPO_URI)' 2>/dev/null | sed -n 's,^[^ ]* \(.*/debian/\)$,\1,p' | head -n 1)
	[[ -n $mirror ]] || die "$name comes from Debian's unstable release, and this machine knows no mirror of Debian"
	rm -rf "$apt"
	mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,etc,root}
	echo "deb $mirror sid main" >"$apt/etc/sources.list"
	cat >"$apt/etc/status" <<-STATUS
		Package: perl
		Status: install ok installed
		Architecture: $(dpkg --print-architecture)
		Multi-Arch: allowed
		Version: 99
		Maintainer: nobody
		Description: not needed by what is unpacked
	STATUS
	local get=(apt-get -q -y -o Dir::State="$apt/state" -o Dir::State::status="$apt/etc/status" -o Dir::Cache="$apt/cache"
		-o Dir::Etc::sourcelist="$apt/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
		-o Dir::Log="$apt" -o Acquire::Languages=none -o APT::Install-Recommends=0)
	am_root && get+=(-o APT::Sandbox::User=root)
	{ "${get[@]}" update && "${get[@]}" install --download-only "$@"; } >"$log" 2>&1 || {
		tail -n 20 "$log" >&2
		die "packages of Debian's unstable release: the end of $log is above"
	}
	for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$apt/root"; done
	chmod 755 "$apt/root"
	rm -rf "${dev_dir:?}/deb/$name"
	mv "$apt/root" "$dev_dir/deb/$name"
	rm -rf "$apt"
}

# --- Java programs ---------------------------------------------------------------

# maven_jars NAME puts the jars that dev/services.d/NAME/pom.xml asks for into maven_dir NAME.
maven_jars() {
	local name=$1 dir
	dir=$(maven_dir "$name")
	if maven_has "$name"; then return; fi
	rm -rf "$dir"
	maven "$name" -f "$(maven_pom "$name")" dependency:copy-dependencies -DincludeScope=runtime
	cp "$(maven_pom "$name")" "$dir.making/pom.xml"
	mv "$dir.making" "$dir"
}

# maven_file NAME GROUP:ARTIFACT:VERSION:TYPE:CLASSIFIER puts one file, and nothing that it
# stands on, into the folder $dev_dir/maven/NAME.making.
maven_file() { maven "$1" dependency:copy -Dartifact="$2"; }

# maven NAME ARGUMENT… runs Maven, which writes to that folder and compares checksums with the registry's.
maven() {
	local name=$1 making=$dev_dir/maven/$1.making log=$dev_dir/maven/$1.log
	shift
	command -v java >/dev/null || apt_install default-jre-headless
	command -v mvn >/dev/null || apt_install maven
	rm -rf "$making"
	mkdir -p "$making"
	(cd "$making" && mvn -B -q --strict-checksums "$@" -DoutputDirectory="$making") >"$log" 2>&1 || {
		tail -n 20 "$log" >&2
		die "$name: mvn: the end of $log is above"
	}
}

maven_dir() { echo "$dev_dir/maven/$1"; }

maven_pom() { echo "$root/dev/services.d/$1/pom.xml"; }

# maven_has NAME: the jars are there, and are those of the pom as it is now.
maven_has() { cmp -s "$(maven_pom "$1")" "$(maven_dir "$1")/pom.xml"; }

# maven_version NAME PROPERTY prints a version that the pom names.
maven_version() { sed -n "s,^ *<$2>\(.*\)</$2>.*,\1,p" "$(maven_pom "$1")"; }

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

# --- Servers that stay in the foreground --------------------------------------------------

# Such a server has its data, log and process id in $dev_dir/NAME, and its working
# directory there or below: a number alone does not tell, any process may have it after a crash.

daemon_pid() {
	local pid
	pid=$(cat "$dev_dir/$1/pid" 2>/dev/null) || return 1
	[[ $(readlink "/proc/$pid/cwd")/ == "$dev_dir/$1/"* ]] && echo "$pid"
}

# daemon_start NAME COMMAND… starts it in the background, with a fresh log.
daemon_start() {
	local name=$1 dir=$dev_dir/$1
	shift
	[[ ! -e $dir/log ]] || mv -f "$dir/log" "$dir/log.previous"
	as_service touch "$dir/log"
	rm -f "$dir/pid"
	as_service setsid --fork bash -c 'cd "$1"; echo $$ >pid; shift; exec "$@"' bash "$dir" "$@" >>"$dir/log" 2>&1 </dev/null
}

# daemon_wait NAME SECONDS TEST… waits until the test succeeds; a server that ends before that is an error.
daemon_wait() {
	local name=$1 deadline=$((SECONDS + $2)) born=$((SECONDS + 5))
	shift 2
	until "$@" >/dev/null 2>&1; do
		if [[ $SECONDS -ge $deadline ]] || { [[ $SECONDS -ge $born ]] && ! daemon_pid "$name" >/dev/null; }; then
			tail -n 20 "$dev_dir/$name/log" >&2
			daemon_stop "$name"
			die "$name did not start: the end of $dev_dir/$name/log is above"
		fi
		sleep 0.1
	done
}

daemon_stop() {
	local pid try
	pid=$(daemon_pid "$1") || return 0
	kill -TERM "$pid" 2>/dev/null || true
	for try in {1..300}; do
		if ! daemon_pid "$1" >/dev/null; then
			say "$1" stopped
			return
		fi
		sleep 0.1
	done
	say "$1" "does not stop in order: killed"
	kill -KILL "$pid" 2>/dev/null || true
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
