// grpc_go is gRPC's peer in Go: it makes the calls that copyrpc-perf makes, over TCP.
//
//	grpc_go server|client HOST PORT [--size BYTES] [--depth CALLS] [--connections N] [--time SECONDS | --calls N] [--warmup SECONDS]
//
// The command line and the line of JSON are those of bench/peers/peer.h. A call is unary, and its message is the payload itself: a
// codec that neither encodes nor copies takes the place of protobuf, which would only add to it. A goroutine makes one call after
// the other for each that is to be open.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var (
	words       = flag.NewFlagSet("grpc_go", flag.ExitOnError)
	size        = words.Int("size", 32, "bytes of a request, which the server echoes")
	depth       = words.Int("depth", 1, "calls open on each connection")
	connections = words.Int("connections", 1, "connections")
	seconds     = words.Float64("time", 1, "how long to measure")
	count       = words.Int("calls", 0, "how many calls to measure, instead of a time")
	warmup      = words.Float64("warmup", 0.1, "seconds of calls before the measurement")
)

// report is the line of JSON.
type report struct {
	Peer           string           `json:"peer"`
	Version        string           `json:"version"`
	Size           int              `json:"size"`
	Depth          int              `json:"depth"`
	Connections    int              `json:"connections"`
	Calls          int              `json:"calls"`
	Lost           int              `json:"lost"`
	Wrong          int              `json:"wrong"`
	Seconds        float64          `json:"seconds"`
	CallsPerSecond float64          `json:"calls_per_second"`
	LatencyNs      map[string]int64 `json:"latency_ns"`
}

func run() error {
	if len(os.Args) < 4 {
		return errors.New("usage: grpc_go server|client HOST PORT [OPTIONS]")
	}
	if err := words.Parse(os.Args[4:]); err != nil {
		return err
	}
	if *size < 4 || *depth < 1 || *connections < 1 || *seconds <= 0 || *count < 0 {
		return errors.New("a number is out of its range")
	}
	switch os.Args[1] {
	case "server":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		return serve(os.Args[2]+":"+os.Args[3], stop)
	case "client":
		result, err := measure(os.Args[2] + ":" + os.Args[3])
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			return err
		}
		if result.Wrong+result.Lost > 0 || result.Calls == 0 {
			return errors.New("replies were lost or wrong")
		}
		return nil
	}
	return errors.New("neither server nor client")
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "grpc_go:", err)
		os.Exit(1)
	}
}

// until is when a run is over: at a time, or after so many calls.
type until struct {
	end   time.Time
	calls int
}
