package metrics

// MirroredNames lists the metrics that the writer of this package renders.
func MirroredNames() []string {
	out := make([]string, len(families))
	for i := range families {
		out[i] = families[i].name
	}
	return out
}
