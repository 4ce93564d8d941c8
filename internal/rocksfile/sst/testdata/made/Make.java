import java.io.File;
import java.io.FileWriter;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import org.rocksdb.*;

/**
 * Make.java writes one small SST for each format that no Kafka Streams fixture has, with RocksDB
 * itself, and notes beside it what was written. See README.md.
 *
 *   java -cp rocksdbjni-V.jar Make.java OUT-DIR CASE…
 */
public class Make {
  static String hex(byte[] b) {
    StringBuilder s = new StringBuilder();
    for (byte x : b) s.append(String.format("%02x", x));
    return s.toString();
  }

  static byte[] ascii(String s) {
    return s.getBytes(java.nio.charset.StandardCharsets.US_ASCII);
  }

  /** Every entry that must be in the file, as "key seq type value" in hex, in file order. */
  static class Written {
    static class Op {
      byte[] key, value;
      long seq;
      int type;
    }

    final List<Op> points = new ArrayList<>(), ranges = new ArrayList<>();

    void add(byte[] key, long seq, int type, byte[] value) {
      Op o = new Op();
      o.key = key;
      o.seq = seq;
      o.type = type;
      o.value = value;
      (type == 15 ? ranges : points).add(o);
    }

    String digest(final boolean reverse) throws Exception {
      java.util.Comparator<Op> order =
          new java.util.Comparator<Op>() {
            public int compare(Op a, Op b) {
              int n = Math.min(a.key.length, b.key.length);
              int c = 0;
              for (int i = 0; i < n && c == 0; i++) c = (a.key[i] & 255) - (b.key[i] & 255);
              if (c == 0) c = a.key.length - b.key.length;
              if (reverse) c = -c;
              return c != 0 ? c : Long.compare(b.seq, a.seq);
            }
          };
      Collections.sort(points, order);
      Collections.sort(ranges, order);
      MessageDigest d = MessageDigest.getInstance("SHA-256");
      for (List<Op> l : Arrays.asList(points, ranges))
        for (Op o : l) {
          // A blob index is RocksDB's own encoding: only that it is one is known.
          String value = o.type == 17 ? "" : hex(o.value);
          d.update(ascii(hex(o.key) + " " + o.seq + " " + o.type + " " + value + "\n"));
        }
      return hex(d.digest()).substring(0, 32);
    }
  }

  static RocksDB db;
  static ColumnFamilyHandle cf;
  static Written written;
  static int blobFrom = Integer.MAX_VALUE;
  static List<Snapshot> snapshots = new ArrayList<>();

  static void put(byte[] k, byte[] v) throws Exception {
    db.put(cf, k, v);
    written.add(k, db.getLatestSequenceNumber(), v.length >= blobFrom ? 17 : 1, v);
  }

  static void plain(int n, int width) throws Exception {
    for (int i = 0; i < n; i++)
      put(ascii(String.format("key-%05d", i * 7)), ascii(String.format("%0" + width + "d", i)));
  }

  /** Each write is followed by a snapshot, so that a flush keeps every one of them. */
  static void mixed() throws Exception {
    Random r = new Random(7);
    for (int i = 0; i < 150; i++) {
      byte[] k = ascii(String.format("m%02d", r.nextInt(25)));
      switch (i % 6) {
        case 3:
          db.delete(cf, k);
          written.add(k, db.getLatestSequenceNumber(), 0, new byte[0]);
          break;
        case 4:
          db.merge(cf, k, ascii("+" + i));
          written.add(k, db.getLatestSequenceNumber(), 2, ascii("+" + i));
          break;
        default:
          put(k, ascii("value-" + i));
      }
      snapshots.add(db.getSnapshot());
    }
    for (int i = 0; i < 5; i++) { // a key that is only ever put once may be single-deleted
      byte[] k = ascii("s" + i);
      put(k, ascii("once"));
      snapshots.add(db.getSnapshot());
      db.singleDelete(cf, k);
      written.add(k, db.getLatestSequenceNumber(), 7, new byte[0]);
      snapshots.add(db.getSnapshot());
    }
    for (int i = 0; i < 40; i++) { // one key's versions fill several blocks
      put(ascii("versions"), ascii("version-" + i));
      snapshots.add(db.getSnapshot());
    }
    db.deleteRange(cf, ascii("m05"), ascii("m07"));
    written.add(ascii("m05"), db.getLatestSequenceNumber(), 15, ascii("m07"));
  }

