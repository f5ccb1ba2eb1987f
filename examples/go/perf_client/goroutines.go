package main

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// timedOf: one call in so many is timed. C's client reads the clock once for each poll; here each call would need it twice, and
// that would be a quarter of all the work.
const timedOf = 8

// caller is one goroutine's part of the result.
type caller struct {
	latency         histogram
	answered, wrong int
	err             error
}

func measureGoroutines(address string) (*result, error) {
	c, err := copyrpc.Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx := context.Background()
	server, err := c.Dial(ctx, address, copyrpc.WithCallsMax(*depth), copyrpc.WithRingBytes(ringFor(*size)), copyrpc.WithReplyBytes(*size))
	if err != nil {
		return nil, err
	}
	callAll(ctx, server, limitsOf(true))
	before, _ := c.Stats()
	begun, processor := time.Now(), processorTime()
	sent, callers := callAll(ctx, server, limitsOf(false))
	took, used := time.Since(begun), processorTime()-processor
	after, _ := c.Stats()
	info, err := c.Info()
	if err != nil {
		return nil, err
	}
	r := &result{Device: info.Device, Driver: info.Driver, Seconds: took.Seconds(),
		MessagesPerBatch: float64(after.Calls-before.Calls) / float64(max(after.BatchesSent-before.BatchesSent, 1))}
	var latency histogram
	for i := range callers {
		if callers[i].err != nil {
			return nil, callers[i].err
		}
		r.Calls += callers[i].answered
		r.Wrong += callers[i].wrong
		latency.add(&callers[i].latency)
	}
	r.Lost, r.LatencyNs, r.ProcessorNs = sent-r.Calls, latency.summary(), float64(used)/float64(max(r.Calls, 1))
	return r, server.Shutdown(ctx)
}

func callAll(ctx context.Context, server *copyrpc.Endpoint, limit limits) (int, []caller) {
	callers := make([]caller, *depth)
	var sent atomic.Int64
	var over atomic.Bool
	if !limit.until.IsZero() {
		defer time.AfterFunc(time.Until(limit.until), func() { over.Store(true) }).Stop()
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Add(1)
		go func(own *caller, number uint32) {
			defer all.Done()
			request := make([]byte, *size)
			binary.LittleEndian.PutUint32(request, number)
			for turn := number; !over.Load() && own.err == nil; turn++ {
				if n := sent.Add(1); limit.calls > 0 && n > int64(limit.calls) {
					sent.Add(-1)
					return
				}
				var begun time.Time
				if turn%timedOf == 0 {
					begun = time.Now()
				}
				reply, err := server.Call(ctx, request)
				switch {
				case err != nil:
					own.err = err
				case len(reply) != *size || binary.LittleEndian.Uint32(reply) != number:
					own.wrong++
				default:
					own.answered++
					if turn%timedOf == 0 {
						own.latency.record(time.Since(begun))
					}
				}
			}
		}(&callers[i], uint32(i))
	}
	all.Wait()
	return int(sent.Load()), callers
}
