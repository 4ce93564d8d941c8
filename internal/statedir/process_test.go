package statedir

import (
	"strings"
	"testing"
)

func TestParseProcess(t *testing.T) {
	t.Parallel()
	const id = "ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"
	for _, c := range []struct{ name, text, want, err string }{
		{name: "as Streams writes it", text: `{"processId":"` + id + `"}`, want: id},
		{name: "unknown fields", text: `{"a":{"processId":"x"},"processId":"` + id + `","b":[1]}`, want: id},
		{name: "white space", text: "\n{ \"processId\" : \"" + id + "\" }\n", want: id},
		{name: "upper case", text: `{"processId":"` + strings.ToUpper(id) + `"}`, want: id},
		{name: "the last of two", text: `{"processId":"x","processId":"` + id + `"}`, want: id},
		{name: "something after it", text: `{"processId":"` + id + `"}{`, want: id},

		{name: "empty", text: "", err: "0 bytes: EOF"},
		{name: "cut off", text: `{"processId":"` + id, err: "50 bytes: unexpected EOF"},
		{name: "garbage", text: "hello", err: "invalid character"},
		{name: "null", text: "null", err: "no processId"},
		{name: "an array", text: "[]", err: "cannot unmarshal array"},
		{name: "no id", text: "{}", err: "no processId"},
		{name: "another case", text: `{"processid":"` + id + `"}`, err: "no processId"},
		{name: "id is null", text: `{"processId":null}`, err: `processId ""`},
		{name: "id is a number", text: `{"processId":5}`, err: "cannot unmarshal number"},
		{name: "id is no UUID", text: `{"processId":"` + strings.Repeat("x", 36) + `"}`, err: `processId "xxx`},
		{name: "hyphens elsewhere", text: `{"processId":"ff72cccf4-ecc-42fb-a3b7-3bf72ac220ff"}`, err: "processId"},
		{name: "too short", text: `{"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220f"}`, err: "processId"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseProcess([]byte(c.text))
			if got != c.want {
				t.Errorf("id %q, want %q", got, c.want)
			}
			switch {
			case c.err == "" && err != nil:
				t.Error(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want %q in it", err, c.err)
			}
		})
	}
}

func FuzzProcessMetadata(f *testing.F) {
	f.Add([]byte(`{"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}`))
	f.Add([]byte(`{"processId":null}`))
	f.Add([]byte(strings.Repeat("[", 20_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := ParseProcess(data)
		if (id == "") != (err != nil) || id != "" && (!isUUID(id) || id != strings.ToLower(id)) {
			t.Errorf("id %q, error %v", id, err)
		}
	})
}
