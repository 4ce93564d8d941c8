package sst

import "testing"

// HasDictionary says whether the file has a compression dictionary.
func (t *Table) HasDictionary() bool { return t.dict.size > 0 }

// FooterSize gives it in bytes.
func (t *Table) FooterSize() int {
	if t.foot.version == 0 {
		return legacyFooterLen
	}
	return footerLen
}

// DataBlocks gives where each begins and where its trailer ends.
func (t *Table) DataBlocks(tb testing.TB) (blocks [][2]uint64) {
	tb.Helper()
	s := getScratch()
	defer s.put()
	err := t.walkIndex(s, nil, func(h handle) error {
		blocks = append(blocks, [2]uint64{h.offset, h.end()})
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return blocks
}
