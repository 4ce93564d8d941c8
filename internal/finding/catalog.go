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

	// About a store's own files.
	CurrentMissing       Code = "current-missing"
	CurrentMalformed     Code = "current-malformed"
	ManifestMissing      Code = "manifest-missing"
	ManifestUnparseable  Code = "manifest-unparseable"
	ManifestTailPartial  Code = "manifest-tail-partial"
	SSTMissing           Code = "sst-missing"
	SSTUnparseable       Code = "sst-unparseable"
	OffsetsUnparseable   Code = "offsets-unparseable"
	OptionsUnparsed      Code = "options-unparsed"
	FormatNewer          Code = "format-newer"
	CompressedNotDecoded Code = "compressed-not-decoded"
	OffsetsNotDecoded    Code = "offsets-not-decoded"

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
	CheckpointMalformed: {Warning,
		"Kafka Streams cannot parse this checkpoint either and fails at every start (up to 4.2; from 4.3 on while migrating it).",
		"Set the task's whole directory aside while the application is stopped; its stores are then restored."},
	LegacyCheckpoint: {Warning,
		"The task has a .checkpoint from before 4.3 whose offset differs from the store's own; at its next start Kafka Streams takes the one in the file, and then deletes it.",
		"If the store was replaced or emptied since the file was written, remove the file while the application is stopped: otherwise records are skipped without a word."},
	SameStoreName: {Warning,
		"Two directories of this task are stores of the same name, most likely because the kind of the store was changed; only the first is exported as metrics.",
		"Remove the one that is no longer in use while the application is stopped."},
	LockWithoutAppLock: {Warning,
		"A store of this application is open although nobody holds the application's .lock: the file was removed or replaced while the application ran, or another program has the store open.",
		"Find out who has the store open before anything else is started on this volume, and never delete .lock or LOCK files."},
	PositionMalformed: {Warning,
		"The position file of this store cannot be parsed; Kafka Streams cannot parse it either and fails when it opens the store.",
		"Move the file out of the task's directory while the application is stopped; the store then begins with an empty position and keeps its data."},

	CurrentMissing: {Unreadable,
		"The store has files but no CURRENT, so it cannot be told which MANIFEST is the valid one.",
		"Do not start the application before the store has been looked at: it may be re-created empty."},
	CurrentMalformed: {Unreadable,
		"CURRENT does not name a MANIFEST; RocksDB refuses to open the store.",
		"Keep the files: the newest MANIFEST is often complete, and the store can then be read again."},
	ManifestMissing: {Unreadable,
		"CURRENT names a MANIFEST that does not exist; RocksDB refuses to open the store.",
		"Keep the files, and look for the MANIFEST in a backup or snapshot of the volume."},
	ManifestUnparseable: {Unreadable,
		"The MANIFEST cannot be parsed to its end, so the store's live files are not known.",
		"Do not open the store with any RocksDB before it has been copied: an open may delete what is left."},
	ManifestTailPartial: {Warning,
		"The MANIFEST ends in the middle of a record: either it was being written in this moment, or its end is lost, with the changes that it told of.",
		"Look again; if it stays while the store is not in use, keep a copy of the store before the application starts."},
	SSTMissing: {Unreadable,
		"The MANIFEST names a table file that is not there; seen twice, with the MANIFEST read anew in between.",
		"Keep the files and do not start the application before the store has been looked at."},
	SSTUnparseable: {Unreadable,
		"The footer or properties of a table file cannot be parsed, so its entries are not counted.",
		"Keep a copy of the store before the application starts."},
	OffsetsUnparseable: {Unreadable,
		"The store's own changelog offsets (column family offsets) cannot be read.",
		"Keep a copy of the store before the application starts."},
	OptionsUnparsed: {Info,
		"The OPTIONS file is missing or has lines that cannot be parsed; nothing else depends on it.",
		"Nothing needs to be done."},
	FormatNewer: {Unreadable,
		"A file is of a newer format than this version knows.",
		"Use a newer version of the sidecar."},
	CompressedNotDecoded: {Info,
		"A block that would have to be read is compressed, and this version does not decompress; the values in it are absent.",
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
