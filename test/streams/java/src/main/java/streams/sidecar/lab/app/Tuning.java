package streams.sidecar.lab.app;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.Options;

/** RocksDB options out of settings of the application's own, each of which may be absent. */
public final class Tuning implements RocksDBConfigSetter {
  @Override
  public void setConfig(String store, Options options, Map<String, Object> config) {
    Object writeBuffer = config.get("lab.write.buffer.bytes");
    if (writeBuffer != null) {
      options.setWriteBufferSize(Long.parseLong((String) writeBuffer));
    }
    Object dumpSeconds = config.get("lab.info.log.dump.seconds");
    if (dumpSeconds != null) {
      options.setInfoLogLevel(InfoLogLevel.INFO_LEVEL);
      options.setStatsDumpPeriodSec(Integer.parseInt((String) dumpSeconds));
    }
  }

  @Override
  public void close(String store, Options options) {
    // Nothing was allocated.
  }
}
