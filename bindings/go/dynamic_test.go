package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const (
	accessKey = 0xfedcba9876543210
	wordPlace = 4096 // where in a region atomics are
	allRights = copyrpc.LocalWrite | copyrpc.RemoteWrite | copyrpc.RemoteRead | copyrpc.RemoteAtomic
)

// dynamicPair is a DCI, and a DCT with receives in another context.
type dynamicPair struct {
	ctx           context.Context
	here, there   *copyrpc.Context
	ours, theirs  *copyrpc.Region
	remote, wrong copyrpc.Remote
	shared        *copyrpc.SharedReceives
	dci           *copyrpc.DCI
	dct           *copyrpc.DCT
	to            copyrpc.Destination
}

func hasDC(t *testing.T, c *copyrpc.Context) bool {
	t.Helper()
	dci, err := c.OpenDCI(copyrpc.QueueOptions{})
	if errors.Is(err, copyrpc.ErrUnsupported) {
		return false
	}
	check(t, err)
	check(t, dci.Close())
	return true
}

func newDynamic(t *testing.T, options copyrpc.QueueOptions) *dynamicPair {
	t.Helper()
	p := &dynamicPair{ctx: limited(t), here: openContext(t, copyrpc.WithQueues()), there: openContext(t, copyrpc.WithQueues())}
	if !hasDC(t, p.here) {
		t.Skip("the device has no DC")
	}
	var err error
	p.ours, err = p.here.NewRegion(1<<16, copyrpc.LocalWrite)
	check(t, err)
	p.theirs, err = p.there.NewRegion(1<<16, allRights)
	check(t, err)
	info, err := p.theirs.Info()
	check(t, err)
	p.remote = info.Remote()
	p.wrong = p.remote
	p.wrong.Key ^= 0x5500
	p.shared, err = p.there.OpenSharedReceives(copyrpc.QueueOptions{Receives: 64})
	check(t, err)
	p.dct = p.openDCT(t, accessKey)
	p.dci, err = p.here.OpenDCI(options)
	check(t, err)
	p.to.Target = p.target(t, p.dct, accessKey)
	return p
}

func (p *dynamicPair) openDCT(t *testing.T, key uint64) *copyrpc.DCT {
	t.Helper()
	dct, err := p.there.OpenDCT(copyrpc.QueueOptions{Shared: p.shared, AccessKey: key})
	check(t, err)
	return dct
}

func (p *dynamicPair) target(t *testing.T, dct *copyrpc.DCT, key uint64) *copyrpc.Target {
	t.Helper()
	address, err := dct.Address()
	check(t, err)
	target, err := p.dci.OpenTarget(address, copyrpc.TargetOptions{AccessKey: key})
	check(t, err)
	return target
}

func (p *dynamicPair) in(stream int) copyrpc.Destination {
	return copyrpc.Destination{Target: p.to.Target, Stream: stream}
}

func (p *dynamicPair) receive(t *testing.T) *copyrpc.Work {
	t.Helper()
	work, err := p.shared.PostReceive(p.theirs.Slice(8192, 8692))
	check(t, err)
	return work
}

func (p *dynamicPair) received(t *testing.T, work *copyrpc.Work) copyrpc.Received {
	t.Helper()
	done, err := work.Wait(p.ctx)
	check(t, err)
	return done.Received()
}

func TestDynamicIsMissing(t *testing.T) {
	c := openContext(t, copyrpc.WithQueues())
	if hasDC(t, c) {
		t.Skip("the device has DC")
	}
	shared, err := c.OpenSharedReceives(copyrpc.QueueOptions{Receives: 1})
	check(t, err)
	_, err = c.OpenDCI(copyrpc.QueueOptions{Streams: 4})
	is(t, err, copyrpc.ErrUnsupported)
	if !strings.Contains(err.Error(), "mlx5") {
		t.Fatal(err)
	}
	_, err = c.OpenDCT(copyrpc.QueueOptions{Shared: shared})
	is(t, err, copyrpc.ErrUnsupported)
}

