package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const headerBytes = copyrpc.QueueHeaderBytes

// datagramPair is two queues for datagrams in a context, and a target at the right one.
type datagramPair struct {
	ctx         context.Context
	c           *copyrpc.Context
	left, right *copyrpc.Datagrams
	target      *copyrpc.Target
	region      *copyrpc.Region
}

func newDatagrams(t *testing.T, options copyrpc.QueueOptions) *datagramPair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	c, err := copyrpc.Open(copyrpc.WithQueues())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	p := &datagramPair{ctx: ctx, c: c, region: newRegion(t, c, copyrpc.LocalWrite)}
	p.left, err = c.OpenDatagrams(options)
	check(t, err)
	p.right, err = c.OpenDatagrams(options)
	check(t, err)
	address, err := p.right.Address()
	check(t, err)
	p.target, err = p.left.OpenTarget(address, copyrpc.TargetOptions{QueueKey: options.QueueKey})
	check(t, err)
	return p
}

func TestDatagramsAreAnswered(t *testing.T) {
	p := newDatagrams(t, copyrpc.QueueOptions{Receives: 16, QueueKey: 5})
	place, answerPlace := p.region.Slice(0, 1000), p.region.Slice(1000, 2000)
	work, err := p.right.PostReceive(place)
	check(t, err)
	check(t, p.left.SendBytes(p.ctx, []byte("who is there?"), p.target))
	done, err := work.Wait(p.ctx)
	check(t, err)
	received := done.Received()
	info, err := p.left.Info()
	check(t, err)
	if received.Bytes != headerBytes+13 || received.Source() != info.QueuePairNumber || received.Queue != p.right.Handle() || received.Written != 0 ||
		!bytes.Equal(place.Bytes()[headerBytes:received.Bytes], []byte("who is there?")) {
		t.Fatalf("%+v", received)
	}
	back, err := p.right.TargetOf(received, place)
	check(t, err)
	here, err := p.left.Address()
	check(t, err)
	if address, err := back.Address(); err != nil || !isSender(address, here) {
		t.Fatal(err, address)
	}
	answered, err := p.left.PostReceive(answerPlace)
	check(t, err)
	copy(p.region.Bytes()[3000:], "it is me")
	check(t, p.right.SendImmediate(p.ctx, p.region.Slice(3000, 3008), back, 9))
	done, err = answered.Wait(p.ctx)
	check(t, err)
	if answer := done.Received(); !answer.HasImmediate || answer.Immediate != 9 || answer.Bytes != headerBytes+8 {
		t.Fatalf("%+v", answer)
	}
	check(t, back.Close())
	check(t, back.Close())
	if err := p.right.SendBytes(p.ctx, []byte("x"), back); !errors.Is(err, copyrpc.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := back.Address(); !errors.Is(err, copyrpc.ErrClosed) {
		t.Fatal(err)
	}
}

// What a completion of a receive says, whatever has taken the receive.
func TestReceivedIsRead(t *testing.T) {
	const work, detail = copyrpc.CompletionWork, copyrpc.CompletionDetail
	const immediate, invalidated = copyrpc.CompletionImmediate, copyrpc.CompletionInvalidated
	type seen struct {
		bytes, written               int
		immediate, invalidated       uint32
		hasImmediate, hasInvalidated bool
		source                       uint32
	}
	cases := []struct {
		done copyrpc.Completion
		want seen
	}{
		{copyrpc.Completion{Kind: work, Flags: detail, PayloadBytes: 9}, seen{bytes: 9}},
		{copyrpc.Completion{Kind: work, Flags: detail}, seen{}},
		{copyrpc.Completion{Kind: work, Flags: detail | immediate, PayloadBytes: 9, ReplyBytesMax: 7}, seen{bytes: 9, immediate: 7, hasImmediate: true}},
		{copyrpc.Completion{Kind: work, Flags: detail | immediate, ReplyBytesMax: 7, Token: 1 << 31}, seen{written: 1 << 31, immediate: 7, hasImmediate: true}},
		{copyrpc.Completion{Kind: work, Flags: detail | invalidated, PayloadBytes: 9, ReplyBytesMax: 5}, seen{bytes: 9, invalidated: 5, hasInvalidated: true}},
		{copyrpc.Completion{Kind: work, Flags: detail | copyrpc.CompletionGRH, PayloadBytes: 40, Token: 3}, seen{bytes: 40, source: 3}},
		{copyrpc.Completion{Kind: work, Flags: detail, PayloadBytes: 40, Token: 3}, seen{bytes: 40, source: 3}}, // without a header that leads back
	}
	for _, c := range cases {
		r := c.done.Received()
		got := seen{r.Bytes, r.Written, r.Immediate, r.Invalidated, r.HasImmediate, r.HasInvalidated, r.Source()}
		if got != c.want {
			t.Errorf("%+v: %+v, not %+v", c.done, got, c.want)
		}
	}
}

func TestDatagramsEnd(t *testing.T) {
	p := newDatagrams(t, copyrpc.QueueOptions{Receives: 16})
	work, err := p.left.PostReceive(p.region.Slice(0, 100))
	check(t, err)
	check(t, p.left.Send(p.ctx, p.region.Slice(0, 10), p.target))
	check(t, p.left.Drain(p.ctx))
	if _, err := work.Wait(p.ctx); !errors.Is(err, copyrpc.ErrFlushed) {
		t.Fatal(err)
	}
	if err := p.left.Send(p.ctx, p.region.Slice(0, 10), p.target); !errors.Is(err, copyrpc.ErrDisconnected) {
		t.Fatal(err)
	}
	if stats, err := p.left.Stats(); err != nil || stats.Sends != 1 || p.left.Err() == nil {
		t.Fatal(err, stats)
	}
	work, err = p.right.PostReceive(p.region.Slice(0, 100))
	check(t, err)
	check(t, p.right.Close())
	check(t, p.right.Close())
	<-p.right.Done()
	if _, err := work.Wait(p.ctx); !errors.Is(err, copyrpc.ErrClosed) {
		t.Fatal(err)
	}
	if err := p.right.Send(p.ctx, p.region.Slice(0, 10), p.target); !errors.Is(err, copyrpc.ErrClosed) {
		t.Fatal(err)
	}
}

func TestDatagramsShareReceives(t *testing.T) {
	p := newDatagrams(t, copyrpc.QueueOptions{})
	shared, err := p.c.OpenSharedReceives(copyrpc.QueueOptions{Receives: 8})
	check(t, err)
	right, err := p.c.OpenDatagrams(copyrpc.QueueOptions{Shared: shared})
	check(t, err)
	address, err := right.Address()
	check(t, err)
	target, err := p.left.OpenTarget(address, copyrpc.TargetOptions{})
	check(t, err)
	place := p.region.Slice(0, 100)
	work, err := shared.PostReceive(place)
	check(t, err)
	check(t, p.left.SendBytes(p.ctx, []byte("to all"), target))
	done, err := work.Wait(p.ctx)
	check(t, err)
	if received := done.Received(); received.Queue != right.Handle() || received.Bytes != headerBytes+6 {
		t.Fatalf("%+v", received)
	}
	_, err = right.TargetOf(done.Received(), place)
	check(t, err)
}

func TestDatagramsInBatches(t *testing.T) {
	p := newDatagrams(t, copyrpc.QueueOptions{Receives: 16})
	receives, err := p.right.Batch(8)
	check(t, err)
	sends, err := p.left.Batch(8)
	check(t, err)
	for i := range sends.Ops() {
		receives.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive}
		check(t, receives.Ops()[i].SetBuffer(p.region.Slice(100*i, 100*i+100)))
		sends.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueSend, Target: p.target.Handle()}
		check(t, sends.Ops()[i].SetBuffer(p.region.Slice(2000+i, 2000+i+16)))
	}
	check(t, receives.Submit(8))
	completions, err := sends.Do(p.ctx)
	check(t, err)
	arrived, err := receives.Wait(p.ctx)
	check(t, err)
	for i := range completions {
		if completions[i].Status != 0 || arrived[i].Received().Bytes != headerBytes+16 {
			t.Fatalf("%+v %+v", completions[i], arrived[i])
		}
	}
	check(t, sends.Close())
	check(t, receives.Close())
}

