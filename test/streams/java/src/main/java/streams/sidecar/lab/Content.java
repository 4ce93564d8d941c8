package streams.sidecar.lab;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * What a store or a topic holds, as a number of entries and a hash that does not depend on their
 * order: the sum of the 64-bit FNV-1a of "key=value". Two contents are equal if both are.
 */
public final class Content {
  private long entries;
  private long hash;

  /** The name of a key: those of a load are key(0) to key(n-1). */
  public static String key(long i) {
    return String.format("k%07d", i);
  }

  public void add(String key, String value) {
    long fnv = 0xcbf29ce484222325L;
    for (byte b : (key + "=" + value).getBytes(StandardCharsets.UTF_8)) {
      fnv = (fnv ^ (b & 0xff)) * 0x100000001b3L;
    }
    entries++;
    hash += fnv;
  }

  public Map<String, Object> toMap() {
    return Map.of("entries", entries, "hash", hash);
  }
}
