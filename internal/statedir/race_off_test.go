//go:build !race

package statedir

const raceDetector = false
