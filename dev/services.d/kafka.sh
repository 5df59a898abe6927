# shellcheck shell=bash disable=SC2034,SC2154
# Kafka: one broker that is its own controller (KRaft). $dev_dir/kafka has:
#
#   run            a program that runs a Java class of Kafka's: run CLASS [argument…]
#   server.properties, data/, log
#
# Three listeners: one without encryption or login, which is for most tests; one with
# both (SASL_SSL: PLAIN and SCRAM-SHA-512, as user leat); one for the controller.
# Set up for one broker and short tests: no copies, no waiting for members, what is
# to be cleaned or deleted goes within seconds. Topics are not made by themselves.

kafka_version() { echo "Kafka $(maven_version kafka kafka)"; }

kafka_install() {
	maven_jars kafka
	command -v openssl >/dev/null || apt_install openssl
	say kafka "installed: $(kafka_version)"
}

# kafka_make PASSWORD makes the folder of data, with the account leat.
kafka_make() {
	local cluster
	cluster=$(head -c 16 /dev/urandom | base64 | tr '+/' 'ab' | tr -d =)
	as_service "$dev_dir/kafka/run" kafka.tools.StorageTool format --cluster-id "$cluster" \
		--config "$dev_dir/kafka/server.properties" --add-scram "SCRAM-SHA-512=[name=leat,password=$1]"
}

kafka_configure() {
	local port=$1 controller=$2 secure=$3 password=$4 dir=$dev_dir/kafka
	cat "$tls_dir/server.key" "$tls_dir/server.crt" | as_service tee "$dir/server.pem" >/dev/null
	as_service tee "$dir/server.properties" >/dev/null <<-CONF
		# Written by dev/services at every start.
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$controller
		controller.listener.names=CONTROLLER
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
		listeners=PLAINTEXT://127.0.0.1:$port,SASL_SSL://127.0.0.1:$secure,CONTROLLER://127.0.0.1:$controller
		advertised.listeners=PLAINTEXT://127.0.0.1:$port,SASL_SSL://localhost:$secure,CONTROLLER://127.0.0.1:$controller
		log.dirs=$dir/data

		ssl.keystore.type=PEM
		ssl.keystore.location=$dir/server.pem
		sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
		listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_leat="$password";
		listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;

		auto.create.topics.enable=false
		group.initial.rebalance.delay.ms=0
		offsets.topic.num.partitions=4
		offsets.topic.replication.factor=1
		transaction.state.log.num.partitions=4
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		share.coordinator.state.topic.num.partitions=1
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
		transaction.abort.timed.out.transaction.cleanup.interval.ms=1000

		log.cleaner.backoff.ms=500
		log.cleaner.dedupe.buffer.size=16777216
		log.retention.check.interval.ms=1000
		log.initial.task.delay.ms=1000
		log.segment.delete.delay.ms=1000
		controlled.shutdown.enable=false
	CONF
	as_service tee "$dir/run" >/dev/null <<-SCRIPT
		#!/bin/sh
		exec java \${KAFKA_JAVA:--Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn} \\
			-cp '$(maven_dir kafka)/*' "\$@"
	SCRIPT
	chmod 755 "$dir/run"
}

kafka_start() {
	local dir=$dev_dir/kafka password=${LEAT_TEST_PASSWORD:-leat-test} port
	if kafka_running; then
		say kafka "already running on port $(kafka_port)"
		return
	fi
	maven_has kafka || die "kafka is not installed: dev/services install kafka"
	ensure_service_user
	ensure_certificates
	service_dir "$dir"
	port=$(free_port "${LEAT_KAFKA_PORT:-}" 39092)
	[[ $(cat "$dir/version" 2>/dev/null) == "$(kafka_version)" ]] || rm -rf "$dir/data" "$dir/password" # of another version
	[[ ! -e $dir/password ]] || password=$(cat "$dir/password")
	kafka_configure "$port" "$(free_port "" 39093)" "$(free_port "" 39094)" "$password"
	if [[ ! -e $dir/password ]]; then
		rm -rf "$dir/data"
		kafka_make "$password" >"$dir/making.log" 2>&1 || {
			tail -n 20 "$dir/making.log" >&2
			die "kafka: formatting its storage: see above"
		}
		as_service tee "$dir/version" <<<"$(kafka_version)" >/dev/null
		as_service tee "$dir/password" <<<"$password" >/dev/null
	fi
	KAFKA_JAVA="-Xms128m -Xmx512m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS" \
		daemon_start kafka "$dir/run" kafka.Kafka "$dir/server.properties"
	daemon_wait kafka 60 grep -q 'Kafka Server started' "$dir/log"
	say kafka "started on port $port"
}

kafka_port() { sed -n 's,^listeners=PLAINTEXT://127.0.0.1:\([0-9]*\).*,\1,p' "$dev_dir/kafka/server.properties"; }

kafka_secure_port() { sed -n 's,^listeners=.*SASL_SSL://127.0.0.1:\([0-9]*\).*,\1,p' "$dev_dir/kafka/server.properties"; }

kafka_stop() { daemon_stop kafka; }
kafka_running() { daemon_pid kafka >/dev/null; }

kafka_clean() {
	kafka_stop
	rm -rf "${dev_dir:?}/kafka"
}

kafka_status() {
	if ! maven_has kafka; then
		say kafka "not installed" 2>&1
		return 1
	elif ! kafka_running; then
		say kafka "stopped, $(kafka_version)" 2>&1
		return 1
	fi
	say kafka "running, $(kafka_version), port $(kafka_port), process $(daemon_pid kafka), folder $dev_dir/kafka" 2>&1
}

kafka_env() {
	if ! kafka_running; then
		say kafka "not running: no LEAT_TEST_KAFKA"
		return
	fi
	cat <<-ENV
		export LEAT_TEST_KAFKA='127.0.0.1:$(kafka_port)'
		export LEAT_TEST_KAFKA_SECURE='localhost:$(kafka_secure_port)'
		export LEAT_TEST_KAFKA_PASSWORD='$(cat "$dev_dir/kafka/password")'
		export LEAT_TEST_KAFKA_CA='$tls_dir/ca.crt'
		export LEAT_TEST_KAFKA_HOME='$dev_dir/kafka'
	ENV
}
