package statedir

import (
	"errors"

	"streams-sidecar/internal/volume"
)

// Size adds up st_size of the regular files below a directory and follows no
// symbolic link. It looks at no more than limit entries. exact is false where
// there were more or where a directory inside could not be read; bytes is then
// what was seen. The error is that of dir itself. It may be the whole of a
// look: each directory and entry is a call of its own.
func Size(fs volume.FS, dir string, limit int) (bytes int64, exact bool, err error) {
	bytes, _, exact, err = size(fs, dir, limit)
	return bytes, exact, err
}

// errEnough ends a listing of which no more is needed.
var errEnough = errors.New("seen enough")

func size(fs volume.FS, dir string, limit int) (bytes int64, entries int, exact bool, err error) {
	exact = true
	// Not recursive: the depth of a tree is not bounded, and a listing that
	// is under way holds a descriptor.
	for todo := []string{dir}; len(todo) > 0; {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err := fs.List(d, func(e volume.Info) error {
			if entries >= limit {
				return errEnough
			}
			entries++
			switch e.Kind {
			case volume.Regular:
				bytes += e.Size
			case volume.Directory:
				todo = append(todo, join(d, e.Name))
			}
			return nil
		})
		switch {
		case err == nil:
		case errors.Is(err, errEnough):
			return bytes, entries, false, nil
		case volume.ClassOf(err) == volume.Stuck:
			return bytes, entries, false, err
		case volume.IsGone(err) && d != dir: // deleted meanwhile
		case d == dir && entries == 0:
			return 0, 0, false, err
		default:
			exact = false
		}
	}
	return bytes, entries, exact, nil
}

// isEmpty says whether a directory holds nothing; it looks at one entry.
func isEmpty(fs volume.FS, dir string) (bool, error) {
	err := fs.List(dir, func(volume.Info) error { return errEnough })
	if errors.Is(err, errEnough) {
		return false, nil
	}
	return err == nil, err
}
