package sst

// HasDictionary says whether the file has a compression dictionary.
func (t *Table) HasDictionary() bool { return t.dict.size > 0 }
