import java.io.File;
import java.security.MessageDigest;
import java.util.*;
import org.rocksdb.*;

/**
 * Truth.java prints what RocksDB's own reader says of each SST that is named: its properties, and a
 * digest of the keys and values that an iterator shows. See README.md.
 *
 *   java -cp rocksdbjni-V.jar Truth.java DIR/FILE.sst…
 */
public class Truth {
  public static void main(String[] args) throws Exception {
    RocksDB.loadLibrary();
    for (String path : args) {
      Options o = new Options().setMergeOperator(new StringAppendOperator());
      if (new File(path).getName().startsWith("reverse-"))
        o.setComparator(BuiltinComparator.REVERSE_BYTEWISE_COMPARATOR);
      SstFileReader r = new SstFileReader(o);
      r.open(path);
      r.verifyChecksum();
      TableProperties p = r.getTableProperties();
      SstFileReaderIterator it = r.newIterator(new ReadOptions());
      MessageDigest d = MessageDigest.getInstance("SHA-256");
      long shown = 0;
      for (it.seekToFirst(); it.isValid(); it.next(), shown++)
        d.update(Make.ascii(Make.hex(it.key()) + " " + Make.hex(it.value()) + "\n"));
      String failed = "";
      try {
        it.status();
      } catch (RocksDBException e) {
        failed = e.getMessage();
      }
      String family = new String(p.getColumnFamilyName());
      StringBuilder s = new StringBuilder("file=" + new File(path).getName());
      String[] kv = {
        "written", new String(java.nio.file.Files.readAllBytes(
            java.nio.file.Paths.get(path.replace(".sst", ".written")))).trim(),
        "entries", "" + p.getNumEntries(), "deletions", "" + p.getNumDeletions(),
        "merges", "" + p.getNumMergeOperands(), "ranges", "" + p.getNumRangeDeletions(),
        "raw-key", "" + p.getRawKeySize(), "raw-value", "" + p.getRawValueSize(),
        "data", "" + p.getDataSize(), "index", "" + p.getIndexSize(),
        "filter", "" + p.getFilterSize(), "blocks", "" + p.getNumDataBlocks(),
        "partitions", "" + p.getIndexPartitions(),
        "user-key-index", "" + p.getIndexKeyIsUserKey(),
        "delta-index", "" + p.getIndexValueIsDeltaEncoded(),
        "family-id", "" + p.getColumnFamilyId(),
        "family", family.length() > 40 ? family.length() + "-bytes" : family,
        "created", "" + p.getCreationTime(), "oldest", "" + p.getOldestKeyTime(),
        "filter-policy", p.getFilterPolicyName(), "comparator", p.getComparatorName(),
        "merge-operator", p.getMergeOperatorName(), "compression", p.getCompressionName(),
        "shown", failed.isEmpty() ? shown + ":" + Make.hex(d.digest()).substring(0, 32) : "fails",
      };
      for (int i = 0; i < kv.length; i += 2) s.append(" " + kv[i] + "=" + kv[i + 1]);
      System.out.println(s);
    }
  }
}
