package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const (
	tagHeader = copyrpc.TagHeaderBytes
	tagAny    = copyrpc.TagMaskAll
	tagsOpen  = 8
)

// tagPair is a queue on the left that sends to what receives with tags on the right.
type tagPair struct {
	*queuePair
	ctx    context.Context
	tagged *copyrpc.TaggedReceives
}

func newTags(t testing.TB) *tagPair {
	t.Helper()
	p := &tagPair{queuePair: newQueues(t, copyrpc.QueueOptions{}), ctx: limited(t)}
	var err error
	p.tagged, err = p.contexts[1].OpenTaggedReceives(copyrpc.QueueOptions{Receives: 16, Tags: tagsOpen})
	check(t, err)
	t.Cleanup(func() { p.right.Close(); p.tagged.Close() })
	p.left, p.right = p.connect(t, copyrpc.QueueOptions{SendPieces: 2}, copyrpc.QueueOptions{Shared: p.tagged.Shared()})
	return p
}

func (p *tagPair) send(t testing.TB, tag uint64, payload string) {
	t.Helper()
	message := make([]byte, tagHeader, tagHeader+len(payload))
	check(t, copyrpc.WriteTagHeader(message, tag, uint32(tag)+1))
	check(t, p.left.SendBytes(p.ctx, append(message, payload...)))
}

func (p *tagPair) post(t testing.TB, at int, tag, mask uint64) *copyrpc.TagWork {
	t.Helper()
	w, err := p.tagged.PostReceive(p.there.Slice(at, at+64), tag, mask)
	check(t, err)
	return w
}

// comes waits for a message, and checks it.
func (p *tagPair) comes(t testing.TB, w *copyrpc.TagWork, at int, tag uint64, payload string) {
	t.Helper()
	matched, err := w.Wait(p.ctx)
	check(t, err)
	want := copyrpc.Matched{Bytes: len(payload), Tag: tag, Context: uint32(tag) + 1, Queue: p.right.Handle()}
	if matched != want || string(p.there.Bytes()[at:at+len(payload)]) != payload {
		t.Fatalf("%+v, not %+v; %q", matched, want, p.there.Bytes()[at:at+len(payload)])
	}
}

func (p *tagPair) open(t testing.TB) int {
	t.Helper()
	info, err := p.tagged.Shared().Info()
	check(t, err)
	return info.TagsOpen
}

// opened waits until C has taken so many. The device may be late: what it does behind them, such as a Sync, tells that it has them.
func (p *tagPair) opened(t testing.TB, count int) {
	t.Helper()
	for p.open(t) != count {
		check(t, p.ctx.Err())
		runtime.Gosched()
	}
}

