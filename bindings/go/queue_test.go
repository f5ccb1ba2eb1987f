package copyrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const anyAccess = copyrpc.LocalWrite | copyrpc.RemoteWrite | copyrpc.RemoteRead | copyrpc.RemoteAtomic

// queuePair is two contexts with a queue between them, and a region on each side.
type queuePair struct {
	contexts    [2]*copyrpc.Context
	listener    *copyrpc.QueueListener
	left, right *copyrpc.Queue
	here, there *copyrpc.Region
	remote      copyrpc.Remote // of there
}

const queueRegionBytes = 1 << 16

func newRegion(t testing.TB, c *copyrpc.Context, access copyrpc.Access) *copyrpc.Region {
	t.Helper()
	region, err := c.NewRegion(queueRegionBytes, access)
	check(t, err)
	t.Cleanup(func() { region.Close() })
	return region
}

func newQueues(t testing.TB, options copyrpc.QueueOptions) *queuePair {
	t.Helper()
	p := &queuePair{}
	var err error
	for i := range p.contexts {
		p.contexts[i] = openContext(t, copyrpc.WithQueues())
	}
	p.listener, err = p.contexts[1].ListenQueues(host() + ":0")
	check(t, err)
	t.Cleanup(func() { p.listener.Close() })
	p.left, p.right = p.connect(t, options, options)
	p.here, p.there = newRegion(t, p.contexts[0], anyAccess), newRegion(t, p.contexts[1], anyAccess)
	for i := range p.here.Bytes() {
		p.here.Bytes()[i], p.there.Bytes()[i] = byte(i*7+1), byte(i*11+3)
	}
	info, err := p.there.Info()
	check(t, err)
	p.remote = info.Remote()
	return p
}

