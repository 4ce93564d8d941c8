package streams.sidecar.lab;

import java.util.Map;

/** Writes maps, iterables, numbers, booleans and text as JSON. A number that JSON cannot have becomes null. */
final class Json {
  private final StringBuilder out = new StringBuilder();

  static String of(Object value) {
    Json json = new Json();
    json.write(value);
    return json.out.toString();
  }

  private void write(Object value) {
    if (value instanceof Map) {
      String before = "{";
      for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
        out.append(before);
        text(String.valueOf(entry.getKey()));
        out.append(':');
        write(entry.getValue());
        before = ",";
      }
      out.append(before.equals("{") ? "{}" : "}");
    } else if (value instanceof Iterable) {
      String before = "[";
      for (Object element : (Iterable<?>) value) {
        out.append(before);
        write(element);
        before = ",";
      }
      out.append(before.equals("[") ? "[]" : "]");
    } else if (value == null || value instanceof Boolean || isFinite(value)) {
      out.append(value);
    } else if (value instanceof Number) {
      out.append("null");
    } else {
      text(value.toString());
    }
  }

  private static boolean isFinite(Object value) {
    return value instanceof Number && Double.isFinite(((Number) value).doubleValue());
  }

  private void text(String s) {
    out.append('"');
    for (int i = 0; i < s.length(); i++) {
      char c = s.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
