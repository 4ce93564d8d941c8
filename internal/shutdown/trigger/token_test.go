package trigger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

// secret is a mounted Secret as the kubelet writes it: the file is a link into
// ..data, which is a link to a directory of one version.
type secret struct {
	t    *testing.T
	dir  string
	path string // of the token
	n    int
}

func newSecret(t *testing.T, token string) *secret {
	t.Helper()
	s := &secret{t: t, dir: t.TempDir()}
	s.path = filepath.Join(s.dir, "token")
	must(t, os.Symlink("..data/token", s.path))
	s.rotate(token)
	return s
}

func (s *secret) rotate(token string) {
	s.t.Helper()
	s.n++
	version := fmt.Sprintf("..version_%d", s.n)
	must(s.t, os.Mkdir(filepath.Join(s.dir, version), 0o755))
	must(s.t, os.WriteFile(filepath.Join(s.dir, version, "token"), []byte(token), 0o600))
	must(s.t, os.Symlink(version, filepath.Join(s.dir, "..data_tmp")))
	must(s.t, os.Rename(filepath.Join(s.dir, "..data_tmp"), filepath.Join(s.dir, "..data")))
	if s.n > 1 {
		must(s.t, os.RemoveAll(filepath.Join(s.dir, fmt.Sprintf("..version_%d", s.n-1))))
	}
}

func writeToken(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestTokenFiles(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4096)
	for _, c := range []struct {
		name, content string
		token         string // "" if it is wrong
		says          string
	}{
		{"a token", "s3cret", "s3cret", ""},
		{"with a new line", "s3cret\n", "s3cret", ""},
		{"with white space", " \t s3cret\r\n\r\n", "s3cret", ""},
		{"several words", "correct horse", "correct horse", ""},
		{"not English", "Schlüssel", "Schlüssel", ""},
		{"the longest", long, long, ""},
		{"empty", "", "", "the file is empty"},
		{"white space", "\n\t \n", "", "the file is empty"},
		{"too long", long + "x", "", "4097 bytes are more than the bound of 4096"},
		{"two lines", "one\ntwo\n", "", "not printable text"},
		{"a zero byte", "s3cret\x00", "", "not printable text"},
		{"UTF-16", "\xff\xfes\x003\x00", "", "not printable text"},
		{"a byte order mark", "\ufeffs3cret", "", "not printable text"},
	} {
		path := writeToken(t, c.content)
		token, err := trigger.NewToken(path)
		if c.token == "" {
			if err == nil || !strings.HasSuffix(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "token: ") ||
				!strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !token.Matches(c.token) || token.Err() != nil {
			t.Errorf("%s: it does not match itself (%v)", c.name, token.Err())
		}
	}
	for path, class := range map[string]volume.Class{
		filepath.Join(t.TempDir(), "missing"): volume.Gone,
		t.TempDir():                           volume.WrongKind,
	} {
		if _, err := trigger.NewToken(path); volume.ClassOf(err) != class {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTokensThatDoNotMatch(t *testing.T) {
	t.Parallel()
	path := writeToken(t, "s3cret\n")
	for _, presented := range []string{"", "s", "s3cre", "s3crets", "S3CRET", " s3cret", "s3cret\n", strings.Repeat("s3cret", 1000)} {
		synctest.Test(t, func(t *testing.T) {
			token, err := trigger.NewToken(path)
			must(t, err)
			if token.Matches(presented) {
				t.Errorf("%q matches", presented)
			}
			if !token.Matches("s3cret") {
				t.Errorf("after %q the right one does not match", presented)
			}
		})
	}
}

// TestTokenRotation: a new token counts at once, even if it is the first thing
// that is presented after the rotation; an old one at most a second longer, and
// no longer once the new one was seen.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSecret(t, "one")
		token, err := trigger.NewToken(s.path)
		must(t, err)
		check := func(presented string, want bool) {
			t.Helper()
			if got := token.Matches(presented); got != want || token.Err() != nil {
				t.Errorf("%s matches: %v (%v)", presented, got, token.Err())
			}
		}
		check("one", true)
		s.rotate("two")
		check("two", true)
		check("one", false)
		time.Sleep(time.Hour)
		s.rotate("three")
		check("two", false)
		check("three", true)
		s.rotate("four")
		time.Sleep(1001 * time.Millisecond)
		check("three", false)
		check("four", true)
	})
}

// TestTokenFileInTrouble: the last good one counts, until there is a good one again.
func TestTokenFileInTrouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, s *secret)
		says  string
	}{
		{"missing", func(t *testing.T, s *secret) { must(t, os.Remove(filepath.Join(s.dir, "..data"))) }, "no such file or directory"},
		{"empty", func(_ *testing.T, s *secret) { s.rotate("") }, "the file is empty"},
		{"too large", func(_ *testing.T, s *secret) { s.rotate(strings.Repeat("x", 5000)) }, "5000 bytes are more than the bound of 4096"},
		{"not text", func(_ *testing.T, s *secret) { s.rotate("\x01") }, "not printable text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSecret(t, "one")
				token, err := trigger.NewToken(s.path)
				must(t, err)
				c.spoil(t, s)
				for range 3 {
					time.Sleep(2 * time.Second)
					if !token.Matches("one") || token.Matches("two") || token.Matches("") {
						t.Error("the last good token does not count alone")
					}
					if err := token.Err(); err == nil || !strings.HasSuffix(err.Error(), c.says) {
						t.Errorf("the error is %v, want %q", err, c.says)
					}
				}
				s.rotate("two")
				if !token.Matches("two") || token.Matches("one") || token.Err() != nil {
					t.Errorf("the new token does not count alone (%v)", token.Err())
				}
			})
		})
	}
}

