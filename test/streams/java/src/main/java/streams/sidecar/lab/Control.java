package streams.sidecar.lab;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Executors;

/**
 * How the Go program that started this JVM controls it: HTTP on a free loopback port, a form in,
 * one JSON value out. An action that throws answers 500 and {"error": the chain of messages}.
 */
public final class Control {
  /** What one path does. The result is anything that {@link Json} writes. */
  public interface Action {
    Object run(Form form) throws Exception;
  }

  private final HttpServer server;

  public Control() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getByAddress(new byte[] {127, 0, 0, 1}), 0), 0);
    server.setExecutor(Executors.newCachedThreadPool(Control::daemon));
  }

  public Control on(String path, Action action) {
    server.createContext(path, exchange -> answer(exchange, action));
    return this;
  }

  /** Starts to serve, and says where on the first line of stdout, together with what else is to be known. */
  public void announce(Map<String, ?> about) {
    server.start();
    Map<String, Object> line = new LinkedHashMap<>(about);
    line.put("url", "http://127.0.0.1:" + server.getAddress().getPort());
    System.out.println(Json.of(line));
  }

  /**
   * Ends this JVM when the parent closes its end of stdin, which also happens when the parent dies
   * of anything. It halts, so that no shutdown hook waits for a broker that is going away too.
   */
  public static void endWithParent() {
    daemon(() -> {
      try {
        while (System.in.read() >= 0) {
          continue;
        }
        removeLater(System.getProperty("lab.scratch"));
      } catch (IOException e) {
        e.printStackTrace();
      }
      Runtime.getRuntime().halt(0);
    }).start();
  }

  /**
   * Removes a directory as soon as this JVM has ended, which is when that shell's stdin does. Before,
   * threads of this JVM would put new files into it.
   */
  private static void removeLater(String directory) throws IOException {
    new ProcessBuilder("sh", "-c", "read -r line; rm -rf -- \"$0\"", directory).start();
  }

  /** The messages of an exception and its causes, in one line. */
  public static String chain(Throwable thrown) {
    StringBuilder line = new StringBuilder();
    for (Throwable t = thrown; t != null; t = t.getCause()) {
      line.append(line.length() == 0 ? "" : " <- ").append(t.getClass().getName());
      if (t.getMessage() != null) {
        line.append(": ").append(t.getMessage().replace('\n', ' '));
      }
    }
    return line.toString();
  }

  private static Thread daemon(Runnable work) {
    Thread t = new Thread(work);
    t.setDaemon(true);
    return t;
  }

  private static void answer(HttpExchange exchange, Action action) throws IOException {
    int status = 200;
    Object result;
    try (InputStream body = exchange.getRequestBody()) {
      result = action.run(new Form(new String(body.readAllBytes(), StandardCharsets.UTF_8)));
    } catch (Throwable t) { // an Error, too, is for the test to see
      t.printStackTrace();
      status = 500;
      result = Map.of("error", chain(t));
    }
    byte[] json = Json.of(result).getBytes(StandardCharsets.UTF_8);
    exchange.sendResponseHeaders(status, json.length);
    try (OutputStream out = exchange.getResponseBody()) {
      out.write(json);
    }
  }
}
