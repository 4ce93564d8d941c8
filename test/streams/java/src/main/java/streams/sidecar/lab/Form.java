package streams.sidecar.lab;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The fields of a request. A field that is asked for and missing is an error. */
public final class Form {
  private final Map<String, String> fields = new HashMap<>();

  Form(String encoded) {
    for (String field : encoded.split("&")) {
      int equals = field.indexOf('=');
      if (equals > 0) {
        fields.put(decode(field.substring(0, equals)), decode(field.substring(equals + 1)));
      }
    }
  }

  public String text(String name) {
    String value = fields.get(name);
    if (value == null) {
      throw new IllegalArgumentException("no field " + name);
    }
    return value;
  }

  public long number(String name) {
    return Long.parseLong(text(name));
  }

  public boolean flag(String name) {
    return Boolean.parseBoolean(text(name));
  }

  /** A flag that may be missing, which is false. */
  public boolean option(String name) {
    return Boolean.parseBoolean(fields.get(name));
  }

  /** The fields whose name begins so, without that beginning. */
  public Map<String, String> under(String prefix) {
    Map<String, String> found = new HashMap<>();
    fields.forEach((name, value) -> {
      if (name.startsWith(prefix)) {
        found.put(name.substring(prefix.length()), value);
      }
    });
    return found;
  }

  private static String decode(String s) {
    return URLDecoder.decode(s, StandardCharsets.UTF_8);
  }
}
