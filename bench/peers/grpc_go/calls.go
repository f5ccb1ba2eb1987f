package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	method = "/peer.Echo/Call"
	// Larger payloads are all the same, and not numbered: as with copyrpc-perf.
	numberedBytesMax = 64 << 10
	// The windows of HTTP/2 begin with 64 KiB, and grow by what is measured. Some MiB from the start spare the large calls the waiting.
	streamWindow, connectionWindow = 4 << 20, 64 << 20
)

// message is what is sent, or has arrived: not one byte is copied here.
type message struct{ data mem.BufferSlice }

type codec struct{}

func (codec) Name() string { return "raw" }

func (codec) Marshal(v any) (mem.BufferSlice, error) { return v.(*message).data, nil }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*message).data = data
	return nil
}

func serve(address string, stop <-chan os.Signal) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow))
	echo := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(message)
		err := decode(request)
		return request, err // gRPC frees the reply's buffers when they have been sent
	}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "peer.Echo", Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: echo}}}, nil)
	go func() {
		<-stop
		server.Stop()
	}()
	os.Stdout.WriteString("listening on " + address + "\n")
	return server.Serve(listener)
}

// caller is what one goroutine has done.
type caller struct {
	answered, wrong int
	latencies       []time.Duration
	err             error
}

func (c *caller) call(connection *grpc.ClientConn, request []byte, number uint32) {
	begun := time.Now()
	var reply message
	if c.err = connection.Invoke(context.Background(), method, &message{mem.BufferSlice{mem.SliceBuffer(request)}}, &reply); c.err != nil {
		return
	}
	c.latencies = append(c.latencies, time.Since(begun))
	c.answered++
	var first [4]byte
	n := 0
	for _, piece := range reply.data {
		if n += copy(first[n:], piece.ReadOnlyData()); n == len(first) {
			break
		}
	}
	if reply.data.Len() != *size || *size <= numberedBytesMax && binary.LittleEndian.Uint32(first[:]) != number {
		c.wrong++
	}
	reply.data.Free()
}

// callAll has a goroutine for each call that is to be open, until the run is over and all are answered.
func callAll(pool []*grpc.ClientConn, requests [][]byte, limit until) []caller {
	callers := make([]caller, len(requests))
	var begun atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Add(1)
		go func(own *caller, number int) {
			defer all.Done()
			for own.err == nil && (limit.calls == 0 || begun.Add(1) <= int64(limit.calls)) {
				own.call(pool[number%len(pool)], requests[number], uint32(number))
				if !limit.end.IsZero() && time.Now().After(limit.end) { // after a call: so that as many are open as there are callers
					return
				}
			}
		}(&callers[i], i)
	}
	all.Wait()
	return callers
}

func measure(address string) (*report, error) {
	pool := make([]*grpc.ClientConn, *connections)
	for i := range pool {
		connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})), grpc.WithInitialWindowSize(streamWindow),
			grpc.WithInitialConnWindowSize(connectionWindow))
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		pool[i] = connection
	}
	requests := make([][]byte, *depth**connections)
	shared := make([]byte, *size)
	for i := range requests {
		requests[i] = shared
		if *size <= numberedBytesMax {
			requests[i] = make([]byte, *size)
			binary.LittleEndian.PutUint32(requests[i], uint32(i))
		}
	}
	callAll(pool, requests, until{calls: len(requests)}) // by then all are connected
	if *warmup > 0 {
		callAll(pool, requests, until{end: time.Now().Add(time.Duration(*warmup * 1e9))})
	}
	limit := until{calls: *count}
	if *count == 0 {
		limit.end = time.Now().Add(time.Duration(*seconds * 1e9))
	}
	begun := time.Now()
	callers := callAll(pool, requests, limit)
	return reportOf(callers, time.Since(begun))
}

func reportOf(callers []caller, took time.Duration) (*report, error) {
	r := &report{Peer: "grpc_go", Version: grpc.Version, Size: *size, Depth: *depth, Connections: *connections, Seconds: took.Seconds()}
	var latencies []time.Duration
	for i := range callers {
		if callers[i].err != nil {
			return nil, callers[i].err
		}
		r.Calls += callers[i].answered
		r.Wrong += callers[i].wrong
		latencies = append(latencies, callers[i].latencies...)
	}
	if len(latencies) == 0 {
		return nil, errors.New("no call was answered")
	}
	slices.Sort(latencies)
	at := func(percent int) int64 { return int64(latencies[(len(latencies)-1)*percent/100]) }
	r.LatencyNs = map[string]int64{"p50": at(50), "p99": at(99), "max": at(100)}
	r.CallsPerSecond = float64(r.Calls) / r.Seconds
	return r, nil
}
