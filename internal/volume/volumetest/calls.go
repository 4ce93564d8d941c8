package volumetest

import (
	"math"
	"path/filepath"

	"streams-sidecar/internal/volume"
)

func ask[T any](f *FS, op Op, path string, method func(string) (T, error)) (T, error) {
	fail, later := f.enter(op, path, math.MaxInt64)
	if fail != nil {
		var none T
		return none, fail.error(op, path)
	}
	defer later.after()
	return method(path)
}

// Lstat implements [volume.FS].
func (f *FS) Lstat(path string) (volume.Info, error) { return ask(f, Stat, path, f.under.Lstat) }

// Stat implements [volume.FS].
func (f *FS) Stat(path string) (volume.Info, error) { return ask(f, Stat, path, f.under.Stat) }

// Lock implements [volume.FS].
func (f *FS) Lock(path string) (volume.Lock, error) { return ask(f, Lock, path, f.under.Lock) }

// Resolve implements [volume.FS].
func (f *FS) Resolve(path string) (string, error) { return ask(f, Resolve, path, f.under.Resolve) }

// Watch implements [volume.FS].
func (f *FS) Watch(path string, add func(string) error) error {
	_, err := ask(f, Watch, path, func(path string) (struct{}, error) { return struct{}{}, f.under.Watch(path, add) })
	return err
}

// Usage implements [volume.FS].
func (f *FS) Usage(path string) (volume.Usage, error) {
	fail, later := f.enter(Usage, path, math.MaxInt64)
	if fail != nil {
		return volume.Usage{}, fail.error(Usage, path)
	}
	defer later.after()
	u, err := f.under.Usage(path)
	for _, r := range later {
		if r.usage != nil && err == nil {
			r.usage(&u)
		}
	}
	return u, err
}

// List implements [volume.FS].
func (f *FS) List(dir string, visit func(volume.Info) error) error {
	fail, later := f.enter(List, dir, math.MaxInt64)
	if fail != nil {
		return fail.error(List, dir)
	}
	defer later.after()
	var unseen error
	err := f.under.List(dir, func(i volume.Info) error {
		path := filepath.Join(dir, i.Name)
		fail, later := f.enter(Entry, path, math.MaxInt64)
		if fail == nil {
			defer later.after()
			return visit(i)
		}
		if err := fail.error(Entry, path); unseen == nil && !volume.IsGone(err) {
			unseen = err
		}
		return nil
	})
	if err == nil {
		err = unseen
	}
	return err
}

// Open implements [volume.FS].
func (f *FS) Open(path string) (volume.File, error) {
	return ask(f, Open, path, func(path string) (volume.File, error) {
		under, err := f.under.Open(path)
		if err != nil {
			return nil, err
		}
		return &file{under, f, path}, nil
	})
}

type file struct {
	volume.File
	fs   *FS
	path string
}

func (f *file) ReadAt(p []byte, off int64) (int, error) { return f.read(f.File.ReadAt, p, off) }

func (f *file) ReadPast(p []byte, off int64) (int, error) { return f.read(f.File.ReadPast, p, off) }

func (f *file) Deleted() (bool, error) {
	return ask(f.fs, Stat, f.path, func(string) (bool, error) { return f.File.Deleted() })
}

func (f *file) read(method func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	fail, later := f.fs.enter(Read, f.path, off+int64(len(p)))
	defer later.after()
	if fail == nil {
		return method(p, off)
	}
	n, err := method(p[:max(0, fail.from-off)], off)
	if err == nil {
		err = fail.error(Read, f.path)
	}
	return n, err
}

func (f *file) Close() error {
	fail, later := f.fs.enter(Close, f.path, math.MaxInt64)
	defer later.after()
	err := f.File.Close()
	if fail != nil {
		return fail.error(Close, f.path)
	}
	return err
}
