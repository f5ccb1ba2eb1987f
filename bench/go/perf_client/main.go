// perf_client is copyrpc-perf's client in Go: it keeps calls open and takes the time of each.
//
//	perf_client [-s BYTES] [-q CALLS] [-t SECONDS | -n COUNT] [-goroutines] [-wait] [-json] ADDRESS
//
// It does what tools/perf/client.c does, the same way: one goroutine on the raw arrays. With -goroutines, as many goroutines
// as calls are to be open each make one call at a time with Endpoint.Call.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/copyrpc/copyrpc/examples/go/options"
)

var (
	size       = flag.Int("s", 32, "bytes of a request, which the server echoes")
	depth      = flag.Int("q", 256, "calls open at a time")
	seconds    = flag.Float64("t", 3, "how long to measure")
	count      = flag.Int("n", 0, "how many calls to measure, instead of a time")
	warmup     = flag.Float64("warmup", 0.2, "seconds of calls before the measurement")
	goroutines = flag.Bool("goroutines", false, "a goroutine for each open call, instead of the raw arrays")
	wait       = flag.Bool("wait", false, "sleep for events instead of polling on (the raw arrays)")
	asJSON     = flag.Bool("json", false, "print the result as JSON")
)

// result is what copyrpc-perf's JSON says, as far as it makes sense here.
type result struct {
	Device           string         `json:"device"`
	Driver           string         `json:"driver"`
	RequestBytes     int            `json:"request_bytes"`
	ReplyBytes       int            `json:"reply_bytes"`
	Depth            int            `json:"depth"`
	Endpoints        int            `json:"endpoints"`
	Wait             bool           `json:"wait"`
	Goroutines       bool           `json:"goroutines"`
	Calls            int            `json:"calls"`
	Lost             int            `json:"lost"`
	Wrong            int            `json:"wrong"`
	Seconds          float64        `json:"seconds"`
	CallsPerSecond   float64        `json:"calls_per_second"`
	MessagesPerBatch float64        `json:"messages_per_batch"`
	ProcessorNs      float64        `json:"processor_ns_per_call"` // of this process, its virtual NIC included
	LatencyNs        map[string]int `json:"latency_ns"`
}

// limits say when a run is over.
type limits struct {
	until time.Time // zero: when `calls` were made
	calls int
}

func main() {
	options.Parse("ADDRESS, with -s 4 to 1048576, -q 1 to 65536")
	if flag.NArg() != 1 || *size < 4 || *size > 1<<20 || *depth < 1 || *depth > 65536 || *seconds <= 0 || *count < 0 || *warmup < 0 {
		flag.Usage()
		os.Exit(2)
	}
	measure := measureRaw
	if *goroutines {
		measure = measureGoroutines
	}
	r, err := measure(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "perf_client:", err)
		os.Exit(1)
	}
	r.RequestBytes, r.ReplyBytes, r.Depth, r.Endpoints, r.Wait, r.Goroutines = *size, *size, *depth, 1, *wait, *goroutines
	r.CallsPerSecond = float64(r.Calls) / r.Seconds
	if *asJSON {
		text, _ := json.MarshalIndent(r, "", "  ")
		fmt.Println(string(text))
	} else {
		fmt.Printf("%s on %s: %d calls of %d B open\n  rate     %.0f calls/s (%d in %.2f s, %d lost)\n  latency  p50 %v  p99 %v\n",
			r.Driver, r.Device, r.Depth, r.RequestBytes, r.CallsPerSecond, r.Calls, r.Seconds, r.Lost,
			time.Duration(r.LatencyNs["p50"]), time.Duration(r.LatencyNs["p99"]))
	}
	if r.Lost+r.Wrong > 0 || r.Calls == 0 {
		os.Exit(1)
	}
}

// limitsOf says when the measurement is over, or the warm-up, which lasts a time in any case.
func limitsOf(warm bool) limits {
	switch {
	case warm:
		return limits{until: time.Now().Add(time.Duration(*warmup * 1e9))}
	case *count > 0:
		return limits{calls: *count}
	}
	return limits{until: time.Now().Add(time.Duration(*seconds * 1e9))}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func ringFor(bytes int) int {
	ring := 1 << 20
	for ring < 8*(bytes+64) || ring < 4*(*depth)*(bytes+64) && ring < 1<<22 {
		ring *= 2
	}
	return ring
}