func TestTokenOnAVolumeThatHangs(t *testing.T) {
	t.Parallel()
	path := writeToken(t, "one")
	for _, op := range []volumetest.Op{volumetest.Open, volumetest.Read, volumetest.Close} {
		synctest.Test(t, func(t *testing.T) {
			fake := volumetest.New(t, volume.OS())
			v := volume.New(fake, volume.Deadline(time.Second))
			const given = time.Second * 9 / 8
			token, err := trigger.NewTokenOn(v, path)
			must(t, err)
			took := func(presented string, want bool) time.Duration {
				t.Helper()
				begun := time.Now()
				if got := token.Matches(presented); got != want {
					t.Errorf("%s: %q matches: %v", op, presented, got)
				}
				return time.Since(begun)
			}
			stall := fake.Stall(op, path)
			if d := took("one", true); d != 0 {
				t.Errorf("%s: what is known took %v", op, d)
			}
			time.Sleep(time.Hour)
			if d := took("one", true); d != given || volume.ClassOf(token.Err()) != volume.Stuck {
				t.Errorf("%s: it took %v (%v)", op, d, token.Err())
			}
			time.Sleep(time.Hour)
			if d := took("one", true) + took("two", false); d > time.Second/5 || volume.ClassOf(token.Err()) != volume.Stuck {
				t.Errorf("%s: once it is known to hang it took %v (%v)", op, d, token.Err())
			}
			if _, err := trigger.NewTokenOn(v, path); volume.ClassOf(err) != volume.Stuck {
				t.Errorf("%s: a new token: %v", op, err)
			}
			stall.Release()
			synctest.Wait()
			time.Sleep(time.Hour)
			if d := took("one", true); d != 0 || token.Err() != nil {
				t.Errorf("%s: once it answers it took %v (%v)", op, d, token.Err())
			}
		})
	}
}

// TestFloodOfWrongTokens: 10,000 of them in a second cause a few readings, and
// the right one is not lost among them, even if it was rotated just now.
func TestFloodOfWrongTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSecret(t, "one")
		fake := volumetest.New(t, volume.OS())
		token, err := trigger.NewTokenOn(volume.New(fake), s.path)
		must(t, err)
		time.Sleep(time.Hour)
		before := fake.Count(volumetest.Any, "...")
		var calls sync.WaitGroup
		var slowest atomic.Int64
		call := func(presented string, want bool) {
			calls.Go(func() {
				begun := time.Now()
				if token.Matches(presented) != want {
					t.Errorf("%s matches: %v", presented, !want)
				}
				for took := int64(time.Since(begun)); ; {
					if old := slowest.Load(); took <= old || slowest.CompareAndSwap(old, took) {
						return
					}
				}
			})
		}
		for i := range 10_000 {
			call("wrong", false)
			if i == 5_000 {
				s.rotate("two")
				call("two", true)
			}
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		calls.Wait()
		if n := fake.Count(volumetest.Open, "..."); n > 1+7 {
			t.Errorf("the file was read %d times in a second", n-1)
		}
		if n := fake.Count(volumetest.Any, "...") - before; n > 7*3 {
			t.Errorf("%d calls to the volume", n)
		}
		if d := time.Duration(slowest.Load()); d > 200*time.Millisecond {
			t.Errorf("the slowest call took %v", d)
		}
	})
}

// TestTokenUsedAtOnce is for the race detector.
func TestTokenUsedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSecret(t, "even")
	token, err := trigger.NewToken(s.path)
	must(t, err)
	var users sync.WaitGroup
	var done atomic.Bool
	for i := range 8 {
		users.Go(func() {
			for !done.Load() {
				if !token.Matches([]string{"even", "odd"}[i%2]) {
					_ = token.Err()
				}
				if token.Matches("neither") {
					t.Error("a wrong one matches")
				}
			}
		})
	}
	for i := range 5 {
		s.rotate([]string{"odd", "even"}[i%2])
		time.Sleep(50 * time.Millisecond)
	}
	done.Store(true)
	users.Wait()
	if !token.Matches("odd") || token.Matches("even") || token.Err() != nil {
		t.Errorf("the last rotation does not count (%v)", token.Err())
	}
}

func TestTokenThatNobodyMayRead(t *testing.T) {
	t.Parallel()
	fake := volumetest.New(t, volume.OS())
	path := writeToken(t, "one")
	fake.Fail(volumetest.Open, path, syscall.EACCES)
	if _, err := trigger.NewTokenOn(volume.New(fake), path); volume.ClassOf(err) != volume.Denied {
		t.Errorf("NewToken: %v", err)
	}
}
