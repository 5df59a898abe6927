package kafkatest

import (
	"maps"
	"net/url"
	"strings"
	"testing"
)

// DebeziumMySQL returns the settings of Debezium's source of the MySQL database of a URL, for [Connect]. Its topics are named
// NAME.DATABASE.TABLE. It writes JSON with schemas, unless more says otherwise.
func DebeziumMySQL(t testing.TB, name, source string, more map[string]string) map[string]string {
	t.Helper()
	u := parse(t, source)
	password, _ := u.User.Password()
	settings := map[string]string{
		"name": name, "connector.class": "io.debezium.connector.mysql.MySqlConnector", "tasks.max": "1",
		"database.hostname": u.Hostname(), "database.port": u.Port(), "database.user": u.User.Username(), "database.password": password,
		"database.server.id": u.Port() + "9", "database.include.list": strings.TrimPrefix(u.Path, "/"), "topic.prefix": name,
		"schema.history.internal.kafka.bootstrap.servers": Broker(t), "schema.history.internal.kafka.topic": name + ".history",
		"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1", "poll.interval.ms": "100",
	}
	return with(settings, more)
}

// DebeziumJDBC returns the settings of Debezium's sink of the topics into the Postgres database of a URL, for [Connect]. It upserts by the
// keys of the messages and deletes by tombstones, in tables named after the topics.
func DebeziumJDBC(t testing.TB, name, target string, topics []string, more map[string]string) map[string]string {
	t.Helper()
	u := parse(t, target)
	password, _ := u.User.Password()
	settings := map[string]string{
		"name": name, "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "tasks.max": "1",
		"topics":         strings.Join(topics, ","),
		"connection.url": "jdbc:postgresql://" + u.Host + u.Path, "connection.username": u.User.Username(), "connection.password": password,
		"insert.mode": "upsert", "delete.enabled": "true", "primary.key.mode": "record_key", "schema.evolution": "basic",
		"consumer.override.isolation.level": "read_committed", "consumer.override.auto.offset.reset": "earliest",
	}
	return with(settings, more)
}

// Avro returns settings for a connector that let it write and read Avro with schemas of the registry, as Confluent's serializers do.
func Avro(t testing.TB) map[string]string {
	t.Helper()
	registry, _, _ := strings.Cut(Registry(t), "/apis/") // the converter speaks the registry's own protocol
	settings := map[string]string{}
	for _, of := range []string{"key.converter", "value.converter"} {
		settings[of] = "io.apicurio.registry.utils.converter.AvroConverter"
		maps.Copy(settings, map[string]string{
			of + ".apicurio.registry.url": registry + "/apis/registry/v2", of + ".apicurio.registry.as-confluent": "true",
			of + ".apicurio.registry.use-id": "contentId", of + ".apicurio.registry.headers.enabled": "false",
			of + ".apicurio.registry.auto-register": "true", of + ".apicurio.registry.find-latest": "true",
		})
	}
	return settings
}

func with(settings, more map[string]string) map[string]string {
	maps.Copy(settings, more)
	return settings
}

func parse(t testing.TB, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