func TestDynamicOps(t *testing.T) {
	for _, streams := range []int{0, 4} {
		p := newDynamic(t, copyrpc.QueueOptions{Streams: streams})
		info, err := p.dci.Info()
		check(t, err)
		for stream := 0; stream < max(streams, 1); stream++ {
			to := p.in(stream)
			for i := range p.ours.Bytes()[:500] {
				p.ours.Bytes()[i] = byte(i*7 + stream)
			}
			data := append([]byte(nil), p.ours.Bytes()[:500]...)
			work := p.receive(t)
			check(t, p.dci.SendImmediate(p.ctx, p.ours.Slice(0, 500), 7, to))
			r := p.received(t, work)
			if r.Bytes != 500 || !r.HasImmediate || r.Immediate != 7 || r.Queue != p.dct.Handle() || r.Written != 0 ||
				!bytes.Equal(p.theirs.Bytes()[8192:8692], data) || r.Source() != 0 && r.Source() != info.QueuePairNumber {
				t.Fatalf("%+v", r)
			}
			work = p.receive(t)
			check(t, p.dci.SendBytes(p.ctx, nil, to))
			if r := p.received(t, work); r.Bytes != 0 || r.HasImmediate || r.Written != 0 || r.Queue != p.dct.Handle() {
				t.Fatalf("%+v", r)
			}
			work = p.receive(t)
			check(t, p.dci.WriteImmediate(p.ctx, p.ours.Slice(0, 300), p.remote.At(64), 9, to))
			if r := p.received(t, work); r.Bytes != 0 || r.Immediate != 9 || r.Written != 300 {
				t.Fatalf("%+v", r)
			}
			work = p.receive(t)
			check(t, p.dci.Send(p.ctx, p.ours.Slice(0, 10), to))
			if r := p.received(t, work); r.Bytes != 10 {
				t.Fatalf("%+v", r)
			}
			check(t, p.dci.WriteBytes(p.ctx, []byte("hello"), p.remote, to))
			check(t, p.dci.Write(p.ctx, p.ours.Slice(0, 5), p.remote.At(8), to))
			check(t, p.dci.Read(p.ctx, p.ours.Slice(1000, 1013), p.remote, to))
			if got := p.ours.Bytes()[1000:1013]; string(got[:5]) != "hello" || !bytes.Equal(got[8:], data[:5]) {
				t.Fatalf("%q", got)
			}
			check(t, p.dci.WriteBytes(p.ctx, make([]byte, 8), p.remote.At(wordPlace), to))
			before, err := p.dci.FetchAdd(p.ctx, p.remote.At(wordPlace), 42, to)
			check(t, err)
			swapped, err := p.dci.CompareSwap(p.ctx, p.remote.At(wordPlace), 42, 9, to)
			check(t, err)
			now, err := p.dci.CompareSwap(p.ctx, p.remote.At(wordPlace), 42, 8, to)
			check(t, err)
			if before != 0 || swapped != 42 || now != 9 {
				t.Fatal(before, swapped, now)
			}
			op := copyrpc.QueueOp{Opcode: copyrpc.QueueWrite, Flags: copyrpc.QueueFence}
			check(t, op.SetDestination(to))
			op.SetRemote(p.remote.At(200))
			posted, err := p.dci.Post(op, p.ours.Slice(0, 8))
			check(t, err)
			_, err = posted.Wait(p.ctx)
			check(t, err)
		}
		if stats, err := p.dci.Stats(); err != nil || stats.Sends != uint64(12*max(streams, 1)) {
			t.Fatal(err, stats)
		}
	}
}

