package com.lienstream.bench;

import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.state.Stores;

/**
 * The market of the raw topic in Kafka Streams, exactly_once_v2.
 *
 * Arguments are key=value: in (the raw topic), out (what the names of its topics begin with), vault and registry (addresses),
 * events (yes: the logs go out too); anything else goes to Streams as it is.
 */
public final class App {
    private App() { }

    public static void main(String[] args) throws Exception {
        Map<String, String> m = new HashMap<>();
        for (String s : args) {
            int i = s.indexOf('=');
            m.put(s.substring(0, i), s.substring(i + 1));
        }
        Topology topology = topology(m.remove("in"), m.remove("out"), address(m.remove("vault")), address(m.remove("registry")), "yes".equals(m.remove("events")));
        Properties p = new Properties();
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.putAll(m);

        KafkaStreams streams = new KafkaStreams(topology, p);
        CountDownLatch stop = new CountDownLatch(1);
        streams.setStateListener((now, old) -> {
            if (now == KafkaStreams.State.ERROR) stop.countDown();
        });
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop.countDown();
            try {
                main.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        streams.start();
        stop.await();
        // By default Streams stays in its group, and the next start then waits for the session to time out.
        streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP).withTimeout(Duration.ofSeconds(20)));
        Runtime.getRuntime().halt(0);
    }

    private static byte[] address(String hex) { return HexFormat.of().parseHex(hex.substring(2)); }

    /** One store for all tables: a cache and a RocksDB a partition, not four. */
    private static Topology topology(String in, String out, byte[] vault, byte[] registry, boolean events) {
        Topology t = new Topology();
        t.addSource("raw", new ByteArrayDeserializer(), new ByteArrayDeserializer(), in);
        t.addProcessor("market", () -> new Market(vault, registry, events), "raw");
        t.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(Market.STORE), Serdes.Bytes(), Serdes.ByteArray())
            .withLoggingEnabled(Map.of()).withCachingEnabled(), "market");
        StreamPartitioner<byte[], byte[]> same = (topic, k, v, n) -> Optional.of(Set.of(Market.PARTITION.get()[0]));
        for (String name : Rows.TABLES) {
            t.addSink(name, out + name, new ByteArraySerializer(), new ByteArraySerializer(), same, "market");
        }
        for (String name : events ? List.of("event", "final") : List.<String>of()) {
            t.addSink(name, out + name, new ByteArraySerializer(), new ByteArraySerializer(), same, "market");
        }
        return t;
    }
}
