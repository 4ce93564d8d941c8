package streams.sidecar.lab.app;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Versioned stores by reflection, because these sources are also compiled against versions without them. */
final class Versioned {
  private static final String PACKAGE = "org.apache.kafka.streams.state.";

  private Versioned() {
  }

  static StoreBuilder<?> builder(String name, Duration retention) {
    Object supplier = call(method(Stores.class, "persistentVersionedKeyValueStore", String.class, Duration.class), null, name, retention);
    Method builder = method(Stores.class, "versionedKeyValueStoreBuilder", type("VersionedBytesStoreSupplier"), Serde.class, Serde.class);
    return (StoreBuilder<?>) call(builder, null, supplier, Serdes.String(), Serdes.String());
  }

  static void put(StateStore store, String key, String value, long timestamp) {
    call(Methods.PUT, store, key, value, timestamp);
  }

  /** The latest value of a key, or null. */
  static String get(StateStore store, String key) {
    Object versioned = call(Methods.GET, store, key);
    return versioned == null ? null : (String) call(Methods.VALUE, versioned);
  }

  /** Looked up once, and only where there are versioned stores. */
  private static final class Methods {
    static final Method PUT = method(type("VersionedKeyValueStore"), "put", Object.class, Object.class, long.class);
    static final Method GET = method(type("VersionedKeyValueStore"), "get", Object.class);
    static final Method VALUE = method(type("VersionedRecord"), "value");
  }

  private static Class<?> type(String name) {
    try {
      return Class.forName(PACKAGE + name);
    } catch (ClassNotFoundException e) {
      throw new UnsupportedOperationException("this version has no versioned stores", e);
    }
  }

  private static Method method(Class<?> type, String name, Class<?>... parameters) {
    try {
      return type.getMethod(name, parameters);
    } catch (NoSuchMethodException e) {
      throw new UnsupportedOperationException("this version has no versioned stores", e);
    }
  }

  private static Object call(Method method, Object target, Object... arguments) {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      // As if it had been called directly: what Streams throws decides what Streams does next.
      if (e.getCause() instanceof RuntimeException) {
        throw (RuntimeException) e.getCause();
      }
      throw new IllegalStateException(e.getCause());
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }
}
