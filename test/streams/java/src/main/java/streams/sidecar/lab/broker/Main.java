package streams.sidecar.lab.broker;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.MetadataVersion;
import streams.sidecar.lab.Control;

/** One Kafka node, broker and controller, on loopback and with its data in lab.scratch; and its {@link Tool}. */
public final class Main {
  private static final int NODE = 1;

  private Main() {
  }

  public static void main(String[] args) throws Exception {
    Control.endWithParent();
    int port = freePort();
    int controllerPort = freePort();
    int behindPort = freePort();
    int proxiedPort = freePort(); // whoever started this JVM listens there and passes it on to the one behind
    String directory = Path.of(System.getProperty("lab.scratch"), "kafka").toString();
    Properties config = config(port, controllerPort, behindPort, proxiedPort, directory);
    new Formatter()
        .setPrintStream(System.err)
        .setNodeId(NODE)
        .setClusterId(Uuid.randomUuid().toString())
        .setReleaseVersion(MetadataVersion.latestProduction())
        .setControllerListenerName("CONTROLLER")
        .setMetadataLogDirectory(directory)
        .addDirectory(directory)
        .run();
    new KafkaRaftServer(KafkaConfig.fromProps(config), Time.SYSTEM).startup();
    String bootstrap = "127.0.0.1:" + port;
    Tool tool = new Tool(bootstrap);
    new Control()
        .on("/create", tool::create)
        .on("/delete", tool::delete)
        .on("/load/start", tool::startLoad)
        .on("/load/status", tool::loadStatus)
        .on("/load/stop", tool::stopLoad)
        .on("/content", tool::content)
        .on("/ends", tool::ends)
        .on("/lag", tool::lag)
        .announce(Map.of("pid", ProcessHandle.current().pid(), "bootstrap", bootstrap,
            "proxied", "127.0.0.1:" + proxiedPort, "behind", "127.0.0.1:" + behindPort));
  }

  private static Properties config(int port, int controllerPort, int behindPort, int proxiedPort, String directory) {
    Properties p = new Properties();
    p.put("process.roles", "broker,controller");
    p.put("node.id", String.valueOf(NODE));
    p.put("controller.quorum.voters", NODE + "@127.0.0.1:" + controllerPort);
    p.put("listeners", "PLAINTEXT://127.0.0.1:" + port + ",PROXIED://127.0.0.1:" + behindPort
        + ",CONTROLLER://127.0.0.1:" + controllerPort);
    p.put("advertised.listeners", "PLAINTEXT://127.0.0.1:" + port + ",PROXIED://127.0.0.1:" + proxiedPort);
    p.put("controller.listener.names", "CONTROLLER");
    p.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT");
    p.put("inter.broker.listener.name", "PLAINTEXT");
    p.put("log.dirs", directory);
    p.put("auto.create.topics.enable", "false");
    p.put("offsets.topic.replication.factor", "1");
    p.put("offsets.topic.num.partitions", "1");
    p.put("transaction.state.log.replication.factor", "1");
    p.put("transaction.state.log.min.isr", "1");
    p.put("transaction.state.log.num.partitions", "1");
    p.put("share.coordinator.state.topic.replication.factor", "1");
    p.put("share.coordinator.state.topic.min.isr", "1");
    // A test waits for none of these.
    p.put("group.initial.rebalance.delay.ms", "0");
    p.put("group.min.session.timeout.ms", "500");
    p.put("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500");
    p.put("log.segment.delete.delay.ms", "0");
    // Two cores, and some hundred partitions of little data.
    p.put("num.network.threads", "2");
    p.put("num.io.threads", "2");
    p.put("background.threads", "2");
    p.put("log.cleaner.dedupe.buffer.size", "4194304");
    p.put("log.index.size.max.bytes", "65536");
    return p;
  }

  /** A port below those that Linux gives to connections, so that none can take it before Kafka does. */
  private static int freePort() throws IOException {
    InetAddress loopback = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
    for (int tries = 0;; tries++) {
      int port = ThreadLocalRandom.current().nextInt(10_000, 32_768);
      try (ServerSocket probe = new ServerSocket()) {
        probe.bind(new InetSocketAddress(loopback, port));
        return port;
      } catch (IOException e) {
        if (tries == 100) {
          throw e;
        }
      }
    }
  }
}