func (p *queuePair) connect(t testing.TB, left, right copyrpc.QueueOptions) (*copyrpc.Queue, *copyrpc.Queue) {
	t.Helper()
	ctx := limited(t)
	right.ConnectTimeout = time.Minute
	var far *copyrpc.Queue
	accepted := make(chan error, 1)
	go func() {
		var err error
		far, err = p.listener.Accept(ctx, right)
		accepted <- err
	}()
	near, err := p.contexts[0].ConnectQueue(ctx, p.listener.Address(), left)
	check(t, err)
	check(t, <-accepted)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// connectForLong is connect without anything that stays until the test ends.
func (p *queuePair) connectForLong(t testing.TB, options copyrpc.QueueOptions) (near, far *copyrpc.Queue) {
	t.Helper()
	options.ConnectTimeout = time.Minute
	accepted := make(chan error, 1)
	go func() {
		var err error
		far, err = p.listener.Accept(context.Background(), options)
		accepted <- err
	}()
	near, err := p.contexts[0].ConnectQueue(context.Background(), p.listener.Address(), options)
	check(t, err)
	check(t, <-accepted)
	return near, far
}

func word(region *copyrpc.Region, at int) uint64 {
	return binary.LittleEndian.Uint64(region.Bytes()[at:])
}

func TestQueueWritesAndReads(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	for _, count := range []int{0, 1, 59, 60, 61, 4096, queueRegionBytes} {
		check(t, p.left.Write(ctx, p.here.Slice(0, count), p.remote))
		if !bytes.Equal(p.there.Bytes()[:count], p.here.Bytes()[:count]) {
			t.Fatalf("%d bytes differ", count)
		}
	}
	clear(p.there.Bytes())
	check(t, p.left.Read(ctx, p.here.Slice(100, 600), p.remote.At(8)))
	for i := 100; i < 600; i++ {
		if p.here.Bytes()[i] != 0 {
			t.Fatalf("byte %d is not read", i)
		}
	}
	if p.here.Bytes()[99] == 0 && p.here.Bytes()[600] == 0 {
		t.Fatal("it read too much")
	}
	stats, err := p.left.Stats()
	check(t, err)
	if stats.Sends != 8 || stats.Receives != 0 || stats.Doorbells == 0 {
		t.Fatalf("%+v", stats)
	}
	info, err := p.left.Info()
	check(t, err)
	if info.State != copyrpc.StateConnected || info.Sends != 256 || info.PeerAddress != p.listener.Address() || info.QueuePairNumber == 0 ||
		info.PeerNumber == 0 || info.Handle != p.left.Handle() || info.MessageBytesMax < 1<<20 {
		t.Fatalf("%+v", info)
	}
}

func TestQueueAtomics(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	clear(p.there.Bytes())
	before, err := p.left.FetchAdd(ctx, p.remote.At(8), 42)
	check(t, err)
	if before != 0 || word(p.there, 8) != 42 {
		t.Fatal(before, word(p.there, 8))
	}
	before, err = p.left.CompareSwap(ctx, p.remote.At(8), 42, 7)
	check(t, err)
	if before != 42 || word(p.there, 8) != 7 {
		t.Fatal(before, word(p.there, 8))
	}
	before, err = p.left.CompareSwap(ctx, p.remote.At(8), 42, 8)
	check(t, err)
	if before != 7 || word(p.there, 8) != 7 {
		t.Fatal(before, word(p.there, 8))
	}
	_, err = p.left.FetchAdd(ctx, p.remote.At(9), 1)
	is(t, err, copyrpc.ErrInvalid)
	var adders sync.WaitGroup // many goroutines on one queue
	for i := 0; i < 50; i++ {
		adders.Add(1)
		go func() {
			defer adders.Done()
			for j := 0; j < 20; j++ {
				if _, err := p.left.FetchAdd(ctx, p.remote, 1); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	adders.Wait()
	if word(p.there, 0) != 1000 {
		t.Fatal(word(p.there, 0))
	}
}

func TestQueueMessages(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 8})
	ctx := limited(t)
	var works []*copyrpc.Work
	for i := 0; i < 20; i++ { // more than there is room for: the rest waits its turn
		work, err := p.right.PostReceive(p.there.Slice(1000*i, 1000*i+900))
		check(t, err)
		works = append(works, work)
	}
	for i, work := range works {
		from := p.here.Slice(i, 2*i)
		switch i % 3 {
		case 0:
			check(t, p.left.Send(ctx, from))
		case 1:
			check(t, p.left.SendImmediate(ctx, from, uint32(i)<<24|5))
		case 2:
			check(t, p.left.WriteImmediate(ctx, from, p.remote.At(40000), uint32(i)))
		}
		done, err := work.Wait(ctx)
		check(t, err)
		got := done.Received()
		want := copyrpc.Received{Bytes: i, Queue: p.right.Handle()}
		if i%3 == 1 {
			want.Immediate, want.HasImmediate = uint32(i)<<24|5, true
		} else if i%3 == 2 {
			want.Bytes, want.Immediate, want.HasImmediate, want.Written = 0, uint32(i), true, i
		}
		at := 1000 * i
		if i%3 == 2 {
			at = 40000
		}
		if got != want || !bytes.Equal(p.there.Bytes()[at:at+i], from.Bytes()) {
			t.Fatalf("%d: %+v, want %+v", i, got, want)
		}
	}
	// Receive parks until a message comes.
	received := make(chan copyrpc.Received)
	go func() {
		got, err := p.right.Receive(ctx, p.there.Slice(0, 100))
		if err != nil {
			t.Error(err)
		}
		received <- got
	}()
	check(t, p.left.Send(ctx, p.here.Slice(0, 77)))
	if got := <-received; got.Bytes != 77 {
		t.Fatalf("%+v", got)
	}
	// Too long for its receive: both queues fail.
	short, err := p.right.PostReceive(p.there.Slice(0, 10))
	check(t, err)
	if err := p.left.Send(ctx, p.here.Slice(0, 11)); err == nil {
		t.Fatal("a message of 11 bytes fits into 10")
	}
	_, err = short.Wait(ctx)
	is(t, err, copyrpc.ErrTruncated)
	<-p.left.Done()
	<-p.right.Done()
}

// Go's own slices, of any memory: they are copied.
func TestQueueBytes(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 4, InlineBytes: 100})
	ctx := limited(t)
	for _, count := range []int{0, 1, 60, 100} {
		data := make([]byte, count)
		for i := range data {
			data[i] = byte(i*5 + count)
		}
		check(t, p.left.WriteBytes(ctx, data, p.remote.At(1000)))
		if !bytes.Equal(p.there.Bytes()[1000:1000+count], data) {
			t.Fatalf("%d bytes differ", count)
		}
		work, err := p.right.PostReceive(p.there.Slice(2000, 2100))
		check(t, err)
		check(t, p.left.SendBytes(ctx, data))
		done, err := work.Wait(ctx)
		check(t, err)
		if done.Received().Bytes != count || !bytes.Equal(p.there.Bytes()[2000:2000+count], data) {
			t.Fatalf("%d bytes differ", count)
		}
	}
	is(t, p.left.WriteBytes(ctx, make([]byte, 101), p.remote), copyrpc.ErrTooBig) // C says so
	is(t, p.left.WriteBytes(ctx, make([]byte, 513), p.remote), copyrpc.ErrTooBig)
	check(t, p.left.Close())
	is(t, p.left.SendBytes(ctx, []byte("late")), copyrpc.ErrClosed)
}