func TestDatagramsBadInput(t *testing.T) {
	p := newDatagrams(t, copyrpc.QueueOptions{Receives: 4})
	other := newDatagrams(t, copyrpc.QueueOptions{})
	expect := func(err error, status copyrpc.Status) {
		t.Helper()
		if !errors.Is(err, status) {
			t.Fatalf("%v, not %s", err, status.Name())
		}
	}
	info, err := p.left.Info()
	check(t, err)
	buffer := p.region.Slice(0, 10)
	expect(p.left.Send(p.ctx, p.region.Slice(0, info.MessageBytesMax+1), p.target), copyrpc.ErrTooBig)
	expect(p.left.Send(p.ctx, buffer, nil), copyrpc.ErrInvalid)
	expect(p.left.Send(p.ctx, buffer, &copyrpc.Target{}), copyrpc.ErrInvalid)
	expect(p.left.Send(p.ctx, buffer, other.target), copyrpc.ErrInvalid)
	expect(p.left.Send(p.ctx, other.region.Slice(0, 10), p.target), copyrpc.ErrInvalid)
	_, err = p.left.TargetOf(copyrpc.Received{}, buffer)
	expect(err, copyrpc.ErrInvalid)
	_, err = p.left.TargetOf(copyrpc.Received{}, p.region.Slice(0, 100))
	expect(err, copyrpc.ErrStale)
	_, err = p.left.OpenTarget(copyrpc.QueueAddress{}, copyrpc.TargetOptions{})
	expect(err, copyrpc.ErrProtocol)
	_, err = p.c.OpenDatagrams(copyrpc.QueueOptions{QueueKey: 1 << 31})
	expect(err, copyrpc.ErrInvalid)
	work, err := p.left.Post(copyrpc.QueueOp{Opcode: copyrpc.QueueWrite, Target: p.target.Handle()}, buffer)
	check(t, err)
	_, err = work.Wait(p.ctx)
	expect(err, copyrpc.ErrUnsupported)
	for _, never := range []*copyrpc.Datagrams{nil, {}} {
		expect(never.Send(p.ctx, buffer, p.target), copyrpc.ErrClosed)
		expect(never.SendBytes(p.ctx, nil, p.target), copyrpc.ErrClosed)
		expect(never.SendImmediate(p.ctx, buffer, p.target, 1), copyrpc.ErrClosed)
		expect(never.Drain(p.ctx), copyrpc.ErrClosed)
		expect(never.Err(), copyrpc.ErrClosed)
		check(t, never.Close())
		<-never.Done()
		_, err := never.Post(copyrpc.QueueOp{}, buffer)
		expect(err, copyrpc.ErrClosed)
		_, err = never.PostReceive(buffer)
		expect(err, copyrpc.ErrClosed)
		_, err = never.Receive(p.ctx, buffer)
		expect(err, copyrpc.ErrClosed)
		_, err = never.Batch(1)
		expect(err, copyrpc.ErrClosed)
		_, err = never.Address()
		expect(err, copyrpc.ErrClosed)
		_, err = never.Info()
		expect(err, copyrpc.ErrClosed)
		_, err = never.Stats()
		expect(err, copyrpc.ErrClosed)
		_, err = never.OpenTarget(copyrpc.QueueAddress{}, copyrpc.TargetOptions{})
		expect(err, copyrpc.ErrClosed)
		if never.Handle() != 0 {
			t.Fatal(never.Handle())
		}
	}
	var nobody *copyrpc.Target
	check(t, nobody.Close())
	if nobody.Handle() != 0 {
		t.Fatal(nobody.Handle())
	}
}
