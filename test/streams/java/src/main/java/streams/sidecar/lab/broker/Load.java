package streams.sidecar.lab.broker;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import streams.sidecar.lab.Content;
import streams.sidecar.lab.Control;
import streams.sidecar.lab.Form;

/**
 * Records into one topic, in a thread of its own: keys in turn, so that each is there after as many
 * records as there are keys; values "number:filler", so that no two are equal.
 */
final class Load {
  private final KafkaProducer<String, String> producer;
  private final String topic;
  private final long first;
  private final long count;
  private final long keys;
  private final long perSecond; // 0: as fast as it goes
  private final long spreadMillis;
  private final String filler;
  private final Thread thread = new Thread(this::run, "load");
  private final CountDownLatch end = new CountDownLatch(1);
  private final AtomicReference<String> error = new AtomicReference<>();
  private volatile long sent;

  Load(KafkaProducer<String, String> producer, Form form) {
    this.producer = producer;
    topic = form.text("topic");
    first = form.number("first");
    count = form.number("count");
    keys = form.number("keys");
    perSecond = form.number("rate");
    spreadMillis = form.number("spread");
    filler = "x".repeat((int) form.number("size"));
    thread.setDaemon(true);
  }

  void start() {
    thread.start();
  }

  void end() throws InterruptedException {
    end.countDown();
    thread.join();
  }

  Map<String, Object> status() {
    boolean running = thread.isAlive(); // before the error, which is final once the thread has ended
    String e = error.get();
    return Map.of("running", running, "sent", sent, "error", e == null ? "" : e);
  }

  private void run() {
    try {
      long start = System.nanoTime();
      long now = System.currentTimeMillis();
      for (long i = 0; i < count && !isOver(start, i); i++) {
        // The timestamps of a burst can be spread over the past, so that they fall into several segments.
        long timestamp = spreadMillis == 0 ? System.currentTimeMillis() : now - spreadMillis + i * spreadMillis / count;
        long number = first + i;
        producer.send(
            new ProducerRecord<>(topic, null, timestamp, Content.key(number % keys), number + ":" + filler),
            (metadata, thrown) -> {
              if (thrown != null) {
                error.compareAndSet(null, Control.chain(thrown));
              }
            });
        sent = i + 1;
      }
      producer.flush();
    } catch (Exception e) {
      error.compareAndSet(null, Control.chain(e));
    }
  }

  /** Waits until record i is due; true if the load was ended meanwhile. */
  private boolean isOver(long start, long i) throws InterruptedException {
    if (error.get() != null) {
      return true;
    }
    long wait = perSecond == 0 ? 0 : start + i * Duration.ofSeconds(1).toNanos() / perSecond - System.nanoTime();
    return end.await(Math.max(wait, 0), TimeUnit.NANOSECONDS);
  }
}
