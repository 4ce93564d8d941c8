package journal_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// must fails the test at an error, unless it is one that is expected.
func must(t testing.TB, err error, expected ...string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, e := range expected {
		if strings.Contains(err.Error(), e) {
			return
		}
	}
	t.Fatal(err)
}

func sorted(s []string) []string { slices.Sort(s); return s }

// entries are the names in the folder of a state directory.
func entries(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, folderName))
	must(t, err)
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// paths are all files and directories below one, with their way from there.
func paths(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	for p := range tree(t, dir) {
		if p != "." {
			out = append(out, p)
		}
	}
	return sorted(out)
}

// tree is all that a change of a directory, or below it, would change.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		said := fmt.Sprint(fi.Mode(), st.Uid, st.Gid, st.Ino, st.Nlink, fi.Size(), st.Mtim, st.Ctim)
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			said += string(data)
		case fi.Mode().Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			said += to
		}
		out[rel] = said
		return nil
	}))
	return out
}

// outside is what of a tree is not ours to change: not the folder, nor its
// entry in the state directory.
func outside(tree map[string]string) map[string]string {
	out := map[string]string{}
	for p, said := range tree {
		if p != "." && p != folderName && !strings.HasPrefix(p, folderName+"/") {
			out[p] = said
		}
	}
	return out
}
