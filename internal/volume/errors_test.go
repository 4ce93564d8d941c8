package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestClassOfEveryErrno(t *testing.T) {
	t.Parallel()
	for class, errnos := range map[Class][]syscall.Errno{
		Gone:   {syscall.ENOENT},
		Denied: {syscall.EACCES, syscall.EPERM},
		IO: {syscall.EIO, syscall.ESTALE, syscall.ENXIO, syscall.ENODEV, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.EREMOTEIO,
			syscall.EBADMSG, syscall.EUCLEAN, syscall.ETIMEDOUT, syscall.EHOSTDOWN, syscall.ECONNABORTED,
			syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH},
		Full:         {syscall.ENOSPC, syscall.EDQUOT},
		WrongKind:    {syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP},
		NoLocks:      {syscall.ENOLCK, syscall.EOPNOTSUPP, syscall.ENOSYS},
		TooMany:      {syscall.EMFILE, syscall.ENFILE},
		Unclassified: {syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ENOMEM, syscall.EBADF},
	} {
		for _, errno := range errnos {
			if got := ClassOf(errno); got != class {
				t.Errorf("class of %v (%d) is %v, want %v", errno, int(errno), got, class)
			}
			wrapped := fmt.Errorf("look: %w", &os.PathError{Op: "open", Path: "/x", Err: errno})
			if got := ClassOf(wrapped); got != class {
				t.Errorf("class of %v is %v, want %v", wrapped, got, class)
			}
			if got := IsGone(wrapped); got != (class == Gone) {
				t.Errorf("IsGone(%v) = %v", wrapped, got)
			}
		}
	}
}

func TestClassOfOtherErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, Unclassified},
		{io.EOF, Unclassified},
		{fs.ErrNotExist, Gone},
		{errKind{Other}, WrongKind},
		{&Error{Class: Stuck, Err: syscall.ENOENT}, Stuck},
		{fmt.Errorf("read store: %w", &Error{Class: TooLarge, Err: errors.New("x")}), TooLarge},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("class of %v is %v, want %v", c.err, got, c.want)
		}
	}
	if IsGone(nil) {
		t.Error("nil is gone")
	}
}

func TestOnlyALockCallCanBeRefusedForWantOfLocks(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]Class{"lock": NoLocks, "list": Unclassified, "read": Unclassified} {
		err := wrap(op, "/x", syscall.EOPNOTSUPP)
		if got := ClassOf(err); got != want {
			t.Errorf("class of %v is %v, want %v", err, got, want)
		}
	}
	if wrap("open", "/x", nil) != nil {
		t.Error("no error became one")
	}
}

func TestErrorSaysWhatWhereAndWhy(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 2, 3, 4, 5, 6, 7, time.FixedZone("", 3600))
	for _, c := range []struct {
		err  error
		want string
	}{
		{wrap("open", "/v/a\n\xff", syscall.EACCES), `open /v/a\n\xff: permission denied`},
		{wrap("open", "/v/x", errKind{Directory}), `open /v/x: is a directory, not a file`},
		{&Error{Op: "read", Path: "/v/x", Err: errTooLarge{11, 10}}, `read /v/x: 11 bytes are more than the bound of 10`},
		{&Error{Op: "list", Path: "/v", Class: Stuck, Err: errStuck{since}},
			`list /v: no answer from the volume since 2026-02-03T03:05:06Z`},
		{&Panic{Value: "bad\x1b[31m"}, `panic: bad\x1b[31m`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("text is %q, want %q", got, c.want)
		}
	}
	if !errors.Is(wrap("open", "/x", syscall.EACCES), fs.ErrPermission) {
		t.Error("the errno cannot be found in the error")
	}
}

func TestEveryClassHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	names := map[string]Class{}
	for c := Unclassified; c <= TooLarge; c++ {
		if other, ok := names[c.String()]; ok {
			t.Errorf("classes %d and %d are both %q", other, c, c)
		}
		names[c.String()] = c
		if strings.TrimSpace(c.Hint()) != c.Hint() || strings.HasSuffix(c.Hint(), ".") {
			t.Errorf("hint of %v does not fit into a line: %q", c, c.Hint())
		}
	}
	// What a person can always do something about.
	for _, c := range []Class{Denied, IO, Full, Stuck, NoLocks, TooMany} {
		if c.Hint() == "" {
			t.Errorf("no hint for %v", c)
		}
	}
	kinds := map[string]bool{}
	for k := Regular; k <= Other; k++ {
		kinds[k.String()] = true
	}
	if len(kinds) != 4 {
		t.Errorf("kinds are called %v", kinds)
	}
}

func TestSizesBeyondInt64Saturate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		blocks, unit uint64
		want         int64
	}{
		{0, 4096, 0},
		{10, 4096, 40960},
		{math.MaxInt64, 1, math.MaxInt64},
		{1 << 51, 4096, math.MaxInt64}, // 2^63
		{math.MaxUint64, 4096, math.MaxInt64},
	} {
		if got := saturate(c.blocks, c.unit); got != c.want {
			t.Errorf("%d × %d gives %d, want %d", c.blocks, c.unit, got, c.want)
		}
	}
}

func TestFileSystemsHaveTheNamesPeopleKnow(t *testing.T) {
	t.Parallel()
	for magic, want := range map[int64]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlay",
		0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x65735546: "fuse", 0x01021997: "9p",
		0x2fc12fc1: "zfs", 0x00c36400: "ceph", 0xf2f52010: "f2fs", 0x0bd00bd0: "lustre", 0x47504653: "gpfs",
		0x9fa0:      "0x00009fa0",
		-0x6edc97c2: "btrfs", // as a signed 32 bit number
		-(0xacb2be): "cifs",
	} {
		if got := fsType(magic); got != want {
			t.Errorf("%#x is called %s, want %s", magic, got, want)
		}
	}
}
