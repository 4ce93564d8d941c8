package statedir

import (
	"errors"
	"fmt"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// place is a directory, or what stands where one is expected, on its way into
// the result.
type place struct {
	name, path string
	info       volume.Info // of the link's target, where the name is a link
	link       bool        // the name itself is a symbolic link
	linked     bool        // it is, or that of a directory above it
	outside    string      // where the link leads, if out of the state directory
	level      int         // of its claim
}

func (p *place) isDirectory() bool { return p.info.Kind == volume.Directory }

// enter gives the place of an entry of a directory, its link followed. ok is
// false if the link cannot be followed; then it has added a finding.
func (s *scanner) enter(parent *place, e *volume.Info, to *[]finding.Finding) (p *place, ok bool) {
	p = &place{name: e.Name, path: join(parent.path, e.Name), info: *e, linked: parent.linked}
	if e.Kind != volume.Symlink {
		return p, true
	}
	// A unit of its own: the target may be on another file system, which hangs.
	l, err := volume.Do(s.v, p.path, func(fs volume.FS) (place, error) {
		info, err := follow(fs, p.path)
		if err != nil {
			return place{}, err
		}
		l := place{info: info}
		// Where it leads is told only if it can be: what counts is behind it.
		if to, err := fs.Resolve(p.path); err == nil {
			l.outside = to
		}
		return l, nil
	})
	if err != nil {
		add(to, err, p.path)
		return nil, false
	}
	p.info, p.link, p.linked = l.info, true, true
	if l.outside != "" && s.dir.Resolved != "" && !within(s.dir.Resolved, l.outside) {
		p.outside = l.outside
	}
	return p, true
}

// claim settles which of several names of one directory is counted: one of an
// earlier level, else a real name before one that leads over a link, else the
// lexically first. All places of a level must be claimed in one call.
func (s *scanner) claim(level []*place) {
	s.level++
	for _, p := range level {
		// Without inode numbers no two directories can be told apart.
		if p.info.Ino == 0 {
			continue
		}
		p.level = s.level
		id := p.info.ID()
		if c, ok := s.claims[id]; !ok || c.level == p.level && p.beats(c) {
			s.claims[id] = p
		}
	}
}

func (p *place) beats(other *place) bool {
	if p.linked != other.linked {
		return other.linked
	}
	return p.path < other.path
}

// counted says whether a place is counted under this name, and adds a finding
// if it is not.
func (s *scanner) counted(p *place, to *[]finding.Finding) bool {
	c := s.claims[p.info.ID()]
	if c == nil || c == p {
		return true
	}
	*to = append(*to, finding.New(finding.SameDirectory, p.path,
		finding.Found("the same directory as %s", volume.Text(c.path))))
	return false
}

// tellOutside adds a finding if the place is reached by a link that leaves the
// state directory.
func (p *place) tellOutside(to *[]finding.Finding) {
	if p.outside != "" {
		*to = append(*to, finding.New(finding.SymlinkOutside, p.path,
			finding.Found("leads to %s", volume.Text(p.outside))))
	}
}

// wrongKind is about something other than a directory in the place of one.
func wrongKind(p *place) finding.Finding {
	return finding.New(finding.WrongKind, p.path,
		finding.Expected("a directory"), finding.Found("a %s", p.info.Kind))
}

// errDangling is the cause where a symbolic link leads to nothing.
var errDangling = errors.New("a symbolic link to nothing")

// follow is Stat, with an error of its own for a link that leads to nothing.
func follow(fs volume.FS, path string) (volume.Info, error) {
	info, err := fs.Stat(path)
	if volume.IsGone(err) {
		// Or else the link itself has gone meanwhile.
		if _, lerr := fs.Lstat(path); lerr == nil {
			err = &volume.Error{Op: "stat", Path: path, Class: volume.Gone, Err: errDangling}
		}
	}
	return info, err
}

// regular gives the Info of the regular file that an entry of dir is or leads to.
func regular(fs volume.FS, dir string, e *volume.Info) (volume.Info, error) {
	info := *e
	if e.Kind == volume.Symlink {
		var err error
		if info, err = follow(fs, join(dir, e.Name)); err != nil {
			return info, err
		}
	}
	if info.Kind != volume.Regular {
		return info, &volume.Error{Op: "open", Path: join(dir, e.Name), Class: volume.WrongKind,
			Err: fmt.Errorf("is a %s, not a file", info.Kind)}
	}
	return info, nil
}

// readFile is volume.ReadFile of a file whose size is already known, so that
// one that is too large is not even opened.
func readFile(fs volume.FS, path string, info volume.Info, limit int64) ([]byte, volume.Info, error) {
	if info.Size > limit {
		return nil, info, &volume.Error{Op: "read", Path: path, Class: volume.TooLarge,
			Err: fmt.Errorf("%d bytes are more than the bound of %d", info.Size, limit)}
	}
	return volume.ReadFile(fs, path, limit)
}

// problem is the finding of an error, if it is one: what has gone between the
// listing and the look was deleted, and that is normal. path is for an error
// that names none.
func problem(err error, path string) (finding.Finding, bool) {
	if e, ok := errors.AsType[*volume.Error](err); ok {
		path = e.Path
	}
	switch {
	case err == nil:
		return finding.Finding{}, false
	case errors.Is(err, errDangling):
		return finding.New(finding.SymlinkBroken, path), true
	case volume.IsGone(err):
		return finding.Finding{}, false
	default:
		return finding.FromError(err, path), true
	}
}

func add(to *[]finding.Finding, err error, path string) {
	if f, ok := problem(err, path); ok {
		*to = append(*to, f)
	}
}
