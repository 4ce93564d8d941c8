//go:build !race

package rockstest

// Race says that the race detector is on: everything takes ten times as long.
const Race = false