func TestQueueBatches(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Sends: 64})
	ctx := limited(t)
	const count = 1000 // more than there is room for
	batch, err := p.left.Batch(count)
	check(t, err)
	defer batch.Close()
	clear(p.there.Bytes())
	for round := 0; round < 3; round++ {
		before := word(p.there, 0)
		for i := range batch.Ops() {
			op := copyrpc.QueueOp{UserData: uint64(i) << 50}
			switch i % 4 {
			case 0:
				op.Opcode, op.Operand = copyrpc.QueueFetchAdd, uint64(i)
				op.SetRemote(p.remote)
			case 1:
				op.Opcode = copyrpc.QueueNop
			case 2:
				op.Opcode = copyrpc.QueueWrite
				check(t, op.SetBuffer(p.here.Slice(i, i+8)))
				op.SetRemote(p.remote.At(8 * i))
			case 3:
				op.Opcode = copyrpc.QueueRead
				check(t, op.SetBuffer(p.here.Slice(32000+8*i, 32000+8*i+8)))
				op.SetRemote(p.remote.At(8 * (i - 1)))
			}
			batch.Ops()[i] = op
		}
		done, err := batch.Do(ctx)
		check(t, err)
		if len(done) != count {
			t.Fatal(len(done))
		}
		sum := word(p.there, 0)
		for i := range done {
			c := &done[i]
			if c.Kind != copyrpc.CompletionWork || c.Status != 0 || c.UserData != uint64(i)<<50 || int(c.Method) != int(batch.Ops()[i].Opcode) ||
				c.Queue() != p.left.Handle() || batch.Ops()[i].UserData != c.UserData || c.View() != nil {
				t.Fatalf("%d: %+v", i, c)
			}
			if i%4 == 0 {
				sum -= uint64(i)
			}
			if i%4 == 3 && !bytes.Equal(p.here.Bytes()[32000+8*i:][:8], p.here.Bytes()[i-1:][:8]) {
				t.Fatalf("%d: read something else than what was written", i)
			}
		}
		if sum != before {
			t.Fatalf("the sum was %d, and is off by %d", before, sum-before)
		}
	}
	if done, err := batch.DoFirst(ctx, 0); err != nil || len(done) != 0 {
		t.Fatal(done, err)
	}
	_, err = batch.DoFirst(ctx, count+1)
	is(t, err, copyrpc.ErrInvalid)
	_, err = batch.DoFirst(ctx, -1)
	is(t, err, copyrpc.ErrInvalid)
}