func TestDynamicSendsToMany(t *testing.T) {
	const many = 8
	p := newDynamic(t, copyrpc.QueueOptions{Streams: 4})
	dcts := map[copyrpc.QueueHandle]int{}
	var targets [many]*copyrpc.Target
	var works [2 * many]*copyrpc.Work
	for i := range targets {
		dct := p.openDCT(t, uint64(i)) // 0 is a key as any other
		dcts[dct.Handle()] = i
		targets[i] = p.target(t, dct, uint64(i))
	}
	for i := range works {
		var err error
		works[i], err = p.shared.PostReceive(p.theirs.Slice(64*i, 64*i+64))
		check(t, err)
	}
	var senders sync.WaitGroup
	for i := range works {
		senders.Add(1)
		go func(i int) {
			defer senders.Done()
			to := copyrpc.Destination{Target: targets[i%many], Stream: i % 4}
			if err := p.dci.SendImmediate(p.ctx, p.ours.Slice(0, 16), uint32(i), to); err != nil {
				t.Error(err)
			}
		}(i)
	}
	senders.Wait()
	seen := map[uint32]bool{}
	for _, work := range works {
		r := p.received(t, work)
		if dct, ok := dcts[r.Queue]; !ok || dct != int(r.Immediate)%many || seen[r.Immediate] {
			t.Fatalf("%+v", r)
		}
		seen[r.Immediate] = true
	}
}

func TestDynamicStreamsFailAlone(t *testing.T) {
	p := newDynamic(t, copyrpc.QueueOptions{Streams: 4})
	for turn := 0; turn < 3; turn++ {
		is(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.wrong, p.in(2)), copyrpc.ErrAccess)
		is(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.remote, p.in(2)), copyrpc.ErrFlushed)
		check(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.remote, p.in(1)))
		if info, err := p.dci.Info(); err != nil || info.Streams != 4 || info.StreamsFailed != 1 {
			t.Fatal(err, info)
		}
		check(t, p.dci.ResetStream(2))
		check(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.remote, p.in(2)))
	}
	check(t, p.dci.ResetStream(0)) // it has not failed
	if info, err := p.dci.Info(); err != nil || info.StreamsFailed != 0 || p.dci.Err() != nil {
		t.Fatal(err, info, p.dci.Err())
	}
	for _, stream := range []int{4, -1, 1 << 16} {
		is(t, p.dci.ResetStream(stream), copyrpc.ErrInvalid)
	}
	op := copyrpc.QueueOp{Opcode: copyrpc.QueueSend}
	check(t, op.SetDestination(p.in(3)))
	waiting, err := p.dci.Post(op, p.ours.Slice(0, 8)) // nobody receives
	check(t, err)
	for { // until it is with the device
		if info, err := p.dci.Info(); err != nil || info.SendsOpen > 0 {
			check(t, err)
			break
		}
	}
	err = p.dci.ResetStream(3)
	is(t, err, copyrpc.ErrBusy)
	if !strings.Contains(err.Error(), "stream 3") {
		t.Fatal(err)
	}
	work := p.receive(t)
	_, err = waiting.Wait(p.ctx)
	check(t, err)
	p.received(t, work)
	check(t, p.dci.ResetStream(3))
}

func TestDynamicWrongThere(t *testing.T) {
	p := newDynamic(t, copyrpc.QueueOptions{Streams: 8, NotReadyRetryCount: 2})
	gone := p.openDCT(t, 5)
	nobody := p.target(t, gone, 5)
	check(t, gone.Close())
	for stream, target := range map[int]*copyrpc.Target{1: nobody, 2: p.target(t, p.dct, accessKey+1)} {
		err := p.dci.WriteBytes(p.ctx, []byte("x"), p.remote, copyrpc.Destination{Target: target, Stream: stream})
		if !errors.Is(err, copyrpc.ErrDisconnected) && !errors.Is(err, copyrpc.ErrAccess) {
			t.Fatal(err)
		}
	}
	is(t, p.dci.SendBytes(p.ctx, []byte("x"), p.in(3)), copyrpc.ErrNotReady)
	if info, err := p.dci.Info(); err != nil || info.StreamsFailed != 3 {
		t.Fatal(err, info)
	}
	check(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.remote, p.in(0)))
}

