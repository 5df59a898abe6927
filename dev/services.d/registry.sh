# shellcheck shell=bash disable=SC2034,SC2154
# A schema registry: Apicurio, whose interface ccompat speaks the protocol of Confluent's.
# It keeps schemas in memory: they are gone when it stops. $dev_dir/registry has a log.

# This is the newest of those that can be had and run on Java 17.
readonly registry_newest=3.0.9

registry_version() { echo "Apicurio Registry $registry_newest"; }

registry_programs() { echo "$dev_dir/maven/registry-$registry_newest"; }

registry_install() {
	if [[ ! -e $(registry_programs) ]]; then
		maven_file registry "io.apicurio:apicurio-registry-app:$registry_newest:tar.gz:all"
		tar --no-same-owner -xzf "$dev_dir/maven/registry.making"/*.tar.gz -C "$dev_dir/maven/registry.making"
		rm "$dev_dir/maven/registry.making"/*.tar.gz
		mv "$dev_dir/maven/registry.making" "$(registry_programs)"
	fi
	say registry "installed: $(registry_version)"
}

registry_start() {
	local dir=$dev_dir/registry port
	if registry_running; then
		say registry "already running on port $(registry_port)"
		return
	fi
	[[ -e $(registry_programs) ]] || die "registry is not installed: dev/services install registry"
	ensure_service_user
	service_dir "$dir"
	port=$(free_port "${LEAT_REGISTRY_PORT:-}" 38081)
	as_service tee "$dir/port" <<<"$port" >/dev/null
	QUARKUS_HTTP_HOST=127.0.0.1 QUARKUS_HTTP_PORT=$port QUARKUS_HTTP_ACCESS_LOG_ENABLED=false QUARKUS_BANNER_ENABLED=false \
		daemon_start registry java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
		-jar "$(registry_programs)/apicurio-registry-app-$registry_newest-runner.jar"
	daemon_wait registry 60 port_taken "$port"
	say registry "started on port $port"
}

registry_port() { cat "$dev_dir/registry/port"; }

registry_stop() { daemon_stop registry; }
registry_running() { daemon_pid registry >/dev/null; }

registry_clean() {
	registry_stop
	rm -rf "${dev_dir:?}/registry"
}

registry_status() {
	if [[ ! -e $(registry_programs) ]]; then
		say registry "not installed" 2>&1
		return 1
	elif ! registry_running; then
		say registry "stopped, $(registry_version)" 2>&1
		return 1
	fi
	say registry "running, $(registry_version), port $(registry_port), process $(daemon_pid registry), folder $dev_dir/registry" 2>&1
}

registry_env() {
	if ! registry_running; then
		say registry "not running: no LEAT_TEST_REGISTRY"
		return
	fi
	echo "export LEAT_TEST_REGISTRY='http://127.0.0.1:$(registry_port)/apis/ccompat/v7'"
}
