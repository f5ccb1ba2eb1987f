package main

import (
	"math"
	"math/bits"
	"time"
)

// histogram has 64 bins for each doubling of the latency: 1.6 % at most.
type histogram struct {
	bins  [64 * 40]int
	count int
	max   time.Duration
}

func binOf(latency time.Duration) int {
	ns := uint64(max(latency, 64))
	doublings := bits.Len64(ns) - 7
	return 64*doublings + int(ns>>doublings) - 64
}

// endOf is where a bin ends.
func endOf(bin int) int { return (bin%64 + 65) << (bin / 64) }

func (h *histogram) record(latency time.Duration) {
	h.bins[min(binOf(latency), len(h.bins)-1)]++
	h.count++
	h.max = max(h.max, latency)
}

func (h *histogram) add(other *histogram) {
	for i, n := range other.bins {
		h.bins[i] += n
	}
	h.count += other.count
	h.max = max(h.max, other.max)
}

func (h *histogram) percentile(percent float64) int {
	wanted, seen := int(math.Ceil(float64(h.count)*percent/100)), 0
	for bin, n := range h.bins {
		if seen += n; seen >= wanted {
			return min(endOf(bin), int(h.max))
		}
	}
	return int(h.max)
}

func (h *histogram) summary() map[string]int {
	return map[string]int{"p50": h.percentile(50), "p90": h.percentile(90), "p99": h.percentile(99),
		"p99.9": h.percentile(99.9), "max": int(h.max)}
}