func TestDynamicEnds(t *testing.T) {
	p := newDynamic(t, copyrpc.QueueOptions{})
	is(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.wrong, p.to), copyrpc.ErrAccess) // without streams, one is enough
	<-p.dci.Done()
	if p.dci.Err() == nil {
		t.Fatal("it has not ended")
	}
	is(t, p.dci.ResetStream(0), copyrpc.ErrState)
	check(t, p.dci.Close())

	limited, err := p.here.OpenDCI(copyrpc.QueueOptions{Streams: 8, StreamFailuresMax: 1})
	check(t, err)
	for stream := 1; stream < 3; stream++ {
		is(t, limited.WriteBytes(p.ctx, []byte("x"), p.wrong, p.in(stream)), copyrpc.ErrAccess)
	}
	<-limited.Done()
	check(t, limited.Close())

	drained, err := p.here.OpenDCI(copyrpc.QueueOptions{})
	check(t, err)
	check(t, drained.WriteBytes(p.ctx, []byte("x"), p.remote, p.to))
	check(t, drained.Drain(p.ctx))
	is(t, drained.WriteBytes(p.ctx, []byte("x"), p.remote, p.to), copyrpc.ErrDisconnected)

	closed, err := p.here.OpenDCI(copyrpc.QueueOptions{Streams: 4})
	check(t, err)
	var works []*copyrpc.Work
	for i := 0; i < 64; i++ {
		op := copyrpc.QueueOp{Opcode: copyrpc.QueueWrite}
		check(t, op.SetDestination(p.in(i%4)))
		op.SetRemote(p.remote)
		work, err := closed.Post(op, p.ours.Slice(0, 64))
		check(t, err)
		works = append(works, work)
	}
	check(t, closed.Close())
	check(t, closed.Close())
	for _, work := range works {
		if _, err := work.Wait(p.ctx); err != nil && !errors.Is(err, copyrpc.ErrClosed) {
			t.Fatal(err)
		}
	}
	is(t, closed.SendBytes(p.ctx, nil, p.to), copyrpc.ErrClosed)
	is(t, p.shared.Close(), copyrpc.ErrBusy)
	check(t, p.dct.Close())
	<-p.dct.Done()
	is(t, p.dct.Err(), copyrpc.ErrClosed)
	check(t, p.shared.Close())
}

func TestDynamicBatches(t *testing.T) {
	const count = 1000
	p := newDynamic(t, copyrpc.QueueOptions{Streams: 4})
	for i := range p.ours.Bytes() {
		p.ours.Bytes()[i] = byte(i * 13)
	}
	batch, err := p.dci.Batch(count)
	check(t, err)
	defer batch.Close()
	fill := func() {
		for i := range batch.Ops() {
			op := &batch.Ops()[i]
			*op = copyrpc.QueueOp{Opcode: copyrpc.QueueWrite, UserData: uint64(i)}
			check(t, op.SetDestination(p.in(i%4)))
			check(t, op.SetBuffer(p.ours.Slice(16*i, 16*i+16)))
			op.SetRemote(p.remote.At(16 * i))
		}
	}
	fill()
	done, err := batch.Do(p.ctx)
	check(t, err)
	for i := range done {
		if done[i].Status != 0 || done[i].UserData != uint64(i) || done[i].Queue() != p.dci.Handle() {
			t.Fatalf("%d: %+v", i, done[i])
		}
	}
	if !bytes.Equal(p.theirs.Bytes()[:16*count], p.ours.Bytes()[:16*count]) {
		t.Fatal("not all was written")
	}
	fill()
	batch.Ops()[501].RemoteKey ^= 0x5500 // in stream 1
	done, err = batch.Do(p.ctx)
	is(t, err, copyrpc.ErrAccess)
	for i := range done {
		want := copyrpc.OK
		switch {
		case i == 501:
			want = copyrpc.ErrAccess
		case i > 501 && i%4 == 1:
			want = copyrpc.ErrFlushed
		}
		if copyrpc.Status(done[i].Status) != want {
			t.Fatalf("%d: %s", i, copyrpc.Status(done[i].Status).Name())
		}
	}
	check(t, p.dci.ResetStream(1))
	fill()
	_, err = batch.Do(p.ctx)
	check(t, err)
	receives, err := p.shared.Batch(32)
	check(t, err)
	defer receives.Close()
	for i := range receives.Ops() {
		receives.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive}
		check(t, receives.Ops()[i].SetBuffer(p.theirs.Slice(64*i, 64*i+64)))
	}
	check(t, receives.Submit(32))
	fill()
	for i := range batch.Ops()[:32] {
		batch.Ops()[i].Opcode, batch.Ops()[i].Immediate = copyrpc.QueueWriteImmediate, uint32(i)
	}
	_, err = batch.DoFirst(p.ctx, 32)
	check(t, err)
	came, err := receives.Wait(p.ctx)
	check(t, err)
	seen := map[uint32]bool{}
	for i := range came {
		r := came[i].Received()
		if r.Queue != p.dct.Handle() || r.Written != 16 || r.Immediate >= 32 || seen[r.Immediate] {
			t.Fatalf("%+v", r)
		}
		seen[r.Immediate] = true
	}
}

