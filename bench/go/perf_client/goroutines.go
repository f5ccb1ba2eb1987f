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

// caller is one goroutine's part of the result. Small: a thousand of these are in use at once, and what they touch for each call
// is taken from the cache that the calls themselves need. For the same reason nothing that all write is written for each call.
type caller struct {
	sent, answered, wrong int
	err                   error
	_                     [64 - 5*8]byte // a cache line of its own
}

// latencies are the histograms of all callers: few, because one is 20 KB, and more than one, because they have locks.
type latencies [8]struct {
	mutex sync.Mutex
	histogram
}

func (l *latencies) record(number uint32, latency time.Duration) {
	own := &l[number%uint32(len(l))]
	own.mutex.Lock()
	own.record(latency)
	own.mutex.Unlock()
}

func measureGoroutines(address string) (*result, error) {
	c, err := copyrpc.Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx := context.Background()
	server, err := c.Dial(ctx, address, copyrpc.WithCallsMax(*depth), copyrpc.WithRingBytes(ringFor(*size)), copyrpc.WithPeerRingBytesMax(64<<20), copyrpc.WithReplyBytes(*size))
	if err != nil {
		return nil, err
	}
	var latency latencies
	callAll(ctx, server, limitsOf(true), &latency)
	latency = latencies{}
	before, _ := c.Stats()
	begun, processor := time.Now(), processorTime()
	callers := callAll(ctx, server, limitsOf(false), &latency)
	took, used := time.Since(begun), processorTime()-processor
	after, _ := c.Stats()
	info, err := c.Info()
	if err != nil {
		return nil, err
	}
	r := &result{Device: info.Device, Driver: info.Driver, Seconds: took.Seconds(),
		MessagesPerBatch: float64(after.Calls-before.Calls) / float64(max(after.BatchesSent-before.BatchesSent, 1))}
	for i := range callers {
		if callers[i].err != nil {
			return nil, callers[i].err
		}
		r.Calls += callers[i].answered
		r.Lost += callers[i].sent - callers[i].answered
		r.Wrong += callers[i].wrong
	}
	var all histogram
	for i := range latency {
		all.add(&latency[i].histogram)
	}
	r.LatencyNs, r.ProcessorNs = all.summary(), float64(used)/float64(max(r.Calls, 1))
	return r, server.Shutdown(ctx)
}

// callAll has as many goroutines call as calls are to be open. The clock is looked at by those that time a call: a timer, while
// one runs, costs each switch of goroutines a look at the clock.
func callAll(ctx context.Context, server *copyrpc.Endpoint, limit limits, latency *latencies) []caller {
	callers := make([]caller, *depth)
	var begunCalls atomic.Int64 // where there is a limit
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range callers {
		all.Add(1)
		go func(own *caller, number uint32) {
			defer all.Done()
			request := make([]byte, *size)
			binary.LittleEndian.PutUint32(request, number)
			for turn := number; !over.Load() && own.err == nil; turn++ {
				if limit.calls > 0 && begunCalls.Add(1) > int64(limit.calls) {
					return
				}
				var begun time.Time
				if turn%timedOf == 0 {
					begun = time.Now()
					if !limit.until.IsZero() && begun.After(limit.until) {
						over.Store(true)
						return
					}
				}
				own.sent++
				reply, err := server.Call(ctx, request)
				switch {
				case err != nil:
					own.err = err
				case len(reply) != *size || binary.LittleEndian.Uint32(reply) != number:
					own.wrong++
				default:
					own.answered++
					if turn%timedOf == 0 {
						latency.record(number, time.Since(begun))
					}
				}
			}
		}(&callers[i], uint32(i))
	}
	all.Wait()
	return callers
}
