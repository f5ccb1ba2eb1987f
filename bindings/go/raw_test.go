package copyrpc_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// rawPair is two contexts driven by hand, connected.
type rawPair struct {
	client, server *copyrpc.RawContext
	to, from       copyrpc.EndpointHandle // the client's and the server's
}

func newRawPair(t testing.TB, options ...copyrpc.Option) *rawPair {
	p := &rawPair{}
	options = patient(append(options, copyrpc.WithRingBytes(1<<22), copyrpc.WithFullSize())...) // some tests poll one side alone
	var err error
	p.client, err = copyrpc.OpenRaw(copyrpc.RawSizes{})
	check(t, err)
	t.Cleanup(func() { p.client.Close() })
	p.server, err = copyrpc.OpenRaw(copyrpc.RawSizes{})
	check(t, err)
	t.Cleanup(func() { p.server.Close() })
	listener, err := p.server.Listen(host()+":0", 5)
	check(t, err)
	address, err := p.server.ListenerAddress(listener)
	check(t, err)
	p.to, err = p.client.Connect(address, 7, options...)
	check(t, err)
	// Both sides must poll for a connection to come about: each has a goroutine of its own.
	accepted := make(chan copyrpc.Completion, 1)
	go func() {
		defer close(accepted)
		p.from = p.next(t, p.server, copyrpc.CompletionConnectRequest).Endpoint
		if err := p.server.Accept(p.from, 9, options...); err == nil {
			accepted <- p.next(t, p.server, copyrpc.CompletionConnected)
		}
	}()
	if done := p.next(t, p.client, copyrpc.CompletionConnected); done.EndpointUserData != 7 || done.Status != 0 {
		t.Fatalf("%+v", done)
	}
	if done := <-accepted; done.EndpointUserData != 9 || done.Status != 0 {
		t.Fatalf("%+v", done)
	}
	return p
}

// next polls one completion, which must be of that kind.
func (p *rawPair) next(t testing.TB, r *copyrpc.RawContext, kind uint8) copyrpc.Completion {
	t.Helper()
	for {
		count, status := r.Poll()
		if status != copyrpc.OK || count > 1 {
			t.Fatalf("%d completions, %s", count, status.Name())
		}
		if count == 1 {
			if r.Completions[0].Kind != kind {
				t.Fatalf("%+v is not of kind %d", r.Completions[0], kind)
			}
			return r.Completions[0]
		}
		check(t, r.Wait(limited(t)))
	}
}

// echoAll answers all requests of a poll with one submit.
func (p *rawPair) echoAll(t testing.TB) {
	count, _ := p.server.Poll()
	replies, offset := 0, 0
	for i := 0; i < count; i++ {
		request := &p.server.Completions[i]
		if request.Kind != copyrpc.CompletionRequest {
			continue
		}
		p.server.Ops[replies] = copyrpc.Op{Opcode: copyrpc.OpReply, Flags: copyrpc.OpQuiet, Endpoint: request.Endpoint,
			Token: request.Token, PayloadOffset: uint64(offset), PayloadBytes: request.PayloadBytes}
		offset += copy(p.server.Payload[offset:], request.View())
		replies++
	}
	if taken, status := p.server.Submit(replies); taken != replies {
		t.Fatalf("%d of %d replies taken: %s", taken, replies, status.Name())
	}
}

func TestRawBatch(t *testing.T) {
	p := newRawPair(t)
	const count = 256
	for round := 0; round < 20; round++ {
		for i := 0; i < count; i++ {
			p.client.Payload[i*8] = byte(i + round)
			p.client.Ops[i] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, UserData: uint64(i),
				PayloadOffset: uint64(i * 8), PayloadBytes: 8, ReplyBytesMax: 8}
		}
		if taken, status := p.client.Submit(count); taken != count {
			t.Fatalf("%d taken: %s", taken, status.Name())
		}
		answered := map[uint64]bool{}
		for begun := time.Now(); len(answered) < count; {
			p.echoAll(t)
			polled, _ := p.client.Poll()
			for i := 0; i < polled; i++ {
				done := &p.client.Completions[i]
				if done.Kind != copyrpc.CompletionResponse || done.Status != 0 || done.View()[0] != byte(int(done.UserData)+round) {
					t.Fatalf("%+v", done)
				}
				answered[done.UserData] = true
			}
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("%d answered", len(answered))
			}
		}
	}
}

func TestRawNeverAllocates(t *testing.T) {
	p := newRawPair(t)
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, PayloadBytes: 8, ReplyBytesMax: 8}
	per := testing.AllocsPerRun(100, func() {
		p.client.Submit(1)
		for {
			p.echoAll(t)
			if count, _ := p.client.Poll(); count == 1 {
				return
			}
		}
	})
	if per != 0 {
		t.Fatalf("%v allocations a call", per)
	}
}

