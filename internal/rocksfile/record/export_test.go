package record

// SetMaxRecord makes the bound small enough to be met quickly.
func (r *Reader) SetMaxRecord(n int) { r.maxRecord = n }
