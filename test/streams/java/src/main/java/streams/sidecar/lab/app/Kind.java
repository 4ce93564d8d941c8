package streams.sidecar.lab.app;

import java.time.Duration;
import java.util.List;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.WalOnStore;
import streams.sidecar.lab.Content;

/** The kinds of store, each with how it is built, written and read. All keep the last value of a key. */
enum Kind {
  PLAIN {
    @Override
    StoreBuilder<?> builder(String name) {
      return keyValue(Stores.persistentKeyValueStore(name));
    }
  },
  UNLOGGED {
    @Override
    StoreBuilder<?> builder(String name) {
      return keyValue(Stores.persistentKeyValueStore(name)).withLoggingDisabled();
    }
  },
  /** Writes through the WAL, which no store of Streams does. */
  WAL {
    @Override
    StoreBuilder<?> builder(String name) {
      return keyValue(new KeyValueBytesStoreSupplier() {
        @Override
        public String name() {
          return name;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
          return new WalOnStore(name);
        }

        @Override
        public String metricsScope() {
          return "rocksdb";
        }
      });
    }
  },
  TIMESTAMPED {
    @Override
    StoreBuilder<?> builder(String name) {
      return Stores.timestampedKeyValueStoreBuilder(
          Stores.persistentTimestampedKeyValueStore(name), Serdes.String(), Serdes.String());
    }

    @Override
    @SuppressWarnings("unchecked")
    void put(StateStore store, Record<String, String> record) {
      ((TimestampedKeyValueStore<String, String>) store)
          .put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
    }
  },
  GLOBAL {
    @Override
    StoreBuilder<?> builder(String name) {
      throw new UnsupportedOperationException("a global store is built with its table");
    }
  },
  WINDOW {
    @Override
    StoreBuilder<?> builder(String name) {
      return Stores.windowStoreBuilder(
          Stores.persistentWindowStore(name, RETENTION, Duration.ofMinutes(1), false), Serdes.String(), Serdes.String());
    }

    @Override
    @SuppressWarnings("unchecked")
    void put(StateStore store, Record<String, String> record) {
      ((WindowStore<String, String>) store).put(record.key(), record.value(), record.timestamp());
    }

    @Override
    void read(Source from, Content content) {
      add(from.store(QueryableStoreTypes.<String, String>windowStore()).all(), content);
    }
  },
  SESSION {
    @Override
    StoreBuilder<?> builder(String name) {
      return Stores.sessionStoreBuilder(Stores.persistentSessionStore(name, RETENTION), Serdes.String(), Serdes.String());
    }

    @Override
    @SuppressWarnings("unchecked")
    void put(StateStore store, Record<String, String> record) {
      SessionWindow session = new SessionWindow(record.timestamp(), record.timestamp());
      ((SessionStore<String, String>) store).put(new Windowed<>(record.key(), session), record.value());
    }

    @Override
    void read(Source from, Content content) {
      // The whole range of keys: there is no all() for sessions.
      add(from.store(QueryableStoreTypes.<String, String>sessionStore()).fetch("", "\uffff"), content);
    }
  },
  /** From 3.5 on. */
  VERSIONED {
    @Override
    StoreBuilder<?> builder(String name) {
      return Versioned.builder(name, RETENTION);
    }

    @Override
    void put(StateStore store, Record<String, String> record) {
      Versioned.put(store, record.key(), record.value(), record.timestamp());
    }

    @Override
    void read(Source from, Content content) {
      // Neither can its keys be listed, nor can it be queried from outside in every version.
      for (long i = 0; i < from.keys; i++) {
        String key = Content.key(i);
        for (StateStore task : from.tasks) {
          String value = Versioned.get(task, key);
          if (value != null) {
            content.add(key, value);
          }
        }
      }
    }
  };

  /** How long window, session and versioned stores keep records; Streams then makes segments of five minutes. */
  static final Duration RETENTION = Duration.ofMinutes(10);

  /** Where the content of one store comes from. */
  static final class Source {
    private final KafkaStreams streams;
    private final String name;
    private final List<StateStore> tasks;
    private final long keys;
    private final boolean standbys;

    Source(KafkaStreams streams, String name, List<StateStore> tasks, long keys, boolean standbys) {
      this.streams = streams;
      this.name = name;
      this.tasks = tasks;
      this.keys = keys;
      this.standbys = standbys;
    }

    <T> T store(QueryableStoreType<T> type) {
      StoreQueryParameters<T> query = StoreQueryParameters.fromNameAndType(name, type);
      return streams.store(standbys ? query.enableStaleStores() : query);
    }
  }

  abstract StoreBuilder<?> builder(String name);

  @SuppressWarnings("unchecked")
  void put(StateStore store, Record<String, String> record) {
    ((KeyValueStore<String, String>) store).put(record.key(), record.value());
  }

  void read(Source from, Content content) {
    ReadOnlyKeyValueStore<String, String> store = from.store(QueryableStoreTypes.<String, String>keyValueStore());
    try (KeyValueIterator<String, String> all = store.all()) {
      while (all.hasNext()) {
        KeyValue<String, String> entry = all.next();
        content.add(entry.key, entry.value);
      }
    }
  }

  private static StoreBuilder<KeyValueStore<String, String>> keyValue(KeyValueBytesStoreSupplier supplier) {
    return Stores.keyValueStoreBuilder(supplier, Serdes.String(), Serdes.String());
  }

  private static void add(KeyValueIterator<Windowed<String>, String> all, Content content) {
    try (KeyValueIterator<Windowed<String>, String> open = all) {
      while (open.hasNext()) {
        KeyValue<Windowed<String>, String> entry = open.next();
        content.add(entry.key.key() + "@" + entry.key.window().start() + "-" + entry.key.window().end(), entry.value);
      }
    }
  }
}
