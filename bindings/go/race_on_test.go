//go:build race

package copyrpc_test

// The race detector's shadow memory grows with what was ever touched, so the resident memory says nothing.
const raceDetector = true
