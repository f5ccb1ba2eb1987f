package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const pollCompletions = 64 // fewer than the depth, so that calls go out while answers still come in

// client keeps its calls by slots: a call is known by its slot, which is its user data, and its request begins with the
// slot's number, for which the echo is checked.
type client struct {
	raw      *copyrpc.RawContext
	server   copyrpc.EndpointHandle
	free     []uint32
	started  []time.Time
	latency  *histogram
	sent     int
	answered int
	wrong    int
	failed   error
}

func measureRaw(address string) (*result, error) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{Ops: *depth, Completions: pollCompletions, PayloadBytes: *depth * *size})
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	c := &client{raw: raw, started: make([]time.Time, *depth), latency: &histogram{}}
	if err := c.connect(address); err != nil {
		return nil, err
	}
	for slot := *depth - 1; slot >= 0; slot-- {
		c.free = append(c.free, uint32(slot))
		binary.LittleEndian.PutUint32(raw.Payload[slot**size:], uint32(slot))
	}
	c.run(limitsOf(true))
	c.latency, c.sent, c.answered = &histogram{}, 0, 0
	before, _ := raw.Stats()
	begun, processor := time.Now(), processorTime()
	c.run(limitsOf(false))
	took, used := time.Since(begun), processorTime()-processor
	after, _ := raw.Stats()
	if c.failed != nil {
		return nil, c.failed
	}
	info, err := raw.Info()
	if err != nil {
		return nil, err
	}
	return &result{
		Device: info.Device, Driver: info.Driver, Calls: c.answered, Lost: c.sent - c.answered, Wrong: c.wrong,
		Seconds:          took.Seconds(),
		MessagesPerBatch: float64(after.Calls-before.Calls) / float64(max(after.BatchesSent-before.BatchesSent, 1)),
		ProcessorNs:      float64(used) / float64(max(c.answered, 1)), LatencyNs: c.latency.summary(),
	}, c.leave()
}

func (c *client) connect(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	if c.server, err = c.raw.Connect(address, 0, copyrpc.WithCallsMax(*depth), copyrpc.WithRingBytes(ringFor(*size)), copyrpc.WithPeerRingBytesMax(64<<20)); err != nil {
		return err
	}
	done, err := c.next(ctx)
	if err == nil && done.Status != 0 {
		err = c.raw.EndpointError(c.server)
	}
	return err
}

func (c *client) next(ctx context.Context) (*copyrpc.Completion, error) {
	for {
		if count, status := c.raw.Poll(); status != copyrpc.OK {
			return nil, status
		} else if count > 0 {
			return &c.raw.Completions[0], nil
		}
		if err := c.raw.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *client) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := c.raw.Disconnect(c.server, 2*time.Second); err != nil {
		return err
	}
	for {
		done, err := c.next(ctx)
		if err != nil || done.Kind == copyrpc.CompletionDisconnected {
			return err
		}
	}
}

// run makes calls until the limit, then waits for those that are open.
func (c *client) run(limit limits) {
	now := time.Now()
	for c.failed == nil && (limit.calls == 0 || c.sent < limit.calls) && (limit.until.IsZero() || now.Before(limit.until)) {
		most := len(c.free)
		if limit.calls > 0 {
			most = min(most, limit.calls-c.sent)
		}
		if most > 0 {
			c.send(most, now)
		}
		if c.take() == 0 && *wait {
			c.raw.Wait(context.Background())
		}
		now = time.Now()
	}
	for c.failed == nil && len(c.free) < *depth {
		if c.take() == 0 && *wait {
			c.raw.Wait(context.Background())
		}
	}
}

func (c *client) send(count int, now time.Time) {
	for i := 0; i < count; i++ {
		slot := c.free[len(c.free)-1-i]
		c.raw.Ops[i] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: c.server, UserData: uint64(slot),
			PayloadOffset: uint64(int(slot) * *size), PayloadBytes: uint32(*size), ReplyBytesMax: uint32(*size)}
		c.started[slot] = now
	}
	taken, status := c.raw.Submit(count)
	if status != copyrpc.OK && status != copyrpc.ErrAgain {
		c.failed = status
		if why := c.raw.EndpointError(c.server); why != nil {
			c.failed = why
		}
	}
	c.free = c.free[:len(c.free)-taken]
	c.sent += taken
}

func (c *client) take() int {
	count, _ := c.raw.Poll()
	if count == 0 {
		return 0
	}
	now := time.Now()
	for i := range c.raw.Completions[:count] {
		done := &c.raw.Completions[i]
		switch {
		case done.Kind == copyrpc.CompletionDisconnected:
			c.failed = fmt.Errorf("the connection was lost: %w", c.raw.EndpointError(c.server))
		case done.Kind != copyrpc.CompletionResponse:
		case done.Status != 0:
			c.failed = fmt.Errorf("a call failed with %s", copyrpc.Status(done.Status).Name())
		default:
			c.free = append(c.free, uint32(done.UserData))
			echo := done.View()
			if len(echo) != *size || binary.LittleEndian.Uint32(echo) != uint32(done.UserData) {
				c.wrong++
				break
			}
			c.answered++
			c.latency.record(now.Sub(c.started[done.UserData]))
		}
	}
	return count
}