  static Properties props(String... kv) {
    Properties p = new Properties();
    for (int i = 0; i < kv.length; i += 2) p.setProperty(kv[i], kv[i + 1]);
    return p;
  }

  static void make(String out, String name, String table, String data, String... cfProps)
      throws Exception {
    Path dir = Files.createTempDirectory("made");
    Properties p = props(cfProps);
    boolean reverse = name.startsWith("reverse-");
    blobFrom = p.containsKey("min_blob_size") ? Integer.parseInt(p.getProperty("min_blob_size"))
        : Integer.MAX_VALUE;
    p.setProperty("block_based_table_factory", "{" + table + "}");
    if (!p.containsKey("compression")) p.setProperty("compression", "kNoCompression");
    ColumnFamilyOptions cfo = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(p);
    if (cfo == null) throw new Exception(name + ": options refused");
    cfo.setDisableAutoCompactions(true);
    cfo.setMergeOperator(new StringAppendOperator());
    if (reverse) cfo.setComparator(BuiltinComparator.REVERSE_BYTEWISE_COMPARATOR);
    Properties dp = props("create_if_missing", "true", "create_missing_column_families", "true");
    if (!name.contains("rocksdb5")) dp.setProperty("db_host_id", "made");
    DBOptions dbo = DBOptions.getDBOptionsFromProps(dp);
    String family = name.equals("long-family")
        ? new String(new char[4000]).replace('\0', 'f') : "offsets";
    List<ColumnFamilyHandle> handles = new ArrayList<>();
    db = RocksDB.open(dbo, dir.toString(),
        Arrays.asList(new ColumnFamilyDescriptor(ascii("default")),
            new ColumnFamilyDescriptor(ascii(family), cfo)), handles);
    cf = handles.get(1);
    written = new Written();
    snapshots.clear();
    File sst = null;
    switch (data) {
      case "plain": plain(120, 20); break;
      case "uniform": plain(200, 2); break;
      case "compressible": plain(60, 200); break;
      case "mixed": mixed(); break;
      case "ranges":
        db.deleteRange(cf, ascii("a"), ascii("c"));
        written.add(ascii("a"), db.getLatestSequenceNumber(), 15, ascii("c"));
        break;
      case "sizes":
        put(new byte[0], ascii("empty key"));
        put(ascii("empty value"), new byte[0]);
        put(new byte[] {(byte) 0xff, 0}, ascii("binary"));
        for (int i = 0; i < 4; i++) {
          byte[] k = new byte[300 + i];
          Arrays.fill(k, (byte) 'k');
          byte[] v = new byte[i == 2 ? 3000 : 130];
          Arrays.fill(v, (byte) i);
          put(k, v);
        }
        break;
      case "ingest":
        put(ascii("key-00007"), ascii("older"));
        written = new Written();
        Snapshot s = db.getSnapshot(); // forces a sequence number of its own on the ingested file
        File ext = new File(dir.toFile(), "external.sst");
        SstFileWriter w = new SstFileWriter(new EnvOptions(), new Options(dbo, cfo));
        w.open(ext.toString());
        long seq = db.getLatestSequenceNumber() + 1;
        for (int i = 0; i < 60; i++) {
          byte[] k = ascii(String.format("key-%05d", i * 7)), v = ascii("ingested-" + i);
          w.put(k, v);
          // Without the property the number stands only in the MANIFEST.
          written.add(k, name.endsWith("unwritten") ? 0 : seq, 1, v);
        }
        w.finish();
        IngestExternalFileOptions io = new IngestExternalFileOptions();
        // By reflection, because RocksDB 5.18 does not have it and this file must compile there too.
        io.getClass().getMethod("setWriteGlobalSeqno", boolean.class)
            .invoke(io, !name.endsWith("unwritten"));
        db.ingestExternalFile(cf, Arrays.asList(ext.toString()), io);
        break;
      default: throw new Exception(data);
    }
    if (!data.equals("ingest"))
      db.flush(new FlushOptions().setWaitForFlush(true), cf);
    for (File f : dir.toFile().listFiles())
      if (f.getName().endsWith(".sst") && !f.getName().equals("external.sst"))
        if (sst == null || f.length() > sst.length()) sst = f;
    Files.copy(sst.toPath(), Paths.get(out, name + ".sst"), StandardCopyOption.REPLACE_EXISTING);
    try (FileWriter t = new FileWriter(new File(out, name + ".written"))) {
      t.write(written.digest(reverse) + "\n");
    }
    for (Snapshot s : snapshots) db.releaseSnapshot(s);
    for (ColumnFamilyHandle h : handles) h.close();
    db.close();
  }

