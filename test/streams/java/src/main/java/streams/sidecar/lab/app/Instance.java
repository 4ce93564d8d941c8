package streams.sidecar.lab.app;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import streams.sidecar.lab.Content;
import streams.sidecar.lab.Control;
import streams.sidecar.lab.Form;

/** One KafkaStreams, from its constructor to its close. */
final class Instance implements StateRestoreListener {
  private final Layout layout;
  private final KafkaStreams streams;
  private final Duration hook; // zero: none
  private final List<String> uncaught = new CopyOnWriteArrayList<>();
  private final Map<String, Map<String, Object>> restores = new TreeMap<>(); // guarded by itself

  Instance(Form form) {
    layout = new Layout(form);
    hook = Duration.ofMillis(form.number("hook.millis"));
    Properties config = new Properties();
    config.putAll(form.under("config."));
    streams = new KafkaStreams(layout.topology(), config);
    streams.setGlobalStateRestoreListener(this);
    streams.setUncaughtExceptionHandler(thrown -> {
      uncaught.add(Control.chain(thrown));
      return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
  }

  void start() {
    streams.start();
  }

  /** What the shutdown hook does. The JVM ends when it is done, whether the close was or not. */
  void closeInHook() {
    if (!hook.isZero()) {
      streams.close(hook);
    }
  }

  boolean isOpen() {
    switch (streams.state()) {
      case NOT_RUNNING:
      case ERROR: // everything is closed, too
        return false;
      default:
        return true;
    }
  }

  Map<String, Object> close(Duration timeout) {
    return Map.of("closed", streams.close(timeout));
  }

  Map<String, Object> status() {
    Map<String, Object> status = new LinkedHashMap<>();
    status.put("state", streams.state());
    status.put("uncaught", uncaught);
    status.put("processed", layout.processed());
    synchronized (restores) {
      status.put("restores", new ArrayList<>(restores.values()));
    }
    return status;
  }

  Map<String, Object> content(Form form) {
    Content content = new Content();
    layout.read(streams, form, content);
    return content.toMap();
  }

  /** The metrics of a group as they are now; what is not a number is left out. */
  List<Map<String, Object>> metrics(String group) {
    List<Map<String, Object>> found = new ArrayList<>();
    for (Metric m : streams.metrics().values()) {
      if (m.metricName().group().equals(group) && m.metricValue() instanceof Number) {
        found.add(Map.of("name", m.metricName().name(), "tags", m.metricName().tags(), "value", m.metricValue()));
      }
    }
    return found;
  }

  Map<String, Object> poison(boolean close) {
    layout.poison(close);
    return Map.of();
  }

  @Override
  public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
    restore(partition, store).putAll(Map.of("from", from, "to", to));
  }

  @Override
  public void onBatchRestored(TopicPartition partition, String store, long end, long records) {
    synchronized (restores) {
      restore(partition, store).merge("records", records, (a, b) -> (long) a + (long) b);
    }
  }

  @Override
  public void onRestoreEnd(TopicPartition partition, String store, long total) {
    restore(partition, store).put("done", true);
  }

  private Map<String, Object> restore(TopicPartition partition, String store) {
    synchronized (restores) {
      return restores.computeIfAbsent(store + " " + partition, key -> {
        Map<String, Object> restore = new ConcurrentHashMap<>();
        restore.putAll(Map.of("store", store, "topic", partition.topic(), "partition", partition.partition(), "records", 0L, "done", false));
        return restore;
      });
    }
  }
}
