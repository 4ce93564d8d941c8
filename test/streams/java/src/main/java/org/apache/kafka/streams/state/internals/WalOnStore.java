package org.apache.kafka.streams.state.internals;

import java.io.File;
import java.util.Map;

/**
 * A key-value store that writes through RocksDB's WAL. Streams switches the WAL off in write options
 * that only its own package can reach, which is why this class is in it.
 */
public final class WalOnStore extends RocksDBStore {
  public WalOnStore(String name) {
    super(name, "rocksdb");
  }

  @Override
  void openDB(Map<String, Object> configs, File stateDir) {
    super.openDB(configs, stateDir);
    wOptions.setDisableWAL(false);
  }
}
