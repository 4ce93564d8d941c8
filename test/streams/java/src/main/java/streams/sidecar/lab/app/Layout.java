package streams.sidecar.lab.app;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import streams.sidecar.lab.Content;
import streams.sidecar.lab.Form;

/**
 * The stores of an application, and the topology that fills them: one processor writes each record
 * of the input topic into every store; a global store follows the global topic.
 */
final class Layout {
  private final Map<String, Kind> stores = new LinkedHashMap<>();
  private final String inputTopic;
  private final String globalTopic;
  private final AtomicLong processed = new AtomicLong();
  private final AtomicBoolean poisoned = new AtomicBoolean();
  private final AtomicBoolean poisonedClose = new AtomicBoolean();
  /** The open stores of all tasks, by name. */
  private final Map<String, List<StateStore>> open = new ConcurrentHashMap<>();

  Layout(Form form) {
    inputTopic = form.text("input");
    globalTopic = form.text("global");
    form.under("store.").forEach((name, kind) -> stores.put(name, Kind.valueOf(kind)));
  }

  Topology topology() {
    StreamsBuilder builder = new StreamsBuilder();
    stores.forEach((name, kind) -> {
      if (kind == Kind.GLOBAL) {
        builder.globalTable(globalTopic, Consumed.with(Serdes.String(), Serdes.String()),
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name));
      }
    });
    Topology topology = builder.build();
    topology.addSource("input", new StringDeserializer(), new StringDeserializer(), inputTopic);
    topology.addProcessor("writer", Writer::new, "input");
    stores.forEach((name, kind) -> {
      if (kind != Kind.GLOBAL) {
        topology.addStateStore(kind.builder(name), "writer");
      }
    });
    return topology;
  }

  long processed() {
    return processed.get();
  }

  /** The next record, of any task, makes its processor throw, once; or the next processor that is closed does. */
  void poison(boolean close) {
    (close ? poisonedClose : poisoned).set(true);
  }

  void read(KafkaStreams streams, Form form, Content content) {
    String store = form.text("store");
    Kind kind = stores.get(store);
    if (kind == null) {
      throw new IllegalArgumentException("no store " + store + " among " + stores.keySet());
    }
    List<StateStore> tasks = open.getOrDefault(store, Collections.emptyList());
    kind.read(new Kind.Source(streams, store, tasks, form.number("keys"), form.flag("standbys")), content);
  }

  private final class Writer implements Processor<String, String, Void, Void> {
    private final Map<StateStore, Kind> targets = new LinkedHashMap<>();

    @Override
    public void init(ProcessorContext<Void, Void> context) {
      stores.forEach((name, kind) -> {
        if (kind != Kind.GLOBAL) {
          StateStore store = context.getStateStore(name);
          targets.put(store, kind);
          open.computeIfAbsent(name, n -> Collections.synchronizedList(new ArrayList<>())).add(store);
        }
      });
    }

    @Override
    public void process(Record<String, String> record) {
      if (poisoned.compareAndSet(true, false)) {
        throw new IllegalStateException("poison");
      }
      targets.forEach((store, kind) -> kind.put(store, record));
      processed.incrementAndGet();
    }

    @Override
    public void close() {
      open.values().forEach(all -> all.removeAll(targets.keySet()));
      if (poisonedClose.compareAndSet(true, false)) {
        throw new IllegalStateException("poison in close");
      }
    }
  }
}