func TestTagHeaders(t *testing.T) {
	header := make([]byte, tagHeader)
	check(t, copyrpc.WriteTagHeader(header, 0x0123456789abcdef, 0xdeadbeef))
	want := []byte{3, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	if !bytes.Equal(header, want) {
		t.Fatalf("%x", header)
	}
	read, err := copyrpc.ReadTagHeader(append(header, "payload"...))
	if err != nil || read != (copyrpc.TagHeader{Kind: copyrpc.TagEager, Tag: 0x0123456789abcdef, Context: 0xdeadbeef}) {
		t.Fatalf("%+v, %v", read, err)
	}
	is(t, copyrpc.WriteTagHeader(header[:15], 1, 1), copyrpc.ErrInvalid)
	for _, message := range [][]byte{nil, header[:15], append([]byte{4}, header[1:]...), bytes.Repeat([]byte{0xff}, 16)} {
		_, err := copyrpc.ReadTagHeader(message)
		is(t, err, copyrpc.ErrProtocol)
	}
	if read, err := copyrpc.ReadTagHeader(make([]byte, 20)); err != nil || read.Kind != copyrpc.TagNone {
		t.Fatalf("%+v, %v", read, err)
	}
}

func TestTagsFindTheirBuffers(t *testing.T) {
	p := newTags(t)
	word := p.post(t, 0, 1, tagAny)
	number := p.post(t, 64, 0x100, tagAny-0xff)
	whatever := p.post(t, 128, 0, 0)
	p.opened(t, 3)
	p.send(t, 0x1ab, "384400 km")
	p.comes(t, number, 64, 0x1ab, "384400 km")
	p.send(t, 1, "moon")
	p.comes(t, word, 0, 1, "moon")
	p.send(t, tagAny, "")
	p.comes(t, whatever, 128, tagAny, "")
	info, err := p.tagged.Shared().Info()
	check(t, err)
	if info.Tags != tagsOpen || info.TagsOpen != 0 || info.Queues != 1 {
		t.Fatalf("%+v", info)
	}
	for turn := 0; turn < 4*tagsOpen; turn++ { // all places, again and again
		works := []*copyrpc.TagWork{p.post(t, 0, 5, tagAny), p.post(t, 64, 5, 0xff), p.post(t, 128, 6, tagAny)}
		for i, tag := range []uint64{6, 5, 5} { // the oldest that matches gets it
			p.send(t, tag, fmt.Sprint(turn, " ", i))
		}
		p.comes(t, works[0], 0, 5, fmt.Sprint(turn, " ", 1))
		p.comes(t, works[1], 64, 5, fmt.Sprint(turn, " ", 2))
		p.comes(t, works[2], 128, 6, fmt.Sprint(turn, " ", 0))
	}
}

func TestTagsOfRendezvous(t *testing.T) {
	p := newTags(t)
	w := p.post(t, 0, 5, tagAny)
	request := make([]byte, 32)
	check(t, copyrpc.WriteTagHeader(request, 5, 9))
	request[0] = copyrpc.TagRendezvous
	check(t, p.left.SendBytes(p.ctx, request))
	matched, err := w.Wait(p.ctx)
	check(t, err)
	if matched != (copyrpc.Matched{Bytes: 32, Tag: 5, Context: 9, Queue: p.right.Handle(), Rendezvous: true}) ||
		!bytes.Equal(p.there.Bytes()[:32], request) {
		t.Fatalf("%+v", matched)
	}
}

func TestTagsAreTakenBack(t *testing.T) {
	p := newTags(t)
	first, second := p.post(t, 0, 5, tagAny), p.post(t, 64, 5, tagAny)
	p.opened(t, 2)
	for i := 0; i < 2; i++ {
		if removed, err := first.Remove(p.ctx); err != nil || !removed {
			t.Fatal(removed, err)
		}
	}
	_, err := first.Wait(p.ctx)
	is(t, err, copyrpc.ErrCanceled)
	p.send(t, 5, "x")
	p.comes(t, second, 64, 5, "x")
	if removed, err := second.Remove(p.ctx); err != nil || removed {
		t.Fatal(removed, err)
	}
	// What was not given to C yet.
	letGo := p.contexts[1].Hold()
	waiting := make(chan *copyrpc.TagWork, 1)
	w, err := p.tagged.PostReceive(p.there.Slice(0, 64), 7, tagAny)
	check(t, err)
	go func() {
		w.Remove(p.ctx)
		waiting <- w
	}()
	letGo()
	_, err = (<-waiting).Wait(p.ctx)
	is(t, err, copyrpc.ErrCanceled)
	p.opened(t, 0)
	// A race, which either wins.
	for turn := 0; turn < 50; turn++ {
		received, err := p.tagged.Shared().PostReceive(p.there.Slice(1024, 1124))
		check(t, err)
		w := p.post(t, 0, 5, tagAny)
		sent := make(chan error, 1)
		go func() {
			message := make([]byte, tagHeader)
			copyrpc.WriteTagHeader(message, 5, 6)
			sent <- p.left.SendBytes(p.ctx, message)
		}()
		removed, err := w.Remove(p.ctx)
		check(t, err)
		check(t, <-sent)
		if removed {
			done, err := received.Wait(p.ctx)
			check(t, err)
			if !done.Received().Unexpected {
				t.Fatalf("%+v", done)
			}
			check(t, p.tagged.Sync(p.ctx))
		} else {
			p.comes(t, w, 0, 5, "")
			check(t, p.left.SendBytes(p.ctx, []byte("takes the receive")))
			if _, err := received.Wait(p.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTagsThatNobodyWaitsForAreTakenBack(t *testing.T) {
	p := newTags(t)
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := p.tagged.Receive(ctx, p.there.Slice(0, 64), 5, tagAny)
		ended <- err
	}()
	p.opened(t, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.opened(t, 0)
	if err := p.there.Close(); err != nil { // nothing uses it any more
		t.Fatal(err)
	}
	if _, err := p.tagged.Receive(ctx, p.there.Slice(0, 64), 5, tagAny); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestTagsUnexpected(t *testing.T) {
	p := newTags(t)
	var receives []*copyrpc.Work
	for i := 0; i < 4; i++ {
		w, err := p.tagged.Shared().PostReceive(p.there.Slice(1024*i, 1024*i+128))
		check(t, err)
		receives = append(receives, w)
	}
	p.send(t, 77, "sun")
	p.send(t, 78, "earth")
	<-receives[1].Done()
	is(t, p.tagged.Sync(p.ctx), copyrpc.ErrBusy) // nobody has looked at them
	done, err := receives[0].Wait(p.ctx)
	check(t, err)
	received := done.Received()
	header, err := copyrpc.ReadTagHeader(p.there.Bytes()[:received.Bytes])
	if err != nil || !received.Unexpected || received.Bytes != tagHeader+3 || header.Tag != 77 || header.Context != 78 ||
		received.Queue != p.right.Handle() || string(p.there.Bytes()[tagHeader:received.Bytes]) != "sun" {
		t.Fatalf("%+v, %+v, %v", received, header, err)
	}
	is(t, p.tagged.Sync(p.ctx), copyrpc.ErrBusy)
	late := p.post(t, 8192, 5, tagAny) // matches nothing until both were looked at
	p.opened(t, 1)
	p.send(t, 5, "early")
	if over, err := receives[1].Test(); !over || err != nil {
		t.Fatal(over, err)
	}
	done, err = receives[2].Wait(p.ctx)
	check(t, err)
	if !done.Received().Unexpected {
		t.Fatalf("%+v", done)
	}
	check(t, p.tagged.Sync(p.ctx))
	p.send(t, 5, "late")
	p.comes(t, late, 8192, 5, "late")
	check(t, p.left.SendBytes(p.ctx, []byte("has no header")))
	done, err = receives[3].Wait(p.ctx)
	check(t, err)
	if done.Received().Unexpected {
		t.Fatalf("%+v", done)
	}
	// A receive that nobody waits for any more: its message is lost, and bars nothing.
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := p.tagged.Shared().Receive(ctx, p.there.Slice(0, 128))
		ended <- err
	}()
	p.receives(t, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.send(t, 79, "")
	p.receives(t, 0)
	check(t, p.tagged.Sync(p.ctx))
}

// receives waits until so many ordinary receives are open in the device.
func (p *tagPair) receives(t testing.TB, count int) {
	t.Helper()
	for {
		info, err := p.tagged.Shared().Info()
		check(t, err)
		if info.ReceivesOpen == count {
			return
		}
		check(t, p.ctx.Err())
		runtime.Gosched()
	}
}

func TestTagsWaitForRoom(t *testing.T) {
	p := newTags(t)
	var works []*copyrpc.TagWork
	for i := 0; i < 3*tagsOpen; i++ {
		works = append(works, p.post(t, 64*i, uint64(i), tagAny))
	}
	p.opened(t, tagsOpen)
	last := works[len(works)-1]
	if removed, err := last.Remove(p.ctx); err != nil || !removed { // it waits for room
		t.Fatal(removed, err)
	}
	if removed, err := works[2].Remove(p.ctx); err != nil || !removed { // overtakes what waits for room, and makes some
		t.Fatal(removed, err)
	}
	check(t, p.tagged.Sync(p.ctx))
	for i, w := range works[:len(works)-1] {
		if i != 2 {
			for p.open(t) != tagsOpen && i+tagsOpen < len(works)-2 { // the next has its place
				runtime.Gosched()
			}
			p.send(t, uint64(i), fmt.Sprint(i))
			p.comes(t, w, 64*i, uint64(i), fmt.Sprint(i))
		}
	}
}

func TestTagsEnd(t *testing.T) {
	p := newTags(t)
	received, err := p.tagged.Shared().PostReceive(p.there.Slice(128, 256))
	check(t, err)
	p.receives(t, 1) // what fails without one is told to none that comes later
	short, other := p.post(t, 0, 1, tagAny), p.post(t, 64, 2, tagAny)
	p.opened(t, 2)
	check(t, p.tagged.Sync(p.ctx)) // the device does it behind them; before them, the message would take the receive
	message := p.here.Slice(0, tagHeader+65)
	check(t, copyrpc.WriteTagHeader(message.Bytes(), 1, 0))
	if err := p.left.Send(p.ctx, message); err == nil { // too long: that ends its queue, and no other
		t.Fatal("it was sent")
	}
	_, err = short.Wait(p.ctx)
	is(t, err, copyrpc.ErrFlushed)
	_, err = received.Wait(p.ctx)
	is(t, err, copyrpc.ErrTruncated)
	p.left, p.right = p.connect(t, copyrpc.QueueOptions{}, copyrpc.QueueOptions{Shared: p.tagged.Shared()})
	p.send(t, 2, "goes on")
	p.comes(t, other, 64, 2, "goes on")
	last := p.post(t, 0, 3, tagAny)
	is(t, p.tagged.Close(), copyrpc.ErrBusy)
	p.right.Close()
	check(t, p.tagged.Close())
	check(t, p.tagged.Close())
	_, err = last.Wait(p.ctx)
	is(t, err, copyrpc.ErrClosed)
	if removed, err := last.Remove(p.ctx); err != nil || removed {
		t.Fatal(removed, err)
	}
	_, err = p.tagged.PostReceive(p.there.Slice(0, 64), 1, tagAny)
	is(t, err, copyrpc.ErrClosed)
	is(t, p.tagged.Sync(p.ctx), copyrpc.ErrClosed)
}

func TestTagsRunLow(t *testing.T) {
	p := newTags(t)
	for i := 0; i < 3; i++ {
		if _, err := p.tagged.Shared().PostReceive(p.there.Slice(64*i, 64*i+64)); err != nil {
			t.Fatal(err)
		}
	}
	low := make(chan error, 1)
	go func() { low <- p.tagged.Shared().RunLow(p.ctx, 2) }()
	for limit := 0; limit != 2; {
		info, err := p.tagged.Shared().Info()
		check(t, err)
		check(t, p.ctx.Err())
		limit = info.SRQLimit
	}
	for i := 0; i < 2; i++ {
		check(t, p.left.SendBytes(p.ctx, []byte("takes one")))
	}
	check(t, <-low)
}

func TestTagsBadInput(t *testing.T) {
	p := newTags(t)
	_, err := p.tagged.PostReceive(p.there.Slice(0, 64), 5, 4)
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.tagged.PostReceive(p.here.Slice(0, 64), 5, tagAny) // of another context
	is(t, err, copyrpc.ErrInvalid)
	weak := newRegion(t, p.contexts[1], 0)
	_, err = p.tagged.Receive(p.ctx, weak.Slice(0, 64), 5, tagAny)
	is(t, err, copyrpc.ErrInvalid)
	for _, options := range []copyrpc.QueueOptions{{}, {Receives: 4, Tags: -1}, {Receives: 4, Sends: 4}, {Receives: 4, QueueKey: 1}} {
		_, err := p.contexts[1].OpenTaggedReceives(options)
		is(t, err, copyrpc.ErrInvalid)
	}
	_, err = p.contexts[1].OpenTaggedReceives(copyrpc.QueueOptions{Receives: 4, Tags: 1 << 20})
	is(t, err, copyrpc.ErrNoResource)
	_, err = p.contexts[1].OpenSharedReceives(copyrpc.QueueOptions{Receives: 4, Tags: 4})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.contexts[1].OpenDatagrams(copyrpc.QueueOptions{Shared: p.tagged.Shared()})
	is(t, err, copyrpc.ErrInvalid)
	for _, op := range []uint8{copyrpc.QueueTagAdd, copyrpc.QueueTagRemove, copyrpc.QueueTagSync} {
		w, err := p.left.Post(copyrpc.QueueOp{Opcode: op}, copyrpc.Buffer{})
		check(t, err)
		_, err = w.Wait(p.ctx)
		is(t, err, copyrpc.ErrUnsupported)
	}
	for _, none := range []*copyrpc.TaggedReceives{nil, {}} {
		_, err := none.PostReceive(p.there.Slice(0, 64), 1, tagAny)
		is(t, err, copyrpc.ErrClosed)
		_, err = none.Receive(p.ctx, p.there.Slice(0, 64), 1, tagAny)
		is(t, err, copyrpc.ErrClosed)
		_, err = none.Batch(1)
		is(t, err, copyrpc.ErrClosed)
		is(t, none.Sync(p.ctx), copyrpc.ErrClosed)
		check(t, none.Close())
		<-none.Shared().Done()
	}
	if p.open(t) != 0 {
		t.Fatal(p.open(t))
	}
}

func TestTagsInBatches(t *testing.T) {
	p := newTags(t)
	adds, err := p.tagged.Batch(tagsOpen)
	check(t, err)
	defer adds.Close()
	for i := range adds.Ops() {
		op := &adds.Ops()[i]
		*op = copyrpc.QueueOp{Opcode: copyrpc.QueueTagAdd, UserData: uint64(100 + i), RemoteAddress: uint64(i), Operand: tagAny}
		check(t, op.SetBuffer(p.there.Slice(64*i, 64*i+64)))
	}
	check(t, adds.Submit(tagsOpen))
	p.opened(t, tagsOpen)
	orders, err := p.tagged.Batch(3)
	check(t, err)
	defer orders.Close()
	copy(orders.Ops(), []copyrpc.QueueOp{{Opcode: copyrpc.QueueTagSync}, {Opcode: copyrpc.QueueTagRemove, Operand: 102, UserData: 7},
		{Opcode: copyrpc.QueueTagRemove, Operand: 555}})
	for turn := 0; turn < 2; turn++ { // what the program wrote is there again
		done, err := orders.Do(p.ctx)
		is(t, err, copyrpc.ErrNotFound)
		second := copyrpc.Status(done[1].Status)
		if done[0].Status != 0 || copyrpc.Status(done[2].Status) != copyrpc.ErrNotFound || done[1].UserData != 7 || second != []copyrpc.Status{copyrpc.OK, copyrpc.ErrNotFound}[turn] {
			t.Fatalf("%+v", done)
		}
	}
	for i := 0; i < tagsOpen; i++ {
		if i != 2 {
			p.send(t, uint64(i), fmt.Sprint(i))
		}
	}
	done, err := adds.Wait(p.ctx)
	is(t, err, copyrpc.ErrCanceled)
	for i := range done {
		matched := done[i].Matched()
		if i != 2 && (matched.Tag != uint64(i) || matched.Bytes != 1 || done[i].UserData != uint64(100+i) || p.there.Bytes()[64*i] != byte('0'+i)) {
			t.Fatalf("%d: %+v", i, done[i])
		}
	}
	// In one array; the latest before it is meant.
	both, err := p.tagged.Batch(4)
	check(t, err)
	defer both.Close()
	for i := 0; i < 4; i += 2 {
		both.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueTagAdd, UserData: 9, RemoteAddress: 1, Operand: tagAny}
		both.Ops()[i+1] = copyrpc.QueueOp{Opcode: copyrpc.QueueTagRemove, Operand: 9}
	}
	done, err = both.Do(p.ctx)
	is(t, err, copyrpc.ErrCanceled)
	for i, want := range []copyrpc.Status{copyrpc.ErrCanceled, copyrpc.OK, copyrpc.ErrCanceled, copyrpc.OK} {
		if copyrpc.Status(done[i].Status) != want {
			t.Fatalf("%d: %+v", i, done[i])
		}
	}
	// Messages that nobody has looked at bar what says that all were.
	receives, err := p.tagged.Batch(2)
	check(t, err)
	for i := range receives.Ops() {
		receives.Ops()[i].Opcode = copyrpc.QueueReceive
		check(t, receives.Ops()[i].SetBuffer(p.there.Slice(1024*i, 1024*i+128)))
	}
	check(t, receives.Submit(2))
	p.send(t, 1, "")
	p.send(t, 2, "")
	for p.tagged.Sync(p.ctx) == nil { // until it has come
		check(t, p.ctx.Err())
	}
	is(t, p.tagged.Sync(p.ctx), copyrpc.ErrBusy)
	_, err = orders.DoFirst(p.ctx, 1)
	is(t, err, copyrpc.ErrBusy)
	done, err = receives.Wait(p.ctx)
	check(t, err)
	if !done[0].Received().Unexpected || !done[1].Received().Unexpected {
		t.Fatalf("%+v", done)
	}
	check(t, p.tagged.Sync(p.ctx))
	check(t, receives.Close())
}

func TestRawTags(t *testing.T) {
	p := newRawQueues(t, copyrpc.QueueOptions{})
	tagged, err := p.raw[1].OpenTaggedReceives(9, copyrpc.QueueOptions{Receives: 4, Tags: 4})
	check(t, err)
	left, ours, err := p.raw[0].QueueBlob(7, copyrpc.QueueOptions{})
	check(t, err)
	right, theirs, err := p.raw[1].QueueBlob(8, copyrpc.QueueOptions{ReceiveQueue: tagged})
	check(t, err)
	check(t, p.raw[0].JoinQueue(left, theirs))
	check(t, p.raw[1].JoinQueue(right, ours))
	p.next(t, 0, copyrpc.CompletionConnected)
	p.next(t, 1, copyrpc.CompletionConnected)
	copy(p.raw[1].QueueOps, []copyrpc.QueueOp{
		{Opcode: copyrpc.QueueReceive, UserData: 1, Region: p.regions[1], Address: p.infos[1].Address, Bytes: 100},
		{Opcode: copyrpc.QueueTagAdd, UserData: 2, Region: p.regions[1], Address: p.infos[1].Address + 100, Bytes: 100, RemoteAddress: 5, Operand: tagAny},
		{Opcode: copyrpc.QueueTagAdd, UserData: 3, RemoteAddress: 6, Operand: tagAny},
		{Opcode: copyrpc.QueueTagRemove, UserData: 4, Operand: 3},
	})
	if taken, status := p.raw[1].SubmitQueue(tagged, 4); taken != 4 {
		t.Fatal(status.Name())
	}
	seen := map[uint64]copyrpc.Completion{}
	for len(seen) < 2 { // the removal, and what it removes: so the device has the other tag, too, before it gets the messages
		done := p.next(t, 1, copyrpc.CompletionWork)
		seen[done.UserData] = done
	}
	for _, tag := range []uint64{7, 5} {
		check(t, copyrpc.WriteTagHeader(p.memory[0], tag, 11))
		p.raw[0].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueSend, Region: p.regions[0], Address: p.infos[0].Address, Bytes: 20}
		if taken, status := p.raw[0].SubmitQueue(left, 1); taken != 1 {
			t.Fatal(status.Name())
		}
		p.next(t, 0, copyrpc.CompletionWork)
	}
	for len(seen) < 4 {
		done := p.next(t, 1, copyrpc.CompletionWork)
		seen[done.UserData] = done
	}
	two := seen[2]
	if one := seen[1]; !one.Received().Unexpected || one.PayloadBytes != 20 {
		t.Fatalf("%+v", one)
	}
	if matched := two.Matched(); matched != (copyrpc.Matched{Bytes: 4, Tag: 5, Context: 11, Queue: right}) || two.Flags&copyrpc.CompletionMatched == 0 {
		t.Fatalf("%+v", matched)
	}
	if copyrpc.Status(seen[3].Status) != copyrpc.ErrCanceled || seen[4].Status != 0 {
		t.Fatalf("%+v", seen)
	}
	p.raw[1].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueTagSync, UserData: 5}
	if taken, status := p.raw[1].SubmitQueue(tagged, 1); taken != 1 {
		t.Fatal(status.Name())
	}
	if done := p.next(t, 1, copyrpc.CompletionWork); done.Status != 0 || done.UserData != 5 {
		t.Fatalf("%+v", done)
	}
	_, err = p.raw[1].OpenTaggedReceives(9, copyrpc.QueueOptions{Tags: 4})
	is(t, err, copyrpc.ErrInvalid)
}
