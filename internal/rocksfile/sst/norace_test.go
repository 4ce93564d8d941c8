//go:build !race

package sst

// RaceDetector makes some tests do less: it slows them down tenfold.
const RaceDetector = false
