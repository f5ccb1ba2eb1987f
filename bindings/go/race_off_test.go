//go:build !race

package copyrpc_test

const raceDetector = false
