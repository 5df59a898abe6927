// Package kafkatest gives tests a real Kafka: topics of their own, what a client that reads committed transactions sees, Java's console
// consumer as another client, a whole broker of their own, a schema registry, and workers of Kafka Connect with Debezium's connectors.
//
// Where they are is read from the environment, which `dev/services env` prints and `make test` sets:
//
//   - LEAT_TEST_KAFKA: host and port of the broker, without encryption or login;
//   - LEAT_TEST_KAFKA_SECURE: the same with both (SASL_SSL, PLAIN and SCRAM-SHA-512, user leat), with LEAT_TEST_KAFKA_PASSWORD;
//   - LEAT_TEST_KAFKA_CA: file with the authority that signed the broker's certificate (valid for localhost);
//   - LEAT_TEST_KAFKA_HOME: folder with the program `run`, which runs a class of Kafka's, and the broker's settings;
//   - LEAT_TEST_KAFKA_CONNECT: folder of Debezium's jars;
//   - LEAT_TEST_REGISTRY: URL of a schema registry that speaks the protocol of Confluent's.
//
// A test that asks for one that is not there is skipped on a developer's machine and fails in CI (CI=true), so that a green CI cannot
// mean that nothing ran.
package kafkatest
