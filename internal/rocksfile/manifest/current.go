package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

const namePrefix = "MANIFEST-"

// Name of the MANIFEST file with this number.
func Name(number uint64) string { return fmt.Sprintf("%s%06d", namePrefix, number) }

// ParseCurrent takes the whole content of a CURRENT file and gives the name of
// the MANIFEST that it points to, as it stands there, and the number in it. An
// error says what is wrong with the content; RocksDB refuses to open the store
// then (RocksDB db/manifest_ops.cc, file/filename.cc).
func ParseCurrent(data []byte) (name string, number uint64, err error) {
	text, ended := bytes.CutSuffix(data, []byte("\n"))
	switch {
	case len(data) == 0:
		return "", 0, errors.New("it is empty")
	case len(bytes.Trim(data, "\x00")) == 0:
		return "", 0, fmt.Errorf("it holds nothing but %d NUL bytes", len(data))
	case !ended:
		return "", 0, fmt.Errorf("no newline at the end of %s", excerpt(data))
	}
	digits, ok := bytes.CutPrefix(text, []byte(namePrefix))
	if !ok || len(digits) == 0 || len(bytes.Trim(digits, "0123456789")) > 0 {
		return "", 0, fmt.Errorf("%s is not the name of a MANIFEST", excerpt(text))
	}
	number, err = strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("the number in %s is out of range", excerpt(text))
	}
	return string(text), number, nil
}

func excerpt(b []byte) string {
	const most = 40
	if len(b) > most {
		return fmt.Sprintf("%q and %d bytes more", b[:most], len(b)-most)
	}
	return strconv.Quote(string(b))
}
