// Kafka Streams' foreign-key join of the topics of benchmarks/shop_log.py: prints {"results", "seconds"}.
// Arguments: file of settings, topic of orders, topic of customers, output topic, results to expect.

import java.io.FileReader;
import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class ForeignKeyJoin {
  private static final String POINTER = "\"customer_id\":";

  public static void main(String[] given) throws Exception {
    long expected = Long.parseLong(given[4]);
    AtomicLong results = new AtomicLong(), last = new AtomicLong();
    StreamsBuilder builder = new StreamsBuilder();
    Consumed<String, String> texts = Consumed.with(Serdes.String(), Serdes.String());
    KTable<String, String> orders = builder.table(given[1], texts), customers = builder.table(given[2], texts);
    orders
        .join(
            customers,
            (String order) -> customerOf(order),
            (String order, String customer) -> order + customer,
            Materialized.with(Serdes.String(), Serdes.String()))
        .toStream()
        .peek((key, value) -> {
          last.set(System.nanoTime());
          results.incrementAndGet();
        })
        .to(given[3], Produced.with(Serdes.String(), Serdes.String()));
    try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(given[0]))) {
      long begun = System.nanoTime();
      streams.start();
      while (results.get() < expected && System.nanoTime() - begun < 600_000_000_000L) {
        Thread.sleep(100);
      }
      double seconds = (last.get() - begun) / 1e9;
      System.out.printf("{\"results\": %d, \"seconds\": %.3f}%n", results.get(), seconds);
      streams.close(Duration.ofSeconds(10));
    }
  }

  private static String customerOf(String order) {
    int begin = order.indexOf(POINTER) + POINTER.length();
    return "{\"id\":" + order.substring(begin, order.indexOf(',', begin)) + "}";
  }

  private static Properties settings(String file) throws IOException {
    Properties settings = new Properties();
    try (FileReader reader = new FileReader(file)) {
      settings.load(reader);
    }
    return settings;
  }
}
