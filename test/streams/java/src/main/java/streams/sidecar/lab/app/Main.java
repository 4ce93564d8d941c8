package streams.sidecar.lab.app;

import java.time.Duration;
import java.util.Map;
import streams.sidecar.lab.Control;
import streams.sidecar.lab.Form;

/**
 * A JVM that runs one Kafka Streams application after another, on any state directory and with any
 * configuration. It is compiled once per version of Kafka Streams, from the same sources.
 */
public final class Main {
  private static final Duration STOP_TIMEOUT = Duration.ofMinutes(5);

  private volatile Instance instance;

  public static void main(String[] args) throws Exception {
    Control.endWithParent();
    new Main().serve();
  }

  private void serve() throws Exception {
    Runtime.getRuntime().addShutdownHook(new Thread(this::hook));
    new Control()
        .on("/open", this::open)
        .on("/close", form -> close(Duration.ofMillis(form.number("millis"))))
        .on("/stop", this::stop)
        .on("/status", form -> current().status())
        .on("/content", form -> current().content(form))
        .on("/metrics", form -> current().metrics(form.text("group")))
        .on("/poison", form -> current().poison(form.flag("close")))
        .announce(Map.of("pid", ProcessHandle.current().pid()));
  }

  private synchronized Object open(Form form) {
    if (instance != null && instance.isOpen()) {
      throw new IllegalStateException("an application is still open");
    }
    instance = null;
    Instance opening = new Instance(form);
    // Kept even if start throws: it then still holds the directory's lock, and has to be closed.
    instance = opening;
    opening.start();
    return Map.of();
  }

  private Object close(Duration timeout) {
    Instance i = instance;
    return i == null ? Map.of("closed", true) : i.close(timeout);
  }

  /**
   * How an application lets itself be stopped from outside: it closes in a thread of its own and
   * answers at once, or with sync once it is closed. The JVM lives on.
   */
  private Object stop(Form form) throws InterruptedException {
    Instance i = current();
    Thread closing = new Thread(() -> i.close(STOP_TIMEOUT), "stop");
    closing.setDaemon(true);
    closing.start();
    if (form.option("sync")) {
      closing.join();
    }
    return Map.of();
  }

  private Instance current() {
    Instance i = instance;
    if (i == null) {
      throw new IllegalStateException("no application is open");
    }
    return i;
  }

  private void hook() {
    Instance i = instance;
    if (i != null) {
      i.closeInHook();
    }
  }
}
