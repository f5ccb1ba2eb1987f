package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const payloadBytes = 1 << 16

// filled is a region of the context with bytes that differ.
func filled(t *testing.T, context *copyrpc.Context) *copyrpc.Region {
	t.Helper()
	region, err := context.NewRegion(payloadBytes, 0)
	check(t, err)
	t.Cleanup(func() { closedAtLast(t, region) })
	for i := range region.Bytes() {
		region.Bytes()[i] = byte(i*7 + i/251)
	}
	return region
}

// closedAtLast closes a region; the device's completion of what was sent from it may be later than the answer.
func closedAtLast(t *testing.T, region *copyrpc.Region) {
	t.Helper()
	for {
		err := region.Close()
		if !errors.Is(err, copyrpc.ErrBusy) {
			check(t, err)
			return
		}
	}
}

func TestCallsFromARegion(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := limited(t)
	region := filled(t, p.clientContext)
	for _, part := range []copyrpc.Buffer{region.Slice(0, 0), region.Slice(5, 6), region.Slice(1, 2048), region.Slice(7, 40000),
		region.Slice(0, payloadBytes)} {
		reply, err := p.client.Do(ctx, copyrpc.Call{From: part, ReplyBytesMax: payloadBytes})
		check(t, err)
		if !bytes.Equal(reply, part.Bytes()) {
			t.Fatalf("the echo of %d bytes is not what was sent", part.Length)
		}
	}
	calls := make([]copyrpc.Call, 12)
	for i := range calls {
		calls[i] = copyrpc.Call{From: region.Slice(i*3000, (i+1)*3000), ReplyBytesMax: 3000}
	}
	calls[5] = copyrpc.Call{Request: []byte("small"), ReplyBytesMax: 3000}
	results, err := p.client.DoBatch(ctx, calls)
	check(t, err)
	for i, result := range results {
		check(t, result.Err)
		want := calls[i].Request
		if want == nil {
			want = calls[i].From.Bytes()
		}
		if !bytes.Equal(result.Reply, want) {
			t.Fatalf("reply %d is not what was sent", i)
		}
	}
}

func TestRepliesFromARegion(t *testing.T) {
	serving := openContext(t)
	region := filled(t, serving)
	listener, err := serving.Listen(host()+":0", patient()...)
	check(t, err)
	ended := make(chan error, 1)
	stopped, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		ended <- listener.Serve(stopped, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			bytes := int(request.Method)
			if err := request.ReplyBuffer(3, region.Slice(11, 11+bytes)); err != nil {
				return nil, err
			}
			return nil, nil
		})
	}()
	client, err := openContext(t).Dial(limited(t), listener.Address())
	check(t, err)
	defer client.Close()
	for _, size := range []int{0, 1, 2048, 30000, 60000} {
		_, err := client.Do(limited(t), copyrpc.Call{Method: uint16(size), ReplyBytesMax: 60000})
		var refused *copyrpc.ReplyError
		if !errors.As(err, &refused) || refused.Status != 3 || !bytes.Equal(refused.Payload, region.Bytes()[11:11+size]) {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	stop()
	<-ended
}

func TestWhatCannotBeSentFromARegion(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := limited(t)
	region, elsewhere := filled(t, p.clientContext), filled(t, openContext(t))
	for _, wrong := range []copyrpc.Call{
		{From: region.Slice(0, 5000), Request: []byte("x")},
		{From: region.Slice(0, 5000), After: true},
		{From: region.Slice(0, payloadBytes+1)},
		{From: region.Slice(-1, 5)},
		{From: region.Slice(6, 5)},
		{From: elsewhere.Slice(0, 5000)},
	} {
		_, err := p.client.Do(ctx, wrong)
		is(t, err, copyrpc.ErrInvalid)
		_, err = p.client.DoBatch(ctx, []copyrpc.Call{{Request: []byte("x")}, wrong})
		is(t, err, copyrpc.ErrInvalid)
	}
	own, err := p.clientContext.NewRegion(5000, 0)
	check(t, err)
	closedAtLast(t, own)
	_, err = p.client.Do(ctx, copyrpc.Call{From: own.Slice(0, 5000)})
	is(t, err, copyrpc.ErrClosed)
	_, err = p.client.Call(ctx, []byte("x"))
	check(t, err)
}

func TestRawRegion(t *testing.T) {
	p := newRawPair(t)
	memory := mapped(t, payloadBytes)
	for i := range memory {
		memory[i] = byte(i * 3)
	}
	region, err := p.client.Register(pointer(memory), len(memory), 0)
	check(t, err)
	check(t, p.client.PrepareRegion(region, p.to))
	is(t, p.client.PrepareRegion(region+1<<20, p.to), copyrpc.ErrStale)
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Flags: copyrpc.OpRegion, Endpoint: p.to, UserData: 9, PayloadOffset: 100,
		PayloadBytes: 50000, Region: region}
	_, status := p.client.Submit(1)
	wants(t, status, copyrpc.OK)
	request := p.next(t, p.server, copyrpc.CompletionRequest)
	if !bytes.Equal(request.View(), memory[100:50100]) {
		t.Fatalf("%d other bytes", len(request.View()))
	}
}