func TestRawBadInput(t *testing.T) {
	p := newRawPair(t)
	reason := func(op copyrpc.Op) copyrpc.Status {
		p.client.Ops[0] = op
		taken, status := p.client.Submit(1)
		if taken != 0 {
			t.Fatalf("%+v was taken", op)
		}
		return status
	}
	for _, wrong := range []struct {
		op     copyrpc.Op
		status copyrpc.Status
	}{
		{copyrpc.Op{Opcode: copyrpc.OpCall}, copyrpc.ErrStale}, // the zero handle
		{copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to + 1<<40}, copyrpc.ErrStale},
		{copyrpc.Op{Endpoint: p.to}, copyrpc.ErrUnsupported},
		{copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, PayloadOffset: 1 << 40, PayloadBytes: 1}, copyrpc.ErrInvalid},
		{copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, Token: 1}, copyrpc.ErrInvalid},
		{copyrpc.Op{Opcode: copyrpc.OpReply, Endpoint: p.to, Token: 12345}, copyrpc.ErrStale},
		{copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, ReplyBytesMax: 1 << 30}, copyrpc.ErrTooBig},
	} {
		if status := reason(wrong.op); status != wrong.status {
			t.Errorf("%+v: %s, not %s", wrong.op, status.Name(), wrong.status.Name())
		}
	}
	if _, status := p.client.Submit(257); status != copyrpc.ErrInvalid {
		t.Fatalf("more ops than there are: %s", status.Name())
	}
	if _, status := p.client.Submit(-1); status != copyrpc.ErrInvalid {
		t.Fatalf("-1 ops: %s", status.Name())
	}
	is(t, p.client.Disconnect(p.to, -1), copyrpc.ErrInvalid)
	is(t, p.client.Disconnect(0, 0), copyrpc.ErrStale)
	is(t, p.client.CloseEndpoint(0), copyrpc.ErrStale)
	is(t, p.client.CloseListener(0), copyrpc.ErrStale)
	_, err := p.client.ListenerAddress(0)
	is(t, err, copyrpc.ErrStale)
	is(t, p.client.Reject(p.to, 1), copyrpc.ErrState)
	is(t, p.client.Accept(0, 1), copyrpc.ErrStale)
	_, err = p.client.EndpointInfo(0)
	is(t, err, copyrpc.ErrStale)
	_, err = copyrpc.OpenRaw(copyrpc.RawSizes{Ops: -1})
	is(t, err, copyrpc.ErrInvalid)
	check(t, p.client.Close())
	check(t, p.client.Close())
	if _, status := p.client.Submit(1); status != copyrpc.ErrClosed {
		t.Fatal(status.Name())
	}
	if _, status := p.client.Poll(); status != copyrpc.ErrClosed {
		t.Fatal(status.Name())
	}
	is(t, p.client.Wait(limited(t)), copyrpc.ErrClosed)
	_, err = p.client.Connect("x:1", 0)
	is(t, err, copyrpc.ErrClosed)
}

func TestRawWaitEndsWithItsContext(t *testing.T) {
	p := newRawPair(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var err error
	for err == nil { // it may wake for nothing
		if count, _ := p.client.Poll(); count != 0 {
			t.Fatal("something came")
		}
		err = p.client.Wait(ctx)
	}
	is(t, err, copyrpc.ErrTimeout)
	// And the next wait is not ended by the wake-up of the one before.
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, ReplyBytesMax: 8}
	p.client.Submit(1)
	request := p.next(t, p.server, copyrpc.CompletionRequest)
	p.server.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpReply, Flags: copyrpc.OpQuiet, Endpoint: request.Endpoint, Token: request.Token, PayloadBytes: 2}
	copy(p.server.Payload, "ok")
	p.server.Submit(1)
	if done := p.next(t, p.client, copyrpc.CompletionResponse); !bytes.Equal(done.View(), []byte("ok")) {
		t.Fatalf("%q", done.View())
	}
}

func TestRawRetain(t *testing.T) {
	p := newRawPair(t)
	copy(p.client.Payload, "keep me")
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, PayloadBytes: 7, ReplyBytesMax: 8}
	p.client.Submit(1)
	request := p.next(t, p.server, copyrpc.CompletionRequest)
	var buffer [16]byte
	if bytes, status := p.server.Retain(&request, buffer[:]); status != copyrpc.OK || string(buffer[:bytes]) != "keep me" {
		t.Fatalf("%q, %s", buffer[:bytes], status.Name())
	}
	if _, status := p.server.Retain(&request, buffer[:6]); status != copyrpc.ErrTooBig {
		t.Fatal(status.Name())
	}
	p.server.Poll()
	if _, status := p.server.Retain(&request, buffer[:]); status != copyrpc.ErrStale {
		t.Fatal(status.Name())
	}
}

func TestRawDrainListener(t *testing.T) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{})
	check(t, err)
	defer raw.Close()
	listener, err := raw.Listen(host()+":0", 1)
	check(t, err)
	count, err := raw.DrainListener(listener, copyrpc.Forever)
	check(t, err)
	if count != 0 {
		t.Fatalf("%d connections of a listener that nobody has connected to", count)
	}
	_, err = raw.DrainListener(listener, copyrpc.Forever)
	is(t, err, copyrpc.ErrStale)
}
