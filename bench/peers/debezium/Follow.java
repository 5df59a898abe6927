import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Follows a replication slot with Debezium's embedded engine until a given number of changes has come, in one process and without Kafka:
 *
 * <pre>
 *   discard   counts them
 *   road      hands each batch to Debezium's JDBC sink as it comes
 *   sink      collects all of them first, then hands them to the sink, which alone is measured
 * </pre>
 *
 * Writes seconds and seconds of CPU to a file, from the first change to when the last one is done: no start of the JVM, no closing.
 *
 * <pre>Follow MODE SOURCE SLOT PUBLICATION TABLE CHANGES FIGURES [INTO UNNEST BATCH REDUCE]</pre>
 */
public final class Follow {

    /** Batches of the source, the queue behind it four times as much. */
    private static final int BATCH = 10_240;

    public static void main(String[] args) throws Exception {
        String mode = args[0];
        Server source = new Server(args[1]);
        long changes = Long.parseLong(args[5]);
        JdbcSinkConnectorTask sink = mode.equals("discard") ? null : open(new Server(args[7]), args[4], args[8], args[9], args[10]);
        int batch = sink == null ? BATCH : Integer.parseInt(args[9]);
        Properties settings = source(source, args[2], args[3], args[4], batch);

        Clock clock = new Clock();
        List<SinkRecord> kept = new ArrayList<>();
        CompletableFuture<Void> done = new CompletableFuture<>();
        DebeziumEngine<?> engine = DebeziumEngine.create(Connect.class).using(settings).using((ok, message, error) -> {
            done.completeExceptionally(new IllegalStateException("the engine has ended: " + message, error));
        }).notifying(new DebeziumEngine.ChangeConsumer<ChangeEvent<SourceRecord, SourceRecord>>() {
            private long seen;

            @Override
            public void handleBatch(List<ChangeEvent<SourceRecord, SourceRecord>> events,
                                    RecordCommitter<ChangeEvent<SourceRecord, SourceRecord>> committer)
                    throws InterruptedException {
                clock.start();
                try {
                    if (sink != null) {
                        List<SinkRecord> records = new ArrayList<>(events.size());
                        for (ChangeEvent<SourceRecord, SourceRecord> event : events) {
                            records.add(delivered(event.value(), seen + records.size()));
                        }
                        if (mode.equals("sink")) {
                            kept.addAll(records);
                        }
                        else {
                            put(sink, records);
                        }
                    }
                    for (ChangeEvent<SourceRecord, SourceRecord> event : events) {
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                }
                catch (RuntimeException e) {
                    done.completeExceptionally(e);
                    throw e;
                }
                seen += events.size();
                if (seen >= changes) {
                    clock.stop();
                    done.complete(null);
                }
            }
        }).build();
        Executors.newSingleThreadExecutor().execute(engine);
        done.get();
        if (mode.equals("sink")) {
            clock.again();
            for (int from = 0; from < kept.size(); from += batch) {
                put(sink, kept.subList(from, Math.min(from + batch, kept.size())));
            }
            clock.stop();
        }
        Files.writeString(Path.of(args[6]), clock.toString());
        engine.close();
        if (sink != null) {
            sink.stop();
        }
        System.exit(0);
    }

    private static Properties source(Server server, String slot, String publication, String table, int batch) {
        Properties p = new Properties();
        p.setProperty("name", "bench");
        p.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        p.setProperty("offset.flush.interval.ms", "1000");
        p.setProperty("topic.prefix", "bench");
        p.setProperty("database.hostname", server.host);
        p.setProperty("database.port", server.port);
        p.setProperty("database.user", server.user);
        p.setProperty("database.password", server.password);
        p.setProperty("database.dbname", server.database);
        p.setProperty("plugin.name", "pgoutput");
        p.setProperty("slot.name", slot);
        p.setProperty("publication.name", publication);
        p.setProperty("publication.autocreate.mode", "disabled");
        p.setProperty("table.include.list", table);
        p.setProperty("snapshot.mode", "no_data");
        p.setProperty("tombstones.on.delete", "false");
        p.setProperty("max.batch.size", Integer.toString(batch));
        p.setProperty("max.queue.size", Integer.toString(4 * batch));
        p.setProperty("poll.interval.ms", "10");
        return p;
    }

    private static JdbcSinkConnectorTask open(Server into, String table, String unnest, String batch, String reduce) {
        Map<String, String> p = new HashMap<>();
        p.put("connection.url", "jdbc:postgresql://" + into.host + ":" + into.port + "/" + into.database + "?reWriteBatchedInserts=true");
        p.put("connection.username", into.user);
        p.put("connection.password", into.password);
        p.put("insert.mode", "upsert");
        p.put("delete.enabled", "true");
        p.put("primary.key.mode", "record_key");
        p.put("schema.evolution", "none");
        p.put("collection.name.format", table);
        p.put("batch.size", batch);
        p.put("use.reduction.buffer", reduce);
        p.put("dialect.postgres.unnest.insert.enabled", unnest);
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        task.initialize((SinkTaskContext) Proxy.newProxyInstance(Follow.class.getClassLoader(), new Class<?>[]{ SinkTaskContext.class },
                (proxy, method, arguments) -> method.getName().equals("configs") ? p : null));
        task.start(p);
        task.open(List.of(new TopicPartition("bench." + table, 0)));
        return task;
    }

    /** What a sink gets of a record that a source has sent, where a topic has one partition. */
    private static SinkRecord delivered(SourceRecord r, long offset) {
        return new SinkRecord(r.topic(), 0, r.keySchema(), r.key(), r.valueSchema(), r.value(), offset, 0L, TimestampType.CREATE_TIME);
    }

    private static void put(JdbcSinkConnectorTask sink, List<SinkRecord> records) {
        sink.put(records);
        if (sink.getLastProcessingException() != null) {
            throw new IllegalStateException(sink.getLastProcessingException());
        }
    }

    /** A server, by its URL. */
    private static final class Server {
        final String host;
        final String port;
        final String user;
        final String password;
        final String database;

        Server(String url) {
            URI u = URI.create(url);
            String[] login = u.getUserInfo().split(":", 2);
            host = u.getHost();
            port = Integer.toString(u.getPort());
            user = login[0];
            password = login.length > 1 ? login[1] : "";
            database = u.getPath().substring(1);
        }
    }

    /** Seconds, and seconds of CPU of this process. Its first start counts. */
    private static final class Clock {
        private long wall = -1;
        private long cpu;
        private double seconds;
        private double cpuSeconds;

        void start() {
            if (wall < 0) {
                again();
            }
        }

        void again() {
            wall = System.nanoTime();
            cpu = spent();
        }

        void stop() {
            seconds = (System.nanoTime() - wall) / 1e9;
            cpuSeconds = (spent() - cpu) / 1e9;
        }

        private static long spent() {
            return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        }

        @Override
        public String toString() {
            return String.format(Locale.ROOT, "{\"wall\": %.3f, \"cpu\": %.3f}%n", seconds, cpuSeconds);
        }
    }
}
