package hungfs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// In the child, this runs instead of the tests.
func init() {
	if dir := os.Getenv(dirEnv); dir != "" {
		os.Exit(serve(dir, os.Getenv(mountEnv)))
	}
}

func serve(dir, mount string) (status int) {
	root, err := fs.NewLoopbackRoot(dir)
	if err != nil {
		return complain(err)
	}
	copied := &copyFS{RawFileSystem: fs.NewNodeFS(root, &fs.Options{})}
	server, err := fuse.NewServer(copied, mount, &fuse.MountOptions{
		FsName:            "hungfs",
		Name:              "hungfs",
		Options:           []string{"ro"},
		DirectMountStrict: os.Geteuid() == 0,
		// Or else the kernel reads open files without asking.
		DisabledCapabilities: fuse.CAP_PASSTHROUGH,
	})
	switch {
	case err == nil:
	case os.Geteuid() != 0, errors.Is(err, unix.EPERM), errors.Is(err, unix.ENODEV):
		fmt.Printf("%cmount: %v", unusable, err)
		return 0
	default:
		return complain(err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return complain(err)
	}
	defer func() {
		// Then the exit closes /dev/fuse, and what still hangs fails.
		if err := detach(mount); err != nil {
			status = complain(err)
		}
	}()
	fmt.Printf("%c", done)

	commands := make(chan byte)
	go func() {
		defer close(commands)
		for one := make([]byte, 1); ; {
			if _, err := os.Stdin.Read(one); err != nil {
				return
			}
			commands <- one[0]
		}
	}()
	stalled := false
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return 0
			}
			switch {
			case c == alive:
				continue
			case c == stall && !stalled:
				copied.gate.Lock()
			case c == release && stalled:
				copied.gate.Unlock()
			}
			stalled = c == stall
			fmt.Printf("%c", done)
		case <-time.After(silence):
			return 0
		}
	}
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "hungfs:", err)
	return 1
}

// copyFS holds up every request that somebody waits for and that a reader of
// a directory makes.
type copyFS struct {
	fuse.RawFileSystem
	gate sync.RWMutex // locked while stalled
}

func (c *copyFS) pass() {
	c.gate.RLock()
	c.gate.RUnlock() //nolint:staticcheck // passing is all there is to do
}

func (c *copyFS) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	c.pass()
	return c.RawFileSystem.Lookup(cancel, in, name, out)
}

func (c *copyFS) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	c.pass()
	return c.RawFileSystem.GetAttr(cancel, in, out)
}

func (c *copyFS) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	c.pass()
	return c.RawFileSystem.Statx(cancel, in, out)
}

func (c *copyFS) Readlink(cancel <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	c.pass()
	return c.RawFileSystem.Readlink(cancel, in)
}

func (c *copyFS) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	c.pass()
	status := c.RawFileSystem.Open(cancel, in, out)
	out.OpenFlags |= fuse.FOPEN_DIRECT_IO // no page cache: every read asks
	return status
}

func (c *copyFS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	c.pass()
	return c.RawFileSystem.Read(cancel, in, buf)
}

func (c *copyFS) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	c.pass()
	return c.RawFileSystem.Flush(cancel, in)
}

func (c *copyFS) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	c.pass()
	return c.RawFileSystem.OpenDir(cancel, in, out)
}

func (c *copyFS) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	c.pass()
	return c.RawFileSystem.ReadDir(cancel, in, out)
}

func (c *copyFS) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	c.pass()
	return c.RawFileSystem.ReadDirPlus(cancel, in, out)
}

func (c *copyFS) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	c.pass()
	return c.RawFileSystem.StatFs(cancel, in, out)
}
