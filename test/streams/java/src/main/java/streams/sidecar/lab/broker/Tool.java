package streams.sidecar.lab.broker;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import streams.sidecar.lab.Content;
import streams.sidecar.lab.Form;

/** Topics, records, and what is true of them. It is a client of the broker, and outlives every application. */
final class Tool {
  private final String bootstrap;
  private final Admin admin;
  private final KafkaProducer<String, String> producer;
  private final Map<Long, Load> loads = new ConcurrentHashMap<>();
  private final AtomicLong lastLoad = new AtomicLong();

  Tool(String bootstrap) {
    this.bootstrap = bootstrap;
    admin = Admin.create(client());
    Properties p = client();
    p.put("linger.ms", "5");
    // A new topic's first batch can be refused because the broker has not heard of the topic yet, and
    // the second one be accepted; then the first one is out of sequence for ever.
    p.put("max.in.flight.requests.per.connection", "1");
    p.put("delivery.timeout.ms", "60000");
    p.put("metadata.max.idle.ms", "5000"); // topics are deleted with their test
    producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
  }

  /** Creates a topic, if there is none. */
  Object create(Form form) throws Exception {
    try {
      admin.createTopics(List.of(new NewTopic(form.text("topic"), (int) form.number("partitions"), (short) 1))).all().get();
    } catch (ExecutionException e) {
      if (!(e.getCause() instanceof TopicExistsException)) {
        throw e;
      }
    }
    return Map.of();
  }

  /** Deletes the topics with a prefix. */
  Object delete(Form form) throws Exception {
    List<String> topics = topics(form.text("prefix"));
    admin.deleteTopics(topics).all().get();
    return Map.of();
  }

  Object startLoad(Form form) {
    Load load = new Load(producer, form);
    long id = lastLoad.incrementAndGet();
    loads.put(id, load);
    load.start();
    return Map.of("id", id);
  }

  Object loadStatus(Form form) {
    return Objects.requireNonNull(loads.get(form.number("id")), "no such load").status();
  }

  /** Ends a load before its time and gives its status. */
  Object stopLoad(Form form) throws InterruptedException {
    Load load = Objects.requireNonNull(loads.remove(form.number("id")), "no such load");
    load.end();
    return load.status();
  }

  /** The last committed value of every key of a topic. */
  Object content(Form form) {
    Properties p = client();
    p.put("isolation.level", "read_committed");
    Map<String, String> last = new HashMap<>();
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
      List<TopicPartition> partitions = new ArrayList<>();
      for (PartitionInfo info : consumer.partitionsFor(form.text("topic"))) {
        partitions.add(new TopicPartition(info.topic(), info.partition()));
      }
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
          if (record.value() == null) {
            last.remove(record.key());
          } else {
            last.put(record.key(), record.value());
          }
        }
      }
    }
    Content content = new Content();
    last.forEach(content::add);
    return content.toMap();
  }

  /** The offset that the next record will get, by "topic-partition", for all topics with a prefix. */
  Object ends(Form form) throws Exception {
    Map<String, Long> ends = new TreeMap<>();
    latest(topics(form.text("prefix"))).forEach((partition, offset) -> ends.put(partition.toString(), offset));
    return ends;
  }

  /** How many records of a topic a group has not committed. */
  Object lag(Form form) throws Exception {
    Map<TopicPartition, OffsetAndMetadata> committed =
        admin.listConsumerGroupOffsets(form.text("group")).partitionsToOffsetAndMetadata().get();
    long lag = 0;
    for (Map.Entry<TopicPartition, Long> end : latest(List.of(form.text("topic"))).entrySet()) {
      OffsetAndMetadata offset = committed.get(end.getKey());
      lag += end.getValue() - (offset == null ? 0 : offset.offset());
    }
    return Map.of("lag", lag);
  }

  private List<String> topics(String prefix) throws Exception {
    List<String> found = new ArrayList<>();
    for (String topic : admin.listTopics().names().get()) {
      if (topic.startsWith(prefix)) {
        found.add(topic);
      }
    }
    return found;
  }

  private Map<TopicPartition, Long> latest(List<String> topics) throws Exception {
    Map<TopicPartition, OffsetSpec> ask = new HashMap<>();
    for (TopicDescription topic : admin.describeTopics(topics).allTopicNames().get().values()) {
      topic.partitions().forEach(p -> ask.put(new TopicPartition(topic.name(), p.partition()), OffsetSpec.latest()));
    }
    Map<TopicPartition, Long> ends = new HashMap<>();
    admin.listOffsets(ask).all().get().forEach((partition, result) -> ends.put(partition, result.offset()));
    return ends;
  }

  private Properties client() {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    return p;
  }
}
