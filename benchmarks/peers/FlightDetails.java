// The view flight_details by Kafka Streams, from the same topics: events folded to flights, four foreign-key joins.
// Prints {"read", "results", "keys", "seconds"}: records read of all topics, result records, distinct keys among them.
// Arguments: file of settings, topics of flights, airlines, planes, airports, output topic, schemas file, records to
// read.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class FlightDetails {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<Integer, EventType> TYPES = new ConcurrentHashMap<>();
  private static final AtomicLong READ = new AtomicLong(), RESULTS = new AtomicLong(), LAST = new AtomicLong();
  private static final Set<String> KEYS = ConcurrentHashMap.newKeySet();
  private static final Serde<String> TEXT = Serdes.String();
  private static final Serde<ObjectNode> ROW = Serdes.serdeFrom(
      (topic, row) -> row == null ? null : written(row), (topic, bytes) -> bytes == null ? null : read(bytes));

  private record EventType(String name, Schema schema, GenericDatumReader<GenericRecord> reader) {}

  public static void main(String[] given) throws Exception {
    JSON.readTree(new File(given[6])).properties().forEach(FlightDetails::learn);
    long expected = Long.parseLong(given[7]);
    try (KafkaStreams streams = new KafkaStreams(view(given).build(), settings(given[0]))) {
      long begun = System.nanoTime();
      LAST.set(begun);
      streams.start();
      // Five stages keep what they have until their next commit, of 5 s each: few flights have their first row after 25.
      while (READ.get() < expected || System.nanoTime() - LAST.get() < 40_000_000_000L) {
        Thread.sleep(100);
        if (System.nanoTime() - LAST.get() > 120_000_000_000L) {
          break;
        }
      }
      System.out.printf("{\"read\": %d, \"results\": %d, \"keys\": %d, \"seconds\": %.3f}%n",
          READ.get(), RESULTS.get(), KEYS.size(), (LAST.get() - begun) / 1e9);
      streams.close(Duration.ofSeconds(10));
    }
  }

  private static StreamsBuilder view(String[] given) {
    StreamsBuilder builder = new StreamsBuilder();
    KTable<String, ObjectNode> airlines = captured(builder, given[2]), planes = captured(builder, given[3]);
    KTable<String, ObjectNode> airports = captured(builder, given[4]);
    builder
        .stream(given[1], Consumed.with(TEXT, Serdes.ByteArray()))
        .map((key, event) -> {
          READ.incrementAndGet();
          return KeyValue.pair(key.substring(0, key.lastIndexOf('@')), event);
        })
        .groupByKey(Grouped.with(TEXT, Serdes.ByteArray()))
        .aggregate(JSON::createObjectNode, (stream, event, flight) -> evolved(flight, event),
            Materialized.with(TEXT, ROW))
        .join(airlines, (ObjectNode flight) -> key("carrier", flight, "carrier"),
            (flight, airline) -> with(flight, airline, "carrier_name", "name"), Materialized.with(TEXT, ROW))
        .leftJoin(planes, (ObjectNode flight) -> key("tailnum", flight, "tailnum"),
            (flight, plane) -> with(flight, plane, "manufacturer", "manufacturer", "model", "model", "seats", "seats",
                "built", "year"),
            Materialized.with(TEXT, ROW))
        .leftJoin(airports, (ObjectNode flight) -> key("faa", flight, "origin"),
            (flight, airport) -> with(flight, airport, "origin_name", "name"), Materialized.with(TEXT, ROW))
        .leftJoin(airports, (ObjectNode flight) -> key("faa", flight, "dest"),
            (flight, airport) -> with(flight, airport, "dest_name", "name", "dest_zone", "tzone"),
            Materialized.with(TEXT, ROW))
        .toStream()
        .peek((key, value) -> {
          LAST.set(System.nanoTime());
          RESULTS.incrementAndGet();
          KEYS.add(key);
        })
        .to(given[5], Produced.with(TEXT, ROW));
    return builder;
  }

  // A captured table as its connector leaves it; the key stays the text of its JSON, by which it is partitioned.
  private static KTable<String, ObjectNode> captured(StreamsBuilder builder, String topic) {
    return builder
        .stream(topic, Consumed.with(TEXT, ROW))
        .mapValues(change -> {
          READ.incrementAndGet();
          return change.get("after").isNull() ? null : (ObjectNode) change.get("after");
        })
        .toTable(Materialized.with(TEXT, ROW));
  }

  private static String key(String column, ObjectNode row, String field) {
    JsonNode value = row.get(field);
    return value == null || value.isNull() ? null : "{\"" + column + "\":\"" + value.asText() + "\"}";
  }

  private static ObjectNode with(ObjectNode row, ObjectNode other, String... names) {
    ObjectNode joined = row.deepCopy();
    for (int at = 0; at < names.length; at += 2) {
      joined.set(names[at], other == null ? JSON.nullNode() : other.get(names[at + 1]));
    }
    return joined;
  }

  private static ObjectNode evolved(ObjectNode flight, byte[] event) {
    EventType type = TYPES.get(ByteBuffer.wrap(event, 1, 4).getInt());
    GenericRecord record;
    try {
      record = type.reader().read(null, DecoderFactory.get().binaryDecoder(event, 5, event.length - 5, null));
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
    switch (type.name()) {
      case "flight.scheduled" -> {
        for (String name : new String[] {"carrier", "origin", "dest", "tailnum"}) {
          flight.put(name, record.get(name) == null ? null : record.get(name).toString());
        }
        for (String name : new String[] {"flight_number", "departs_at", "distance"}) {
          flight.put(name, (Long) record.get(name));
        }
        flight.put("status", "scheduled");
      }
      case "flight.departed" -> flight.put("status", "departed").put("dep_delay", (Long) record.get("delay"));
      case "flight.arrived" -> flight.put("status", "arrived").put("arr_delay", (Long) record.get("delay"));
      case "flight.cancelled" -> flight.put("status", "cancelled");
      case "flight.reassigned" -> flight.put("tailnum", record.get("tailnum").toString());
      default -> throw new IllegalStateException(type.name());
    }
    return flight;
  }

  private static void learn(Map.Entry<String, JsonNode> found) {
    Schema schema = new Schema.Parser().setValidateDefaults(false).parse(found.getValue().get("schema").toString());
    String name = found.getValue().get("type").asText();
    TYPES.put(Integer.parseInt(found.getKey()), new EventType(name, schema, new GenericDatumReader<>(schema)));
  }

  private static byte[] written(ObjectNode row) {
    try {
      return JSON.writeValueAsBytes(row);
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static ObjectNode read(byte[] bytes) {
    try {
      return (ObjectNode) JSON.readTree(bytes);
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static Properties settings(String file) throws IOException {
    Properties settings = new Properties();
    try (FileReader reader = new FileReader(file)) {
      settings.load(reader);
    }
    return settings;
  }
}