  public static void main(String[] args) throws Exception {
    RocksDB.loadLibrary();
    String out = args[0];
    String small = "block_size=256;";
    for (int i = 1; i < args.length; i++) {
      String n = args[i];
      switch (n) {
        // RocksDB 5.18.4
        case "v1-xxhash32-rocksdb5":
          make(out, n, small + "format_version=1;checksum=kxxHash", "plain"); break;
        case "v4-delta-hash-rocksdb5":
          make(out, n, small + "format_version=4;checksum=kxxHash64;index_block_restart_interval=8;"
              + "data_block_index_type=kDataBlockBinaryAndHash", "plain"); break;
        case "v2-ranges-rocksdb5":
          make(out, n, small + "format_version=2", "mixed"); break;
        // RocksDB 10.10.1
        case "v2-crc32c":
          make(out, n, small + "format_version=2;checksum=kCRC32c", "plain"); break;
        case "v3-xxhash64":
          make(out, n, small + "format_version=3;checksum=kxxHash64", "plain"); break;
        case "v4-xxhash32-restart4":
          make(out, n, small + "format_version=4;checksum=kxxHash;index_block_restart_interval=4",
              "plain"); break;
        case "v5-none":
          make(out, n, small + "format_version=5;checksum=kNoChecksum", "plain"); break;
        case "v5-xxh3-partitioned":
          make(out, n, small + "format_version=5;checksum=kXXH3;index_type=kTwoLevelIndexSearch;"
              + "metadata_block_size=64;index_block_restart_interval=2", "plain"); break;
        case "v6-crc32c-firstkey":
          make(out, n, small + "format_version=6;checksum=kCRC32c;"
              + "index_type=kBinarySearchWithFirstKey;index_block_restart_interval=3", "plain");
          break;
        case "v6-xxhash32-hashsearch":
          make(out, n, small + "format_version=6;checksum=kxxHash;index_type=kHashSearch;"
              + "filter_policy=bloomfilter:10:false", "plain", "prefix_extractor", "fixed:6"); break;
        case "v6-none-datahash":
          make(out, n, small + "format_version=6;checksum=kNoChecksum;"
              + "data_block_index_type=kDataBlockBinaryAndHash", "plain"); break;
        case "v6-xxhash64-restart1":
          make(out, n, small + "format_version=6;checksum=kxxHash64;block_restart_interval=1",
              "plain"); break;
        case "v7-xxh3-mixed":
          make(out, n, small + "format_version=7;checksum=kXXH3;"
              + "index_shortening=kNoShortening", "mixed"); break;
        case "v7-xxh3-mixed-partitioned":
          make(out, n, small + "format_version=7;checksum=kXXH3;index_type=kTwoLevelIndexSearch;"
              + "metadata_block_size=128;index_block_restart_interval=16", "mixed"); break;
        case "v6-ingested-written":
        case "v6-ingested-unwritten":
          make(out, n, small + "format_version=6", "ingest"); break;
        case "v6-ranges-only":
          make(out, n, small + "format_version=6", "ranges"); break;
        case "v7-zstd":
          make(out, n, small + "format_version=7", "compressible", "compression", "kZSTD"); break;
        case "v6-zstd-plain-index":
          make(out, n, small + "format_version=6;enable_index_compression=false", "compressible",
              "compression", "kZSTD"); break;
        case "reverse-v6":
          make(out, n, small + "format_version=6", "plain"); break;
        case "v6-blob":
          make(out, n, small + "format_version=6", "sizes", "enable_blob_files", "true",
              "min_blob_size", "1000"); break;
        case "v6-sizes":
          make(out, n, small + "format_version=6", "sizes"); break;
        case "long-family":
          make(out, n, small + "format_version=6", "plain"); break;
        // RocksDB 11.8.1
        case "v7-uniform-rocksdb11":
          make(out, n, "block_size=64;index_block_search_type=kAuto;"
              + "uniform_cv_threshold=10", "uniform"); break;
        case "v7-separated-rocksdb11":
          make(out, n, small + "separate_key_value_in_data_block=true;block_restart_interval=4",
              "mixed"); break;
        case "v7-separated-hash-rocksdb11":
          make(out, n, small + "separate_key_value_in_data_block=true;"
              + "data_block_index_type=kDataBlockBinaryAndHash", "plain"); break;
        default: throw new Exception("no such case: " + n);
      }
    }
  }
}