func TestDynamicBadInput(t *testing.T) {
	p := newDynamic(t, copyrpc.QueueOptions{Streams: 4})
	ctx, buffer := p.ctx, p.ours.Slice(0, 8)
	letters, err := p.here.OpenDatagrams(copyrpc.QueueOptions{})
	check(t, err)
	address, err := letters.Address()
	check(t, err)
	letter, err := letters.OpenTarget(address, copyrpc.TargetOptions{})
	check(t, err)
	other, err := p.there.OpenDCI(copyrpc.QueueOptions{})
	check(t, err)
	foreign, err := other.OpenTarget(address, copyrpc.TargetOptions{})
	check(t, err)
	closed := p.target(t, p.dct, accessKey)
	check(t, closed.Close())
	for _, c := range []struct {
		to     copyrpc.Destination
		status copyrpc.Status
	}{
		{copyrpc.Destination{}, copyrpc.ErrInvalid},
		{copyrpc.Destination{Target: &copyrpc.Target{}}, copyrpc.ErrInvalid},
		{copyrpc.Destination{Target: letter}, copyrpc.ErrInvalid},
		{copyrpc.Destination{Target: foreign}, copyrpc.ErrInvalid},
		{copyrpc.Destination{Target: closed}, copyrpc.ErrClosed},
		{p.in(-1), copyrpc.ErrInvalid},
		{p.in(1 << 16), copyrpc.ErrInvalid},
		{p.in(4), copyrpc.ErrInvalid},
		{p.in(1<<16 - 1), copyrpc.ErrInvalid},
	} {
		is(t, p.dci.Send(ctx, buffer, c.to), c.status)
		is(t, p.dci.SendBytes(ctx, []byte("x"), c.to), c.status)
		is(t, p.dci.SendImmediate(ctx, buffer, 1, c.to), c.status)
		is(t, p.dci.Write(ctx, buffer, p.remote, c.to), c.status)
		is(t, p.dci.WriteBytes(ctx, nil, p.remote, c.to), c.status)
		is(t, p.dci.WriteImmediate(ctx, buffer, p.remote, 1, c.to), c.status)
		is(t, p.dci.Read(ctx, buffer, p.remote, c.to), c.status)
		_, err = p.dci.FetchAdd(ctx, p.remote, 1, c.to)
		is(t, err, c.status)
		_, err = p.dci.CompareSwap(ctx, p.remote, 1, 2, c.to)
		is(t, err, c.status)
	}
	is(t, letters.SendBytes(ctx, nil, p.to.Target), copyrpc.ErrInvalid)
	_, err = letters.OpenTarget(address, copyrpc.TargetOptions{ForDCI: true})
	is(t, err, copyrpc.ErrInvalid)
	_, err = letters.OpenTarget(address, copyrpc.TargetOptions{AccessKey: 1})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.dci.OpenTarget(address, copyrpc.TargetOptions{QueueKey: 1})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.dci.OpenTarget(copyrpc.QueueAddress{}, copyrpc.TargetOptions{})
	is(t, err, copyrpc.ErrProtocol)
	_, err = p.dci.FetchAdd(ctx, p.remote.At(4), 1, p.to) // not a multiple of 8
	is(t, err, copyrpc.ErrInvalid)
	for _, op := range []copyrpc.QueueOp{{Opcode: copyrpc.QueueSendInvalidate, Target: p.to.Target.Handle()}, {Opcode: copyrpc.QueueReceive}} {
		work, err := p.dci.Post(op, copyrpc.Buffer{})
		check(t, err)
		_, err = work.Wait(ctx)
		is(t, err, copyrpc.ErrUnsupported)
	}
	for _, options := range []copyrpc.QueueOptions{{Streams: -1}, {Streams: 1 << 16}, {StreamFailuresMax: 1}, {Streams: 4, StreamFailuresMax: 5},
		{Receives: 1}, {AccessKey: 1}, {QueueKey: 1}, {Private: []byte("x")}, {Shared: p.shared}} {
		_, err = p.there.OpenDCI(options)
		is(t, err, copyrpc.ErrInvalid)
	}
	for _, options := range []copyrpc.QueueOptions{{}, {Shared: p.shared, Sends: 1}, {Shared: p.shared, Streams: 1}, {Shared: p.shared, Receives: 1}} {
		_, err = p.there.OpenDCT(options)
		is(t, err, copyrpc.ErrInvalid)
	}
	if most, err := p.here.OpenDCI(copyrpc.QueueOptions{Streams: 1<<16 - 1}); err == nil { // the device has them
		check(t, most.Close())
	} else if is(t, err, copyrpc.ErrUnsupported); !strings.Contains(err.Error(), "streams") {
		t.Fatal(err)
	}
	if stats, err := p.dci.Stats(); err != nil || stats.Sends != 0 || p.dci.Err() != nil {
		t.Fatal(err, stats, p.dci.Err())
	}
	for _, never := range []*copyrpc.DCI{nil, {}} {
		is(t, never.Send(ctx, buffer, p.to), copyrpc.ErrClosed)
		is(t, never.SendBytes(ctx, nil, p.to), copyrpc.ErrClosed)
		is(t, never.ResetStream(0), copyrpc.ErrClosed)
		is(t, never.Drain(ctx), copyrpc.ErrClosed)
		is(t, never.Err(), copyrpc.ErrClosed)
		check(t, never.Close())
		<-never.Done()
		_, err := never.Post(copyrpc.QueueOp{}, buffer)
		is(t, err, copyrpc.ErrClosed)
		_, err = never.Batch(1)
		is(t, err, copyrpc.ErrClosed)
		_, err = never.Info()
		is(t, err, copyrpc.ErrClosed)
		_, err = never.Stats()
		is(t, err, copyrpc.ErrClosed)
		_, err = never.OpenTarget(address, copyrpc.TargetOptions{})
		is(t, err, copyrpc.ErrClosed)
		if never.Handle() != 0 {
			t.Fatal(never.Handle())
		}
	}
	for _, never := range []*copyrpc.DCT{nil, {}} {
		is(t, never.Err(), copyrpc.ErrClosed)
		check(t, never.Close())
		<-never.Done()
		_, err := never.Info()
		is(t, err, copyrpc.ErrClosed)
		_, err = never.Address()
		is(t, err, copyrpc.ErrClosed)
		if never.Handle() != 0 {
			t.Fatal(never.Handle())
		}
	}
}

func TestDynamicDoneContext(t *testing.T) {
	p := newDynamic(t, copyrpc.QueueOptions{Streams: 2})
	ctx, cancel := context.WithCancel(p.ctx)
	waiting := make(chan error, 1)
	go func() { waiting <- p.dci.Send(ctx, p.ours.Slice(0, 8), p.in(1)) }() // nobody receives
	for {
		if info, err := p.dci.Info(); err != nil || info.SendsOpen > 0 {
			check(t, err)
			break
		}
	}
	cancel()
	is(t, <-waiting, copyrpc.ErrCanceled)
	is(t, p.ours.Close(), copyrpc.ErrBusy) // the op goes on
	is(t, p.dci.Send(ctx, p.ours.Slice(0, 8), p.in(0)), copyrpc.ErrCanceled)
	p.received(t, p.receive(t))
	check(t, p.dci.WriteBytes(p.ctx, []byte("x"), p.remote, p.in(0))) // simnic's streams take turns
	check(t, p.dci.Drain(p.ctx))
	check(t, p.ours.Close())
}
