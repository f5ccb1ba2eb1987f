package copyrpc_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const placeBytes = 1 << 14

// lent is an arena of the server's for its peer, which has heard of it.
func lent(t *testing.T, p *pair, places int) *copyrpc.Region {
	t.Helper()
	region, err := p.serverContext.NewRegion(places*placeBytes, copyrpc.LocalWrite)
	check(t, err)
	check(t, p.server.Lend(region.Slice(0, places*placeBytes), placeBytes))
	return region
}

func TestRequestsLandInAnArena(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	arena := lent(t, p, 2)
	var mutex sync.Mutex // of both:
	placed, kept := 0, []*copyrpc.Request{}
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		mutex.Lock()
		defer mutex.Unlock()
		if request.Placed() {
			placed++
			if len(kept) < 1 && request.Method == 7 {
				request.Keep()
				kept = append(kept, request)
			}
		}
		return append([]byte{}, request.Payload...), nil
	})
	region := filled(t, p.clientContext)
	for i := 0; i < 40; i++ {
		part := region.Slice(i, i+3000)
		reply, err := p.client.Do(ctx, copyrpc.Call{Method: uint16(i), From: part, ReplyBytesMax: 3000})
		check(t, err)
		if !bytes.Equal(reply, part.Bytes()) {
			t.Fatalf("call %d: the echo is not what was sent", i)
		}
	}
	mutex.Lock()
	defer mutex.Unlock()
	if placed < 30 || len(kept) != 1 {
		t.Fatalf("%d of 40 requests were placed, %d kept", placed, len(kept))
	}
	if !bytes.Equal(kept[0].Payload, region.Slice(7, 3007).Bytes()) {
		t.Fatal("what was kept has changed")
	}
	is(t, arena.Close(), copyrpc.ErrBusy)
	kept[0].Release()
	kept[0].Release()
}

func TestReceivedRequestsStay(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	lent(t, p, 1)
	region := filled(t, p.clientContext)
	for i := 0; i < 5; i++ { // the client hears of the arena with the first answer
		done := make(chan error, 1)
		go func() {
			_, err := p.client.Do(ctx, copyrpc.Call{From: region.Slice(i, i+5000)})
			done <- err
		}()
		request, err := p.server.Receive(ctx)
		check(t, err)
		if i > 0 && !request.Placed() {
			t.Fatalf("request %d is not in the arena", i)
		}
		if !bytes.Equal(request.Payload, region.Slice(i, i+5000).Bytes()) {
			t.Fatalf("request %d is not what was sent", i)
		}
		request.Release()
		check(t, request.Reply(nil))
		check(t, <-done)
	}
}

func TestARequestLongerThanTheRing(t *testing.T) {
	p := newPair(t, copyrpc.WithRingBytes(1<<16))
	ctx := limited(t)
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return append([]byte{}, request.Payload[len(request.Payload)-8:]...), nil
	})
	source, err := p.clientContext.NewRegion(100_000, 0)
	check(t, err)
	copy(source.Bytes()[100_000-8:], "the last")
	_, err = p.client.Do(ctx, copyrpc.Call{From: source.Slice(0, 100_000)})
	is(t, err, copyrpc.ErrTooBig)
	region, err := p.serverContext.NewRegion(100_000, copyrpc.LocalWrite)
	check(t, err)
	check(t, p.server.Lend(region.Slice(0, 100_000), 100_000))
	_, err = p.client.Do(ctx, copyrpc.Call{Request: make([]byte, 8)}) // by the answer, the client has heard of the arena
	check(t, err)
	call := copyrpc.Call{From: source.Slice(0, 100_000)}
	reply, err := p.client.Do(ctx, call)
	check(t, err)
	results, err := p.client.DoBatch(ctx, []copyrpc.Call{call, call})
	check(t, err)
	for _, result := range append(results, copyrpc.Result{Reply: reply}) {
		check(t, result.Err)
		if string(result.Reply) != "the last" {
			t.Fatalf("the payload ends in %q", result.Reply)
		}
	}
	_, err = p.client.Do(ctx, copyrpc.Call{Request: make([]byte, 100_000)})
	is(t, err, copyrpc.ErrTooBig)
}

func TestRepliesLandInAnArena(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	memory, err := p.clientContext.NewRegion(2*placeBytes, copyrpc.LocalWrite)
	check(t, err)
	check(t, p.client.Lend(memory.Slice(0, 2*placeBytes), placeBytes))
	region := filled(t, p.serverContext)
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return nil, request.ReplyBuffer(0, region.Slice(int(request.Method), int(request.Method)+placeBytes))
	})
	for i := 0; i < 30; i++ {
		reply, err := p.client.Do(ctx, copyrpc.Call{Method: uint16(i), ReplyBytesMax: placeBytes})
		check(t, err)
		if !bytes.Equal(reply, region.Slice(i, i+placeBytes).Bytes()) {
			t.Fatalf("reply %d is not what was sent", i)
		}
	}
}

func TestLendingWhatCannotBe(t *testing.T) {
	p := newPair(t)
	region, err := p.serverContext.NewRegion(4*placeBytes, copyrpc.LocalWrite)
	check(t, err)
	other := filled(t, p.serverContext) // nobody may write there
	is(t, p.server.Lend(copyrpc.Buffer{}, 16), copyrpc.ErrInvalid)
	is(t, p.server.Lend(region.Slice(0, placeBytes), 0), copyrpc.ErrInvalid)
	is(t, p.server.Lend(region.Slice(0, placeBytes), 24), copyrpc.ErrInvalid)
	is(t, p.server.Lend(region.Slice(0, placeBytes), 2*placeBytes), copyrpc.ErrInvalid)
	is(t, p.server.Lend(region.Slice(0, 4*placeBytes), 16), copyrpc.ErrInvalid)
	is(t, p.server.Lend(other.Slice(0, placeBytes), placeBytes), copyrpc.ErrInvalid)
	is(t, p.client.Lend(region.Slice(0, placeBytes), placeBytes), copyrpc.ErrInvalid)
	check(t, p.server.Lend(region.Slice(0, placeBytes), placeBytes))
	is(t, p.server.Lend(region.Slice(0, placeBytes), placeBytes), copyrpc.ErrState)
	is(t, region.Close(), copyrpc.ErrBusy)
	check(t, p.server.Close())
	closedAtLast(t, region)
}
