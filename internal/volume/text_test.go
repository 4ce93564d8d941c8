package volume_test

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"streams-sidecar/internal/volume"
)

func TestText(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                           "",
		"/var/lib/kafka-streams/0_0": "/var/lib/kafka-streams/0_0",
		"two words":                  "two words",
		`quo"te's`:                   `quo"te's`,
		"ünï 店":                      "ünï 店",
		`back\slash`:                 `back\\slash`,
		`\"`:                         `\\"`,
		"new\nline":                  `new\nline`,
		"\x1b[31m":                   `\x1b[31m`,
		"\x7f":                       `\x7f`,
		"\xff\"":                     `\xff"`,
		"half \xe5\xba":              `half \xe5\xba`,
		"\u202eevil":                 `\u202eevil`,
		"no\u00a0break":              `no\u00a0break`,
		"�":                          "�",
		`\x`:                         `\\x`,
	} {
		if got := volume.Text(name); got != want {
			t.Errorf("text of %q is %q, want %q", name, got, want)
		}
		checkText(t, name)
	}
	for _, name := range oddNames {
		checkText(t, name)
	}
	for b := range 256 {
		checkText(t, string([]byte{byte(b)}))
		checkText(t, string([]byte{'\\', byte(b), '"'}))
	}
	for r := rune(0); r <= 0x2fff; r++ {
		checkText(t, string(r))
	}
}

// checkText checks what holds of every name.
func checkText(t *testing.T, name string) {
	t.Helper()
	text := volume.Text(name)
	if !utf8.ValidString(text) {
		t.Errorf("text of %q is not UTF-8: %q", name, text)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		t.Errorf("text of %q has what cannot be printed: %q", name, text)
	}
	// As the doc comment has it; that there is a way back means that no two
	// names have the same text.
	back, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
	if err != nil || back != name {
		t.Errorf("text of %q leads back to %q, %v", name, back, err)
	}
	ordinary := utf8.ValidString(name) && !strings.Contains(name, `\`) &&
		!strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) })
	if ordinary != (text == name) {
		t.Errorf("%q becomes %q", name, text)
	}
}

func FuzzText(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name)
	}
	f.Add(`\\"\`)
	f.Add("\xed\xa0\x80") // a surrogate
	f.Fuzz(checkText)
}
