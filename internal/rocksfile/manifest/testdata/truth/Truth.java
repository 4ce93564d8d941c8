import org.rocksdb.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;

/**
 * Makes a database with flushes, compactions, trivial moves, an ingestion, a dropped family and a recovery, and writes
 * down what RocksDB itself names as its live files.
 *
 * Run it twice on the same directory with the rocksdbjni of the version: Truth DIR LIVE.TXT single|atomic. After each
 * run, keep the MANIFEST that CURRENT names, LIVE.TXT, and from LOG the events flush_finished, table_file_creation,
 * compaction_started, compaction_finished, trivial_move and ingest_finished with the fields that the test reads.
 */
public class Truth {
    static byte[] b(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static ColumnFamilyOptions cf(CompactionStyle style) {
        return new ColumnFamilyOptions().setCompactionStyle(style).setLevel0FileNumCompactionTrigger(4)
            .setCompressionType(CompressionType.NO_COMPRESSION);
    }

    public static void main(String[] a) throws Exception {
        String dir = a[0], out = a[1];
        boolean atomic = a[2].equals("atomic");
        RocksDB.loadLibrary();
        Files.createDirectories(Path.of(dir));
        boolean fresh = !Files.exists(Path.of(dir, "CURRENT"));
        DBOptions db = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true)
            .setInfoLogLevel(InfoLogLevel.INFO_LEVEL).setAllowConcurrentMemtableWrite(true);
        if (atomic) DBOptions.class.getMethod("setAtomicFlush", boolean.class).invoke(db, true);
        List<ColumnFamilyDescriptor> ds = new ArrayList<>();
        ds.add(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, cf(CompactionStyle.UNIVERSAL)));
        ds.add(new ColumnFamilyDescriptor(b("data"), cf(CompactionStyle.LEVEL)));
        ds.add(new ColumnFamilyDescriptor(b("offsets"), cf(CompactionStyle.LEVEL)));
        List<ColumnFamilyHandle> hs = new ArrayList<>();
        RocksDB r = RocksDB.open(db, dir, ds, hs);
        WriteOptions w = new WriteOptions().setDisableWAL(fresh);
        FlushOptions f = new FlushOptions().setWaitForFlush(true);
        if (fresh) {
            for (int round = 0; round < 10; round++) {
                for (int i = 0; i < 200; i++) {
                    r.put(hs.get(0), w, b(String.format("k%05d", (i * 7 + round) % 400)), b("value-" + round + "-" + i));
                    r.put(hs.get(1), w, b(String.format("k%05d", i + 200 * (round % 3))), b("value-" + round + "-" + i));
                }
                r.put(hs.get(2), w, b("topic-0"), b("" + round));
                flush(r, f, hs, atomic);
                Thread.sleep(120);
            }
            // A lone table without overlap moves down.
            for (int i = 0; i < 50; i++) r.put(hs.get(1), w, b("z" + i), b("moved"));
            flush(r, f, List.of(hs.get(1)), false);
            r.compactRange(hs.get(1), b("z"), b("zz"));
            // An ingested table.
            String sst = dir + ".sst";
            try (SstFileWriter sw = new SstFileWriter(new EnvOptions(), new Options().setCompressionType(CompressionType.NO_COMPRESSION))) {
                sw.open(sst);
                for (int i = 0; i < 30; i++) sw.put(b(String.format("zz%03d", i)), b("ingested"));
                sw.finish();
            }
            try (IngestExternalFileOptions io = new IngestExternalFileOptions()) { r.ingestExternalFile(hs.get(1), List.of(sst), io); }
            new File(sst).delete();
            // A family that comes and goes.
            ColumnFamilyHandle gone = r.createColumnFamily(new ColumnFamilyDescriptor(b("gone"), cf(CompactionStyle.LEVEL)));
            for (int i = 0; i < 20; i++) r.put(gone, w, b("g" + i), b("x"));
            r.flush(f, gone);
            r.dropColumnFamily(gone);
            gone.close();
            // A compaction with nothing left.
            r.deleteRange(hs.get(2), w, b(""), b("zzzz"));
            flush(r, f, List.of(hs.get(2)), false);
            r.compactRange(hs.get(2));
            Thread.sleep(500);
            // For the recovery at the next open.
            WriteOptions wal = new WriteOptions();
            for (int i = 0; i < 40; i++) { r.put(hs.get(0), wal, b("wal" + i), b("x")); r.put(hs.get(1), wal, b("wal" + i), b("x")); }
        } else {
            for (int i = 0; i < 40; i++) r.put(hs.get(0), w, b("after" + i), b("x"));
            r.flush(f, hs.get(0));
        }
        try (PrintWriter p = new PrintWriter(out)) {
            p.println("sequence " + r.getLatestSequenceNumber());
            try {
                for (Object m : (List<?>) RocksDB.class.getMethod("getLiveFilesMetaData").invoke(r))
                    p.printf("%s %s %s %s %s %s%n", new String((byte[]) get(m, "columnFamilyName")), get(m, "level"),
                        get(m, "fileName").toString().replaceAll("[^0-9]", ""), get(m, "size"), get(m, "smallestSeqno"), get(m, "largestSeqno"));
            } catch (NoSuchMethodException e) {
                // Not in 5.18: what is on disk must do.
                for (File s : Objects.requireNonNull(new File(dir).listFiles()))
                    if (s.getName().endsWith(".sst")) p.println("disk " + s.getName().replaceAll("[^0-9]", "") + " " + s.length());
            }
        }
        System.out.flush();
        // Not closed: the write-ahead log stays for the next open.
        Runtime.getRuntime().halt(0);
    }

    static Object get(Object o, String method) throws Exception { return o.getClass().getMethod(method).invoke(o); }

    static void flush(RocksDB r, FlushOptions f, List<ColumnFamilyHandle> hs, boolean all) throws Exception {
        if (all) { RocksDB.class.getMethod("flush", FlushOptions.class, List.class).invoke(r, f, hs); return; }
        for (ColumnFamilyHandle h : hs) r.flush(f, h);
    }
}
