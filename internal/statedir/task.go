package statedir

import (
	"cmp"
	"slices"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// taskNode is a task on its way into the result.
type taskNode struct {
	*place
	app       *appNode
	task      *Task
	entries   []volume.Info // directories, and what stands where one is expected
	positions []*offsetsFile
}

// tasks looks at the tasks of all applications.
func (s *scanner) tasks(apps []*appNode) []*taskNode {
	var nodes []*taskNode
	for _, a := range apps {
		for i := range a.entries {
			nodes = s.entry(nodes, a, a.place, "", &a.entries[i])
		}
	}
	level := make([]*place, len(nodes))
	for i, t := range nodes {
		level[i] = t.place
	}
	s.claim(level)
	return slices.DeleteFunc(nodes, func(t *taskNode) bool {
		t.tellOutside(&t.task.Findings)
		return !s.counted(t.place, &t.app.app.Findings) || !s.lookTask(t)
	})
}

// entry adds to nodes what an entry of an application's directory, or of the
// folder of a named topology in it, is.
func (s *scanner) entry(nodes []*taskNode, a *appNode, parent *place, topology string, e *volume.Info) []*taskNode {
	if e.Name == lockName || e.Name == processName || e.Name == sidecarName {
		return nodes
	}
	fs := &a.app.Findings
	p, ok := s.enter(parent, e, fs)
	if !ok {
		return nodes
	}
	inner, isTopology := topologyOf(e.Name)
	isGlobal := e.Name == GlobalName && topology == ""
	switch {
	case IsTaskName(e.Name):
		t := &Task{ID: e.Name, Topology: topology}
		if topology != "" {
			t.ID = parent.name + "/" + e.Name
		}
		t.Subtopology, t.Partition, ok = taskNumbers(e.Name)
		switch {
		case !p.isDirectory():
			*fs = append(*fs, wrongKind(p))
		case !ok:
			*fs = append(*fs, finding.New(finding.WrongKind, p.path,
				finding.Expected("the name of a task, with numbers below 2147483648"),
				finding.Found("%s", volume.Text(e.Name))))
		default:
			nodes = append(nodes, &taskNode{place: p, app: a, task: t})
		}
	case isGlobal && p.isDirectory():
		t := &Task{ID: GlobalName, Global: true, Subtopology: -1, Partition: -1}
		nodes = append(nodes, &taskNode{place: p, app: a, task: t})
	case isGlobal:
		*fs = append(*fs, wrongKind(p))
	case !p.isDirectory():
	case isTopology && topology == "":
		if !s.counted(p, fs) { // a link to the application itself
			break
		}
		p.tellOutside(fs)
		l := s.look(p)
		add(fs, l.err, p.path)
		for i := range l.entries {
			nodes = s.entry(nodes, a, p, inner, &l.entries[i])
		}
	default:
		s.foreign(p, fs)
	}
	return nodes
}

// lookTask reads a task's directory; false if it has gone.
func (s *scanner) lookTask(n *taskNode) bool {
	type look struct {
		listing
		lock    lockAnswer
		offsets []*offsetsFile
	}
	path, before := n.path, s.before
	l, err := volume.Do(s.v, path, func(fs volume.FS) (l look, err error) {
		l.listing = list(fs, path, func(name string, kind volume.Kind) bool {
			return mayBeDirectory(kind) || !strings.HasSuffix(name, temporarySuffix)
		})
		l.offsets = make([]*offsetsFile, 0, len(l.entries))
		others := l.entries[:0]
		for i := range l.entries {
			switch e := &l.entries[i]; {
			case e.Name == lockName:
				l.lock = askLock(fs, path, e)
			case isOffsetsFile(e):
				l.offsets = append(l.offsets, readOffsets(fs, path, e, before))
			default:
				others = append(others, *e)
			}
		}
		l.entries = others
		return l, nil
	})
	err = cmp.Or(err, l.err)
	if volume.IsGone(err) {
		return false
	}
	t := n.task
	t.Path, t.DirID, t.ModNanos = path, n.info.ID(), n.info.ModNanos
	t.LockFile = l.lock.exists
	if l.lock.exists {
		t.Locked = l.lock.held()
	}
	add(&t.Findings, err, path)
	add(&t.Findings, l.lock.err, join(path, lockName))
	n.entries = l.entries
	present := slices.ContainsFunc(l.offsets, func(f *offsetsFile) bool {
		return f.name == checkpointName && !volume.IsGone(f.err)
	})
	if present || err == nil {
		t.CheckpointPresent = &present
	}
	for _, f := range l.offsets {
		if f.err == nil {
			s.dir.memory.offsets[f.fileName] = f
		}
		if strings.HasSuffix(f.name, positionSuffix) {
			n.positions = append(n.positions, f)
			continue
		}
		if p, ok := f.problem(finding.CheckpointMalformed); ok {
			t.Findings = append(t.Findings, p)
		}
		if f.parsed == nil {
			continue
		}
		store, ofStore := strings.CutPrefix(f.name, storeCheckpointPrefix)
		if !ofStore {
			t.Checkpoint = f.parsed
			continue
		}
		if t.StoreCheckpoints == nil {
			t.StoreCheckpoints = map[string]*Checkpoint{}
		}
		t.StoreCheckpoints[store] = f.parsed
	}
	return true
}

// isOffsetsFile says that a name in a task's directory is that of a file of offsets.
func isOffsetsFile(e *volume.Info) bool {
	switch {
	case strings.HasPrefix(e.Name, checkpointName):
		rest := e.Name[len(checkpointName):]
		return rest == "" || rest[0] == '_' && len(rest) > 1
	case e.Kind == volume.Directory: // a store may have any name
		return false
	default:
		return strings.HasSuffix(e.Name, positionSuffix) && len(e.Name) > len(positionSuffix)
	}
}

// settle attaches the positions to their stores, and orders the result.
func (n *taskNode) settle(app string) {
	t := n.task
	slices.SortFunc(t.Stores, compareStores)
	for _, f := range n.positions {
		store := strings.TrimSuffix(f.name, positionSuffix)
		to := &t.Findings // Streams reads it before it makes the store
		at, _ := slices.BinarySearchFunc(t.Stores, store, func(s *Store, name string) int {
			return strings.Compare(s.Name, name)
		})
		for ; at < len(t.Stores) && t.Stores[at].Name == store; at++ {
			t.Stores[at].Position = f.parsed
			to = &t.Stores[at].Findings
		}
		if p, ok := f.problem(finding.PositionMalformed); ok {
			*to = append(*to, p)
		}
	}
	n.filesForStores(app)
	for _, s := range t.Stores {
		settleFindings(&s.Findings, s.Path)
	}
	settleFindings(&t.Findings, t.Path)
}

// filesForStores finds files that stand where a segmented store's directory
// belongs. Most files in a task are none of Streams' business; one that has
// the name of a store with a changelog offset or a position is.
func (n *taskNode) filesForStores(app string) {
	t := n.task
	for i := range n.entries {
		e := &n.entries[i]
		if mayBeDirectory(e.Kind) || e.Name == rocksdbName {
			continue
		}
		topic := t.ChangelogTopic(app, e.Name)
		named := slices.ContainsFunc(n.positions, func(f *offsetsFile) bool { return f.name == e.Name+positionSuffix }) ||
			t.Checkpoint != nil && slices.ContainsFunc(t.Checkpoint.Entries, func(o Offset) bool { return o.Topic == topic })
		if named {
			t.Findings = append(t.Findings, wrongKind(&place{path: join(n.path, e.Name), info: *e}))
		}
	}
}
