//go:build race

package statedir

const raceDetector = true
