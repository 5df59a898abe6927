# shellcheck shell=bash disable=SC2034,SC2154
# Debezium's source of MySQL and sink of JDBC, for workers of Kafka Connect: a folder of
# jars. Tests start a worker of their own for what they want to see, so nothing runs here.

kafkaconnect_version() { echo "Debezium $(maven_version kafkaconnect debezium)"; }

kafkaconnect_install() {
	maven_jars kafkaconnect
	say kafkaconnect "installed: $(kafkaconnect_version)"
}

kafkaconnect_start() { kafkaconnect_running || die "kafkaconnect is not installed: dev/services install kafkaconnect"; }
kafkaconnect_stop() { :; }
kafkaconnect_clean() { :; }
kafkaconnect_running() { maven_has kafkaconnect; }

kafkaconnect_status() {
	if ! kafkaconnect_running; then
		say kafkaconnect "not installed" 2>&1
		return 1
	fi
	say kafkaconnect "installed, $(kafkaconnect_version), folder $(maven_dir kafkaconnect)" 2>&1
}

kafkaconnect_env() {
	if ! kafkaconnect_running; then
		say kafkaconnect "not installed: no LEAT_TEST_KAFKA_CONNECT"
		return
	fi
	echo "export LEAT_TEST_KAFKA_CONNECT='$(maven_dir kafkaconnect)'"
}
