package trigger

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"streams-sidecar/internal/volume"
)

const (
	// maxToken bounds the file of a token, in bytes.
	maxToken = 4 << 10
	// tokenAge is how old the known content of the file may be for a token
	// that matches it.
	tokenAge = time.Second
	// tokenGap is the shortest time between two readings, whatever is presented.
	tokenGap = 200 * time.Millisecond
)

// Token is the secret that a hook must carry to be allowed to trigger
// anything. Its file is read again while it is in use, so that a mounted
// Kubernetes Secret can be rotated. Only the file's content counts, with one
// exception: while the file cannot be read, or has nothing usable in it, the
// last good content goes on counting, so that the moment in which the kubelet
// swaps it, or a volume that hangs, does not lock the hook out.
//
// It keeps only a hash of the secret. It is safe for concurrent use.
type Token struct {
	path  string
	files *volume.Volume

	mu    sync.Mutex
	sum   [sha256.Size]byte // of the last good content
	begun time.Time         // when the last reading began that has ended
	err   error             // of that reading
	next  chan struct{}     // closed when the next one ends; nil if none is due
}

// NewToken reads the token in a file. White space around it is no part of it.
// It is an error if the file cannot be read within a second, is larger than 4
// KiB, or holds nothing, or something that no header can carry as text.
func NewToken(path string) (*Token, error) { return newToken(newFiles(), path) }

func newToken(files *volume.Volume, path string) (*Token, error) {
	t := &Token{path: path, files: files}
	t.read()
	if t.err != nil {
		return nil, t.err
	}
	return t, nil
}

// Matches says whether a presented token is the one in the file. How long that
// takes says nothing of either of them.
//
// A token that matches is checked against content that is at most a second
// old. One that does not is refused only after a reading that began later than
// the call, so that one that was rotated just now counts at once. All calls
// share these readings, of which there are at most five a second: among many
// wrong tokens a call takes up to 0.2 s longer, and the right one still passes.
// On a volume that hangs a call takes a second more, once.
func (t *Token) Matches(presented string) bool {
	now := time.Now()
	sum := sha256.Sum256([]byte(presented))
	t.refresh(now.Add(-tokenAge))
	if t.matches(&sum) {
		return true
	}
	t.refresh(now)
	return t.matches(&sum)
}

// Err is why the last reading of the file did not succeed; nil if it did. It
// does not read.
func (t *Token) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *Token) matches(sum *[sha256.Size]byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}

// refresh returns when there has been a reading that began later than since.
func (t *Token) refresh(since time.Time) {
	for {
		t.mu.Lock()
		begun, next := t.begun, t.next
		mine := !begun.After(since) && next == nil
		if mine {
			next = make(chan struct{})
			t.next = next
		}
		t.mu.Unlock()
		switch {
		case begun.After(since):
			return
		case mine:
			time.Sleep(time.Until(begun.Add(tokenGap)))
			t.read()
			close(next)
		default:
			<-next
		}
	}
}

func (t *Token) read() {
	begun := time.Now()
	data, err := read(t.files, "token", t.path, maxToken)
	data = bytes.TrimSpace(data)
	if err == nil {
		err = wrong(string(data))
		if err != nil {
			err = fmt.Errorf("token: %s: %w", volume.Text(t.path), err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.err, t.next = begun, err, nil
	if err == nil {
		t.sum = sha256.Sum256(data)
	}
}

// wrong says why a token is none.
func wrong(token string) error {
	switch {
	case token == "":
		return errors.New("the file is empty")
	case !utf8.ValidString(token), strings.ContainsFunc(token, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("it holds bytes that are not printable text")
	}
	return nil
}