// An op that is refused takes those after it along, which may depend on it; nothing of them is done.
func TestQueueBatchStopsAtABadOp(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	batch, err := p.left.Batch(10)
	check(t, err)
	defer batch.Close()
	clear(p.there.Bytes())
	for i := range batch.Ops() {
		op := copyrpc.QueueOp{Opcode: copyrpc.QueueFetchAdd, Operand: 1, UserData: uint64(i)}
		op.SetRemote(p.remote)
		batch.Ops()[i] = op
	}
	batch.Ops()[6].RemoteAddress++
	done, err := batch.Do(ctx)
	is(t, err, copyrpc.ErrInvalid)
	if len(done) != 10 || word(p.there, 0) != 6 {
		t.Fatal(len(done), word(p.there, 0))
	}
	for i, c := range done {
		want := copyrpc.OK
		if i == 6 {
			want = copyrpc.ErrInvalid
		} else if i > 6 {
			want = copyrpc.ErrCanceled
		}
		if copyrpc.Status(c.Status) != want || c.UserData != uint64(i) {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	batch.Ops()[6].RemoteAddress--
	_, err = batch.Do(ctx) // and it goes on
	check(t, err)
	if word(p.there, 0) != 16 {
		t.Fatal(word(p.there, 0))
	}
}

func TestQueueBatchOfPiecesAndInlinePayloads(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{SendPieces: 4, Receives: 4, ReceivePieces: 2, InlineBytes: 64})
	ctx := limited(t)
	here, err := p.here.Info()
	check(t, err)
	receives, err := p.right.BatchWithPieces(2, 2)
	check(t, err)
	defer receives.Close()
	check(t, receives.Pieces()[0].SetBuffer(p.there.Slice(0, 5)))
	check(t, receives.Pieces()[1].SetBuffer(p.there.Slice(100, 150)))
	is(t, receives.Pieces()[1].SetBuffer(p.there.Slice(100, queueRegionBytes+1)), copyrpc.ErrInvalid)
	receives.Ops()[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, Flags: copyrpc.QueuePieces, Bytes: 2}
	receives.Ops()[1] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive}
	check(t, receives.Ops()[1].SetBuffer(p.there.Slice(200, 300)))
	check(t, receives.Submit(2))
	sends, err := p.left.BatchWithPieces(2, 3)
	check(t, err)
	defer sends.Close()
	for i, at := range []int{10, 1000, 2000} {
		check(t, sends.Pieces()[i].SetBuffer(p.here.Slice(at, at+4+i)))
	}
	sends.Ops()[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueSend, Flags: copyrpc.QueuePieces, Bytes: 3}
	sends.Ops()[1] = copyrpc.QueueOp{Opcode: copyrpc.QueueSend, Flags: copyrpc.QueueInline, Address: here.Address, Bytes: 64}
	_, err = sends.Do(ctx)
	check(t, err)
	done, err := receives.Wait(ctx)
	check(t, err)
	sent := append(append(append([]byte{}, p.here.Slice(10, 14).Bytes()...), p.here.Slice(1000, 1005).Bytes()...),
		p.here.Slice(2000, 2006).Bytes()...)
	got := append(append([]byte{}, p.there.Bytes()[:5]...), p.there.Bytes()[100:110]...)
	if done[0].Received().Bytes != 15 || !bytes.Equal(sent, got) {
		t.Fatalf("%+v, %v, %v", done[0], sent, got)
	}
	if done[1].Received().Bytes != 64 || !bytes.Equal(p.there.Bytes()[200:264], p.here.Bytes()[:64]) {
		t.Fatalf("%+v", done[1])
	}
}

