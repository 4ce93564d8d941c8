package finding

// The codes. docs/findings.md explains each; a test compares.
const (
	// About what cannot be reached.
	PermissionDenied Code = "permission-denied"
	IOError          Code = "io-error"
	VolumeStuck      Code = "volume-stuck"
	WrongKind        Code = "wrong-kind"
	LockUnsupported  Code = "lock-unsupported"
	FileTooLarge     Code = "file-too-large"
	Unread           Code = "unread"

	// About the state directory.
	StateDirMissing       Code = "state-dir-missing"
	StateDirIsApplication Code = "state-dir-is-application"
	SameDirectory         Code = "same-directory"
	SymlinkOutside        Code = "symlink-outside"
	SymlinkBroken         Code = "symlink-broken"
	ForeignDirectory      Code = "foreign-directory"
	ForeignInSegments     Code = "foreign-in-segments"
	ProcessIDMalformed    Code = "process-id-malformed"
	CheckpointMalformed   Code = "checkpoint-malformed"
	LegacyCheckpoint      Code = "legacy-checkpoint"
	SameStoreName         Code = "same-store-name"
	LockWithoutAppLock    Code = "lock-without-app-lock"
	PositionMalformed     Code = "position-malformed"
	CheckpointEmpty       Code = "checkpoint-empty"
	CheckpointWrongCount  Code = "checkpoint-wrong-count"
	CheckpointMissing     Code = "checkpoint-missing"
	CheckpointUnknown     Code = "checkpoint-offset-unknown"
	CheckpointAhead       Code = "checkpoint-ahead-of-data"
	CheckpointLeftBehind  Code = "checkpoint-left-behind"
	StoreGone             Code = "store-gone"
	StoreEmpty            Code = "store-empty"
	StoreNotRocksDB       Code = "store-not-rocksdb"
	UncleanEnd            Code = "unclean-end"
	StatusOpen            Code = "offsets-status-open"
	VersionCannotRead     Code = "version-cannot-read"

	// About a store's own files.
	CurrentMissing       Code = "current-missing"
	CurrentEmpty         Code = "current-empty"
	CurrentNoNewline     Code = "current-no-newline"
	CurrentMalformed     Code = "current-malformed"
	ManifestMissing      Code = "manifest-missing"
	ManifestEmpty        Code = "manifest-empty"
	ManifestUnparseable  Code = "manifest-unparseable"
	ManifestTailPartial  Code = "manifest-tail-partial"
	ManifestTailCut      Code = "manifest-tail-cut"
	ManifestBehind       Code = "manifest-behind-tables"
	SSTMissing           Code = "sst-missing"
	SSTSizeMismatch      Code = "sst-size-mismatch"
	SSTFooterMalformed   Code = "sst-footer-malformed"
	SSTUnparseable       Code = "sst-unparseable"
	SSTIndexMalformed    Code = "sst-index-malformed"
	SSTBlockChecksum     Code = "sst-block-checksum"
	SSTBlockMalformed    Code = "sst-block-malformed"
	SSTForeign           Code = "sst-foreign"
	SSTUnreferenced      Code = "sst-unreferenced"
	SSTOrphan            Code = "sst-orphan"
	BlobMissing          Code = "blob-missing"
	BlobSizeMismatch     Code = "blob-size-mismatch"
	BlobFiles            Code = "blob-files"
	OffsetsUnparseable   Code = "offsets-unparseable"
	OptionsUnparsed      Code = "options-unparsed"
	IdentityMissing      Code = "identity-missing"
	FormatNewer          Code = "format-newer"
	Encrypted            Code = "encrypted"
	ComparatorForeign    Code = "comparator-foreign"
	CompressedNotDecoded Code = "compressed-not-decoded"
	OffsetsNotDecoded    Code = "offsets-not-decoded"
	WALNotEmpty          Code = "wal-not-empty"
	WALGarbage           Code = "wal-garbage"
	WALDirShared         Code = "wal-dir-shared"
	LogError             Code = "log-error"

	// About RocksDB itself, asked in a process of its own.
	EngineMissing      Code = "engine-missing"
	EngineBroken       Code = "engine-broken"
	EngineIncompatible Code = "engine-incompatible"
	EngineNoMemory     Code = "engine-no-memory"
	EngineStuck        Code = "engine-stuck"
	RocksDBRefuses     Code = "rocksdb-refuses"
	RocksDBDiffers     Code = "rocksdb-differs"
	RocksDBFails       Code = "rocksdb-fails"
)

