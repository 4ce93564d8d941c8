import java.io.File;
import java.nio.file.*;
import java.util.*;
import org.rocksdb.*;

/** Make.java lets RocksDB write an OPTIONS file with everything that it escapes. See README.md. */
public class Make {
  public static void main(String[] args) throws Exception {
    RocksDB.loadLibrary();
    Path dir = Files.createTempDirectory("made");
    Properties p = new Properties();
    p.setProperty("create_if_missing", "true");
    p.setProperty("create_missing_column_families", "true");
    DBOptions o = DBOptions.getDBOptionsFromProps(p);
    o.setDbLogDir(dir + "/l#og:a");
    List<ColumnFamilyDescriptor> families = new ArrayList<>();
    for (String name : new String[] {
          "default", "q\"uote", "hash#colon:back\\slash", "line\nbreak\rreturn", " space ", "[x]", "a=b"}) {
      ColumnFamilyOptions c = new ColumnFamilyOptions();
      c.setMergeOperatorName("stringappend");
      if (name.equals("a=b")) c.setTableFormatConfig(new PlainTableConfig());
      families.add(new ColumnFamilyDescriptor(name.getBytes("UTF-8"), c));
    }
    RocksDB db = RocksDB.open(o, dir.toString(), families, new ArrayList<>());
    File newest = null;
    for (File f : dir.toFile().listFiles())
      if (f.getName().startsWith("OPTIONS-"))
        if (newest == null || f.getName().compareTo(newest.getName()) > 0) newest = f;
    String text = new String(Files.readAllBytes(newest.toPath()), "UTF-8");
    // The temporary directory differs from run to run.
    text = text.replace(dir.toString(), "/data");
    Files.write(Paths.get("OPTIONS-escapes"), text.getBytes("UTF-8"));
    db.close();
  }
}