func TestSharedReceives(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	shared, err := p.contexts[1].OpenSharedReceives(copyrpc.QueueOptions{Receives: 64})
	check(t, err)
	defer shared.Close()
	var near, far [2]*copyrpc.Queue
	for i := range near {
		near[i], far[i] = p.connect(t, copyrpc.QueueOptions{}, copyrpc.QueueOptions{Shared: shared})
	}
	info, err := shared.Info()
	check(t, err)
	if info.Queues != 2 || info.Receives != 64 {
		t.Fatalf("%+v", info)
	}
	context, err := p.contexts[1].Info()
	check(t, err)
	if context.Queues != 4 || context.QueuesMax != 256 { // those of newQueues, too
		t.Fatalf("%+v", context)
	}
	for i := 0; i < 10; i++ {
		work, err := shared.PostReceive(p.there.Slice(0, 100))
		check(t, err)
		check(t, near[i%2].SendImmediate(ctx, p.here.Slice(0, i), uint32(i)))
		done, err := work.Wait(ctx)
		check(t, err)
		if got := done.Received(); got != (copyrpc.Received{Bytes: i, Immediate: uint32(i), HasImmediate: true, Queue: far[i%2].Handle()}) {
			t.Fatalf("%+v", got)
		}
	}
	_, err = far[0].Receive(ctx, p.there.Slice(0, 1))
	is(t, err, copyrpc.ErrUnsupported)
	is(t, shared.Close(), copyrpc.ErrBusy)
	batch, err := shared.Batch(2)
	check(t, err)
	defer batch.Close()
	for i := range batch.Ops() {
		batch.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, UserData: uint64(i)}
		check(t, batch.Ops()[i].SetBuffer(p.there.Slice(100*i, 100*i+100)))
	}
	check(t, batch.Submit(2))
	check(t, near[0].Send(ctx, p.here.Slice(0, 3)))
	check(t, near[1].Send(ctx, p.here.Slice(0, 4)))
	_, err = batch.Wait(ctx)
	check(t, err)
	// A queue that ends leaves the receives that no message has taken to the others.
	work, err := shared.PostReceive(p.there.Slice(0, 100))
	check(t, err)
	check(t, batch.Submit(2))
	check(t, far[0].Close())
	check(t, near[1].Send(ctx, p.here.Slice(0, 5)))
	done, err := work.Wait(ctx)
	check(t, err)
	if got := done.Received().Bytes; got != 5 {
		t.Fatal(got)
	}
	// One that was closed finds nobody to tell.
	check(t, far[1].Close())
	check(t, shared.Close())
	check(t, shared.Close())
	_, err = batch.Wait(ctx)
	is(t, err, copyrpc.ErrClosed)
	_, err = shared.PostReceive(p.there.Slice(0, 1))
	is(t, err, copyrpc.ErrClosed)
	check(t, p.left.Write(ctx, p.here.Slice(0, 8), p.remote)) // and everything else goes on
}

// What the device does cannot be taken back: when the caller's context is done, the op goes on, and its memory stays.
func TestQueueOpsOutliveTheirContext(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 16})
	ctx := limited(t)
	canceled, cancel := context.WithCancel(context.Background())
	region := newRegion(t, p.contexts[1], anyAccess)
	waits := make(chan error)
	go func() {
		_, err := p.right.Receive(canceled, region.Slice(0, 100))
		waits <- err
	}()
	for stats, err := p.right.Stats(); stats.Receives == 0; stats, err = p.right.Stats() {
		check(t, err)
		check(t, ctx.Err())
	}
	cancel()
	err := <-waits
	is(t, err, copyrpc.ErrCanceled)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	is(t, region.Close(), copyrpc.ErrBusy)
	_, err = p.right.Receive(canceled, region.Slice(0, 100))
	is(t, err, copyrpc.ErrCanceled)
	check(t, p.left.Send(ctx, p.here.Slice(0, 5)))
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until the receive has completed
		err := region.Close()
		if err == nil {
			break
		}
		is(t, err, copyrpc.ErrBusy)
		if time.Now().After(end) {
			t.Fatal("its memory is never given back")
		}
	}
	// The same with a batch: it stays under way, and its memory goes when it has completed, though it was closed before.
	batch, err := p.right.Batch(2)
	check(t, err)
	for i := range batch.Ops() {
		batch.Ops()[i].Opcode = copyrpc.QueueReceive
		check(t, batch.Ops()[i].SetBuffer(p.there.Slice(100*i, 100*i+100)))
	}
	check(t, batch.Submit(2))
	is(t, batch.Submit(2), copyrpc.ErrBusy)
	_, err = batch.Wait(canceled)
	is(t, err, copyrpc.ErrCanceled)
	check(t, p.left.Send(ctx, p.here.Slice(0, 5)))
	check(t, p.left.Send(ctx, p.here.Slice(0, 6)))
	done, err := batch.Wait(ctx)
	check(t, err)
	if done[0].PayloadBytes != 5 || done[1].PayloadBytes != 6 {
		t.Fatalf("%+v", done)
	}
	check(t, batch.Submit(2))
	check(t, batch.Close())
	check(t, batch.Close())
	if batch.Ops() != nil {
		t.Fatal("there is memory after Close")
	}
	check(t, p.left.Send(ctx, p.here.Slice(0, 5)))
	check(t, p.left.Send(ctx, p.here.Slice(0, 5)))
	is(t, batch.Submit(1), copyrpc.ErrClosed)
	_, err = batch.Wait(ctx)
	is(t, err, copyrpc.ErrClosed)
	check(t, p.right.Drain(ctx))
}