var catalog = map[Code]Kind{
	PermissionDenied: {Unreadable,
		"The sidecar may not read this, so its state cannot be told.",
		"Run the sidecar with the application's runAsUser, or give both the same fsGroup and a umask of 022."},
	IOError: {Unreadable,
		"The device or file system failed while this was read; that says nothing about the content.",
		"Look at the node's kernel log and at the volume's driver before anything is repaired or deleted."},
	VolumeStuck: {Unreadable,
		"The volume did not answer in time; it is not asked again until it does.",
		"Look at the volume's server, driver or device; nothing here is judged meanwhile."},
	WrongKind: {Unreadable,
		"Something of another kind stands where Kafka Streams or RocksDB keeps a file or directory.",
		"Find out who put it there; the application will most likely fail on it too."},
	LockUnsupported: {Unreadable,
		"The file system refuses lock calls, so it cannot be told whether the application runs.",
		"Mount the volume with locks (NFS: without nolock, with a running lock service); Kafka Streams and RocksDB need them too."},
	FileTooLarge: {Unreadable,
		"The file, or a block of it, is larger than any real one of its kind and was not read.",
		"Look at the file; it is most likely not what its name says."},
	Unread: {Unreadable,
		"This could not be read, for a reason outside the usual ones.",
		"Read the error in the evidence."},

	StateDirMissing: {Unreadable,
		"The state directory does not exist.",
		"Check --state-dir against the application's state.dir and the container's mounts; `sidecar run` waits for it."},
	StateDirIsApplication: {Warning,
		"This is an application's directory, not the state directory that holds it.",
		"Give its parent as the state directory: the path without the application id."},
	SameDirectory: {Info,
		"This is another name of a directory that is already counted (link or bind mount).",
		"Nothing needs to be done; it is counted once."},
	SymlinkOutside: {Info,
		"A symbolic link leads out of the state directory; what it points to is read and counted where it appears.",
		"Make sure that the target is on a volume that survives the pod."},
	SymlinkBroken: {Warning,
		"A symbolic link points to nothing that exists.",
		"Restore its target or remove the link while the application is stopped."},
	ForeignDirectory: {Warning,
		"Kafka Streams has no use for this directory; it only takes up space.",
		"Keep it as long as it is evidence, then remove it while the application is stopped."},
	ForeignInSegments: {Warning,
		"Something that is no segment lies among the segments of a window or session store: up to 4.2 Kafka Streams then silently opens none of them, from 4.3 on it fails to start.",
		"Move it out of the store's directory while the application is stopped."},
	ProcessIDMalformed: {Warning,
		"The process id of this application cannot be parsed; Kafka Streams will write a new one, and tasks may move.",
		"Nothing needs to be done unless it comes again."},
	CheckpointMalformed: {Damage,
		"Kafka Streams cannot parse this checkpoint either and fails at every start (up to 4.2; from 4.3 on while migrating it).",
		"Set the task's whole directory aside while the application is stopped; its stores are then restored."},
	LegacyCheckpoint: {Warning,
		"The task has a .checkpoint from before 4.3 whose offset differs from the store's own; at its next start Kafka Streams takes the one in the file, and then deletes it.",
		"If the store was replaced or emptied since the file was written, remove the file while the application is stopped: otherwise records are skipped without a word."},
	CheckpointEmpty: {Damage,
		"The checkpoint is empty; Kafka Streams cannot parse it and fails at every start (up to 4.2; from 4.3 on while migrating it).",
		"Set the task's whole directory aside while the application is stopped; its stores are then restored."},
	CheckpointWrongCount: {Damage,
		"The checkpoint has another number of entries than it says; Kafka Streams refuses it and fails at every start (up to 4.2; from 4.3 on while migrating it).",
		"Set the task's whole directory aside while the application is stopped; its stores are then restored."},
	CheckpointMissing: {Warning,
		"The task has state but no .checkpoint; under exactly-once that means that it was not closed cleanly, and Kafka Streams wipes the task and restores all of it; under at-least-once it restores from the start of the changelogs; only a task whose stores have no changelog never has one.",
		"Nothing needs to be done but to give the restoration its time; stop the application so that it can close, next time."},
	CheckpointUnknown: {Info,
		"The checkpoint has the mark for an unknown offset (-4): Kafka Streams restores this store from the start of its changelog.",
		"Nothing needs to be done."},
	CheckpointAhead: {Damage,
		"An offset claims that this store has records, but nothing was ever written to it: it was made anew, or its MANIFEST has lost its content; Kafka Streams then continues from that offset, and the data is missing without a word.",
		"Stop the application, set the whole task aside and let it be restored; before that, keep what is left of the store."},
	CheckpointLeftBehind: {Warning,
		"The task was not closed cleanly, and yet its .checkpoint is there: from 3.8 to 4.2.1 Kafka Streams leaves it behind (KAFKA-20685), and under exactly-once it will use the store as it is, with records of transactions that were never committed.",
		"If that matters, set the whole task aside while the application is stopped; it is then restored. 4.2.2 and later wipe such a task themselves."},
	StoreGone: {Damage,
		"An offset names a store whose directory is gone; Kafka Streams makes a new, empty store and continues from that offset: the data before it is missing without a word.",
		"Put the directory back, or stop the application, set the whole task aside and let it be restored."},
	StoreEmpty: {Damage,
		"An offset claims that this store has records, but its directory holds no database; Kafka Streams makes a new, empty one and continues from that offset: the data before it is missing without a word.",
		"Put the files back, or stop the application, set the whole task aside and let it be restored."},
	StoreNotRocksDB: {Info,
		"An offset names a store whose directory holds no RocksDB: one of the application's own kind, which is not judged.",
		"Nothing needs to be done."},
	UncleanEnd: {Warning,
		"The store was not closed cleanly; it is usable, and what was not flushed is restored from the changelog (under exactly-once the whole task, as a rule).",
		"Look at how the application is stopped: the grace period, the preStop hook, its own shutdown hook."},
	StatusOpen: {Warning,
		"The store's own mark says that it was not closed (status of the column family offsets, from 4.3 on); under exactly-once Kafka Streams wipes the task and restores all of it; under at-least-once it continues from the last flush.",
		"Look at how the application is stopped: the grace period, the preStop hook, its own shutdown hook."},
	VersionCannotRead: {Unreadable,
		"The version of Kafka Streams that is to start cannot read this store: a later one has written it.",
		"Start the later version, or set the whole task aside and let it be restored."},
	SameStoreName: {Warning,
		"Two directories of this task are stores of the same name, most likely because the kind of the store was changed; only the first is exported as metrics.",
		"Remove the one that is no longer in use while the application is stopped."},
	LockWithoutAppLock: {Warning,
		"A store of this application is open although nobody holds the application's .lock: the file was removed or replaced while the application ran, or another program has the store open.",
		"Find out who has the store open before anything else is started on this volume, and never delete .lock or LOCK files."},
	PositionMalformed: {Damage,
		"The position file of this store cannot be parsed; Kafka Streams cannot parse it either and fails when it opens the store.",
		"Move the file out of the task's directory while the application is stopped; the store then begins with an empty position and keeps its data."},

	CurrentMissing: {Damage,
		"The store has files but no CURRENT, so it cannot be told which MANIFEST is the valid one.",
		"Do not start the application before the store has been looked at: it may be re-created empty."},
	CurrentEmpty: {Damage,
		"CURRENT is empty or nothing but zero bytes; RocksDB refuses to open the store.",
		"Keep the files: the newest MANIFEST is often complete, and the store can then be read again."},
	CurrentNoNewline: {Damage,
		"CURRENT does not end with a newline; RocksDB refuses to open the store.",
		"Keep the files: the MANIFEST that it names is often complete, and the store can then be read again."},
	CurrentMalformed: {Damage,
		"CURRENT does not name a MANIFEST; RocksDB refuses to open the store.",
		"Keep the files: the newest MANIFEST is often complete, and the store can then be read again."},
	ManifestMissing: {Damage,
		"CURRENT names a MANIFEST that does not exist; RocksDB refuses to open the store.",
		"Keep the files, and look for the MANIFEST in a backup or snapshot of the volume."},
	ManifestEmpty: {Damage,
		"The MANIFEST that CURRENT names is empty; RocksDB refuses to open the store.",
		"Keep the files, and look for the MANIFEST in a backup or snapshot of the volume."},
	ManifestUnparseable: {Damage,
		"The MANIFEST cannot be parsed to its end, so the store's live files are not known.",
		"Do not open the store with any RocksDB before it has been copied: an open may delete what is left."},
	ManifestTailPartial: {Warning,
		"The MANIFEST of a store in use ends in the middle of a record: most likely it was being written in this moment.",
		"Look again; if it stays, keep a copy of the store before the application starts anew."},
	ManifestTailCut: {Warning,
		"The MANIFEST ends in the middle of a record and nobody has the store open: its end is lost, with the changes that it told of; RocksDB opens the store all the same, as it was before them.",
		"Keep a copy of the store before the application starts: its open deletes the tables that the MANIFEST no longer names."},
	ManifestBehind: {Damage,
		"The MANIFEST names a table with a higher sequence number than the last one that it gives: its records are not in the order in which they were written, and RocksDB hides the entries above.",
		"Keep a copy of the store, stop the application, set the whole task aside and let it be restored."},
	SSTMissing: {Damage,
		"The MANIFEST names a table file that is not there; seen twice, with the MANIFEST read anew in between.",
		"Keep the files and do not start the application before the store has been looked at."},
	SSTSizeMismatch: {Damage,
		"A table file has another size than the MANIFEST says; seen twice, with the MANIFEST read anew in between.",
		"Keep the files and do not start the application before the store has been looked at: set the whole task aside and let it be restored, or put the file back from a backup."},
	SSTFooterMalformed: {Damage,
		"The end of a table file is not that of a table; RocksDB refuses to open the store.",
		"Keep a copy of the store before the application starts."},
	SSTUnparseable: {Damage,
		"A part of a table file that describes it (metaindex, properties, dictionary, filter) is damaged, so its entries are not counted.",
		"Keep a copy of the store before the application starts."},
	SSTIndexMalformed: {Damage,
		"The index of a table file is damaged: its blocks cannot be found.",
		"Keep a copy of the store before the application starts."},
	SSTBlockChecksum: {Damage,
		"A block of a table file is not what was written: its checksum does not fit; seen twice.",
		"Keep a copy of the store, stop the application, set the whole task aside and let it be restored; until then reads miss data without an error."},
	SSTBlockMalformed: {Damage,
		"The content of a table file contradicts its format, although no checksum says so; seen twice.",
		"Keep a copy of the store, stop the application, set the whole task aside and let it be restored."},
	SSTForeign: {Damage,
		"A table file is not the one that the MANIFEST means: it was written under another number.",
		"Keep the files: somebody has renamed, swapped or copied tables; put the right files back, or set the whole task aside and let it be restored."},
	SSTUnreferenced: {Damage,
		"A complete table file holds data that no other one has, and the MANIFEST does not name it: the record that told of it is lost, and the next open of the store deletes the file.",
		"Keep a copy of the store before the application starts; up to 4.2 the task's .checkpoint still claims that data, so set the whole task aside and let it be restored."},
	SSTOrphan: {Info,
		"A table file that the MANIFEST does not name and that holds nothing that would be missed: the rest of a flush or compaction that was interrupted; the next open of the store deletes it.",
		"Nothing needs to be done."},
	BlobMissing: {Damage,
		"The MANIFEST names a blob file that is not there; seen twice, with the MANIFEST read anew in between.",
		"Keep the files and do not start the application before the store has been looked at."},
	BlobSizeMismatch: {Damage,
		"A blob file is smaller than the MANIFEST says; seen twice, with the MANIFEST read anew in between.",
		"Keep the files and do not start the application before the store has been looked at."},
	BlobFiles: {Info,
		"The store keeps values in blob files (BlobDB): that they are there and have their size is judged, their content is not.",
		"Nothing needs to be done."},
	OffsetsUnparseable: {Damage,
		"The store's own changelog offsets (column family offsets) cannot be read.",
		"Keep a copy of the store before the application starts."},
	OptionsUnparsed: {Info,
		"The OPTIONS file is missing or has lines that cannot be parsed; nothing else depends on it.",
		"Nothing needs to be done."},
	IdentityMissing: {Info,
		"The IDENTITY file is missing or empty; RocksDB writes a new one, and nothing else depends on it.",
		"Nothing needs to be done."},
	Encrypted: {Unreadable,
		"The files look like those of RocksDB's encrypted environment; nothing in them can be judged.",
		"Nothing needs to be done if this is meant; Kafka Streams itself never encrypts."},
	ComparatorForeign: {Info,
		"The store was written with a comparator of somebody's own, so that the order of its keys cannot be judged; everything else is.",
		"Nothing needs to be done; Kafka Streams itself sets none."},
	WALNotEmpty: {Info,
		"The store has a write-ahead log with records; stock Kafka Streams writes none, so this is a custom store, or another program had the store open for writing.",
		"Make sure that nothing but the application opens its stores for writing."},
	WALGarbage: {Warning,
		"A write-ahead log has bytes that are no records; stock Kafka Streams writes none, and RocksDB takes no notice of these; but somebody has written to the store's files.",
		"Find out what has written to the volume."},
	WALDirShared: {Warning,
		"Two stores are set to keep their write-ahead logs in one directory (wal_dir): RocksDB opens the first and refuses the second, at every start.",
		"Remove setWalDir from the RocksDBConfigSetter; later versions of Kafka Streams ignore it."},
	LogError: {Warning,
		"RocksDB has written an error to its own log, which is silent otherwise.",
		"Read the line in the evidence; after a word of corruption run `sidecar verify --deep`."},
	FormatNewer: {Unreadable,
		"A file is of a newer format than this version knows.",
		"Use a newer version of the sidecar."},
	CompressedNotDecoded: {Info,
		"A block that would have to be read is compressed in a way that this version does not know; the values in it are absent.",
		"Nothing needs to be done."},
	OffsetsNotDecoded: {Info,
		"The store keeps its own changelog offsets (column family offsets) in a form that this version does not decode; they are absent.",
		"Nothing needs to be done."},

	EngineMissing: {Warning,
		"The program that asks RocksDB itself is not there; everything works but what only RocksDB can say.",
		"Put sidecar-engine and librocksdb.so beside the sidecar, as its image has them, or say with --engine where they are; --engine-interval=0 does without."},
	EngineBroken: {Warning,
		"The program that asks RocksDB itself does not start; everything works but what only RocksDB can say.",
		"The evidence has its first words: most often librocksdb.so is missing beside it, or is one for another machine."},
	EngineIncompatible: {Warning,
		"The program that asks RocksDB itself, or its library, is not of this version of the sidecar; everything works but what only RocksDB can say.",
		"Take sidecar, sidecar-engine and librocksdb.so from the same build."},
	EngineNoMemory: {Warning,
		"The container's memory limit leaves no room for the process that asks RocksDB, so it is not started; everything works but what only RocksDB can say.",
		"Give the sidecar's container a memory limit of at least 128 MiB, or --engine-interval=0."},
	EngineStuck: {Warning,
		"The process that asks RocksDB was killed and does not end, most likely because the volume does not answer; no other one is started meanwhile.",
		"Look at the volume."},
	RocksDBRefuses: {Unreadable,
		"The sidecar's own reader finds nothing wrong, and RocksDB itself does not open this database or does not read what was asked; seen twice, with the files unchanged.",
		"Keep a copy of the store before the application starts: it will get the same error from RocksDB, unless it has the store open already."},
	RocksDBDiffers: {Warning,
		"RocksDB itself reads something else in this database than the sidecar's own reader does; seen twice, with the files unchanged.",
		"Trust neither figure, and report it with the output of `sidecar status --with-engine --output=json`: one of the two has a defect."},
	RocksDBFails: {Unreadable,
		"RocksDB itself hung or died each time that it was asked about this database, in a process of its own with little memory.",
		"Keep a copy of the store before the application starts: where RocksDB hung or crashed, opening it will most likely do the same to the application; where the evidence says that memory ended (alloc), only that process had too little."},
}
