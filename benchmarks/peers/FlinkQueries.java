// Flink SQL in a cluster of this process: runs one query after another, and prints the changelog of each.
// Argument: parallel subtasks. Input, a line each: a statement that defines something, a query, an INSERT, or "stop",
// which ends the query and forgets the definitions. Output, JSON a line: {"columns": {name: type}}, {"at": milliseconds since
// 1970, "kind": "+I", "row": [texts]}, {"refused": reason}, {"failed": reason}, {"inserting": true},
// {"stopped": true}.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

public class FlinkQueries {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static StreamExecutionEnvironment cluster;
  private static StreamTableEnvironment tables;
  private static JobClient running;

  public static void main(String[] given) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    open(Integer.parseInt(given[0]));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (line.equals("stop")) {
        stop();
        open(Integer.parseInt(given[0]));
        say(Map.of("stopped", true));
      } else {
        run(line);
      }
    }
    stop();
    System.exit(0);
  }

  private static void open(int parallelism) {
    cluster = StreamExecutionEnvironment.createLocalEnvironment(parallelism, new Configuration());
    tables = StreamTableEnvironment.create(cluster);
    tables.getConfig().set("table.local-time-zone", "UTC");
  }

  private static void run(String query) {
    try {
      if (query.startsWith("CREATE")) {
        tables.executeSql(query);
        return;
      }
      if (query.startsWith("INSERT")) {
        running = tables.executeSql(query).getJobClient().orElseThrow();
        running.getJobExecutionResult().whenComplete((result, error) -> failed(error));
        say(Map.of("inserting", true));
        return;
      }
      Table table = tables.sqlQuery(query);
      Map<String, String> types = new LinkedHashMap<>();
      for (Column column : table.getResolvedSchema().getColumns()) {
        types.put(column.getName(), column.getDataType().getLogicalType().asSummaryString());
      }
      // The rows are printed where they arrive, by one subtask: collect() would ask for them every 100 ms.
      tables.toChangelogStream(table).process(new Printer()).setParallelism(1)
          .sinkTo(new DiscardingSink<>()).setParallelism(1);
      running = cluster.executeAsync();
      running.getJobExecutionResult().whenComplete((result, error) -> failed(error));
      say(Map.of("columns", types));
    } catch (Exception error) {
      say(Map.of("refused", reason(error)));
    }
  }

  private static void stop() throws Exception {
    JobClient job = running;
    running = null; // before it is cancelled: that is no failure
    if (job != null && !job.getJobExecutionResult().isDone()) {
      job.cancel().get(30, TimeUnit.SECONDS);
    }
  }

  private static void failed(Throwable error) {
    if (error != null && running != null) {
      say(Map.of("failed", reason(error)));
    }
  }

  private static String reason(Throwable error) {
    Throwable root = error;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    return String.valueOf(root.getMessage()).strip().lines().findFirst().orElse(root.toString());
  }

  private static synchronized void say(Object what) {
    try {
      System.out.println(JSON.writeValueAsString(what));
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  /** Prints each row with the time of its arrival. */
  public static class Printer extends ProcessFunction<Row, Row> {
    @Override
    public void processElement(Row row, Context context, Collector<Row> out) {
      long at = System.currentTimeMillis();
      List<String> values = new ArrayList<>();
      for (int field = 0; field < row.getArity(); field++) {
        values.add(row.getField(field) == null ? null : row.getField(field).toString());
      }
      say(Map.of("at", at, "kind", row.getKind().shortString(), "row", values));
    }
  }
}