// A batch for which there is room is one crossing, which the device hears of once, and costs no object for each op.
func TestQueueBatchIsOneCrossing(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Sends: 1000})
	ctx := context.Background()
	const count = 1000
	batch, err := p.left.Batch(count)
	check(t, err)
	defer batch.Close()
	for i := range batch.Ops() {
		batch.Ops()[i].Opcode = copyrpc.QueueNop
	}
	before, err := p.left.Stats()
	check(t, err)
	_, err = batch.Do(ctx)
	check(t, err)
	after, err := p.left.Stats()
	check(t, err)
	info, err := p.contexts[0].Info()
	check(t, err)
	doorbells := uint64(1)
	if info.Driver == "verbs" {
		doorbells = (count + 15) / 16 // it posts lists of 16
	}
	if after.Sends != before.Sends+count || after.Doorbells != before.Doorbells+doorbells {
		t.Fatalf("%+v, then %+v", before, after)
	}
	if raceDetector {
		return
	}
	if per := testing.AllocsPerRun(20, func() { batch.Do(ctx) }); per > 20 {
		t.Fatalf("%v allocations for %d ops", per, count)
	}
}

// The struct is C's, and as long as the header says for ever.
func TestQueueOpIsACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(copyrpc.QueueOp{}); size != 64 {
		t.Fatal(size)
	}
	if size := unsafe.Sizeof(copyrpc.Piece{}); size != 24 {
		t.Fatal(size)
	}
	for name, at := range map[string][2]uintptr{
		"Opcode": {unsafe.Offsetof(copyrpc.QueueOp{}.Opcode), 0}, "Flags": {unsafe.Offsetof(copyrpc.QueueOp{}.Flags), 1},
		"Immediate": {unsafe.Offsetof(copyrpc.QueueOp{}.Immediate), 4}, "UserData": {unsafe.Offsetof(copyrpc.QueueOp{}.UserData), 8},
		"Region": {unsafe.Offsetof(copyrpc.QueueOp{}.Region), 16}, "Address": {unsafe.Offsetof(copyrpc.QueueOp{}.Address), 24},
		"Bytes": {unsafe.Offsetof(copyrpc.QueueOp{}.Bytes), 32}, "RemoteKey": {unsafe.Offsetof(copyrpc.QueueOp{}.RemoteKey), 36},
		"RemoteAddress": {unsafe.Offsetof(copyrpc.QueueOp{}.RemoteAddress), 40}, "Operand": {unsafe.Offsetof(copyrpc.QueueOp{}.Operand), 48},
	} {
		if at[0] != at[1] {
			t.Errorf("%s is at %d, not at %d", name, at[0], at[1])
		}
	}
}
