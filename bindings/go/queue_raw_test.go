package copyrpc_test

import (
	"bytes"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// rawQueues is two contexts driven by hand in one goroutine, with a queue between them, and a region on each side.
type rawQueues struct {
	raw     [2]*copyrpc.RawContext
	ends    [2]copyrpc.QueueHandle
	memory  [2][]byte
	regions [2]copyrpc.RegionHandle
	infos   [2]copyrpc.RegionInfo
	kept    [2][]copyrpc.Completion
}

// next polls both until one has a completion of that kind; others of its are kept for later.
func (p *rawQueues) next(t *testing.T, side int, kind uint8) copyrpc.Completion {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		for i, done := range p.kept[side] {
			if done.Kind == kind {
				p.kept[side] = append(p.kept[side][:i:i], p.kept[side][i+1:]...)
				return done
			}
		}
		for i, raw := range p.raw {
			count, status := raw.Poll()
			if status != copyrpc.OK {
				t.Fatal(status)
			}
			p.kept[i] = append(p.kept[i], raw.Completions[:count]...)
		}
	}
	t.Fatalf("no completion of kind %d; there are %+v", kind, p.kept)
	return copyrpc.Completion{}
}

func newRawQueues(t *testing.T, options copyrpc.QueueOptions) *rawQueues {
	t.Helper()
	p := &rawQueues{}
	for i := range p.raw {
		p.memory[i] = mapped(t, queueRegionBytes)
		raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{QueueOps: 512, Completions: 512, Pieces: 4}, copyrpc.WithQueues())
		check(t, err)
		t.Cleanup(func() { raw.Close() })
		p.raw[i] = raw
		p.regions[i], err = p.raw[i].Register(pointer(p.memory[i]), len(p.memory[i]), anyAccess)
		check(t, err)
		p.infos[i], err = p.raw[i].RegionInfo(p.regions[i])
		check(t, err)
	}
	listener, err := p.raw[1].ListenQueues(host()+":0", 5)
	check(t, err)
	address, err := p.raw[1].ListenerAddress(listener)
	check(t, err)
	options.ConnectTimeout = time.Minute
	options.Private = []byte("raw")
	p.ends[0], err = p.raw[0].ConnectQueue(address, 7, options)
	check(t, err)
	request := p.next(t, 1, copyrpc.CompletionConnectRequest)
	if request.Flags != copyrpc.CompletionOfQueue || request.UserData != 5 {
		t.Fatalf("%+v", request)
	}
	p.ends[1] = request.Queue()
	info, err := p.raw[1].QueueInfo(p.ends[1])
	check(t, err)
	if !bytes.HasPrefix(info.Private, []byte("raw")) || info.State != copyrpc.StateRequested {
		t.Fatalf("%+v", info)
	}
	check(t, p.raw[1].AcceptQueue(p.ends[1], 9, options))
	for side, userData := range []uint64{7, 9} {
		done := p.next(t, side, copyrpc.CompletionConnected)
		if done.Status != 0 || done.EndpointUserData != userData || done.Queue() != p.ends[side] {
			t.Fatalf("%+v", done)
		}
	}
	return p
}

// write is a WRITE of 8 bytes from the left to the right.
func (p *rawQueues) write(at int, flags uint8) copyrpc.QueueOp {
	return copyrpc.QueueOp{Opcode: copyrpc.QueueWrite, Flags: flags, UserData: uint64(at), Region: p.regions[0], Bytes: 8,
		Address: p.infos[0].Address + uint64(8*at), RemoteAddress: p.infos[1].Address + uint64(8*at), RemoteKey: p.infos[1].RemoteKey}
}

func TestRawQueues(t *testing.T) {
	p := newRawQueues(t, copyrpc.QueueOptions{Sends: 64, Receives: 2})
	const count = 500 // more than there is room for
	for i := 0; i < count; i++ {
		p.memory[0][8*i] = byte(i + 1)
		p.raw[0].QueueOps[i] = p.write(i, 0)
	}
	for submitted, completed := 0, 0; completed < count; {
		taken, status := p.raw[0].SubmitQueueFrom(p.ends[0], submitted, count-submitted)
		submitted += taken
		if (status == copyrpc.OK) != (submitted == count) || status != copyrpc.OK && status != copyrpc.ErrAgain {
			t.Fatal(taken, status.Name())
		}
		if status == copyrpc.ErrAgain {
			if room := p.next(t, 0, copyrpc.CompletionRoom); room.Queue() != p.ends[0] {
				t.Fatalf("%+v", room)
			}
		}
		for ; completed < submitted; completed++ {
			done := p.next(t, 0, copyrpc.CompletionWork)
			if done.Status != 0 || done.UserData != uint64(completed) || done.Method != copyrpc.QueueWrite ||
				done.EndpointUserData != 7 || done.View() != nil {
				t.Fatalf("%+v", done)
			}
		}
	}
	if !bytes.Equal(p.memory[0][:8*count], p.memory[1][:8*count]) {
		t.Fatal("the bytes differ")
	}
	p.raw[1].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, UserData: 3, Flags: copyrpc.QueuePieces, Bytes: 1}
	p.raw[1].Pieces[0] = copyrpc.Piece{Region: p.regions[1], Address: p.infos[1].Address, Bytes: 100}
	if taken, status := p.raw[1].SubmitQueue(p.ends[1], 1); taken != 1 {
		t.Fatal(status.Name())
	}
	p.raw[0].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueSendImmediate, Immediate: 77, UserData: 4, Region: p.regions[0],
		Address: p.infos[0].Address + 8, Bytes: 33}
	if taken, status := p.raw[0].SubmitQueue(p.ends[0], 1); taken != 1 {
		t.Fatal(status.Name())
	}
	done := p.next(t, 1, copyrpc.CompletionWork)
	if immediate, ok := done.Immediate(); !ok || immediate != 77 || done.PayloadBytes != 33 || done.UserData != 3 || done.View() != nil {
		t.Fatalf("%+v", done)
	}
	stats, err := p.raw[0].QueueStats(p.ends[0])
	check(t, err)
	if stats.Sends != count+1 {
		t.Fatalf("%+v", stats)
	}
	p.next(t, 0, copyrpc.CompletionWork)
	check(t, p.raw[0].QueueError(p.ends[0]))
	check(t, p.raw[0].DrainQueue(p.ends[0], copyrpc.Forever))
	if done := p.next(t, 0, copyrpc.CompletionDisconnected); done.Status != 0 || done.Queue() != p.ends[0] {
		t.Fatalf("%+v", done)
	}
	p.next(t, 1, copyrpc.CompletionDisconnected)
	if p.raw[1].QueueError(p.ends[1]) == nil {
		t.Fatal("it does not tell why it has ended")
	}
	for side := range p.raw {
		check(t, p.raw[side].CloseQueue(p.ends[side]))
		is(t, p.raw[side].CloseQueue(p.ends[side]), copyrpc.ErrStale)
	}
}

func TestRawSparseQueues(t *testing.T) {
	p := newRawQueues(t, copyrpc.QueueOptions{Sparse: true})
	for i := 0; i < 100; i++ {
		flags := uint8(0)
		if i%10 == 9 {
			flags = copyrpc.QueueSignal
		}
		p.raw[0].QueueOps[i] = p.write(i, flags)
	}
	if taken, status := p.raw[0].SubmitQueue(p.ends[0], 100); taken != 100 {
		t.Fatal(status.Name())
	}
	for i := 9; i < 100; i += 10 {
		if done := p.next(t, 0, copyrpc.CompletionWork); done.Status != 0 || done.UserData != uint64(i) {
			t.Fatalf("%+v", done)
		}
	}
}

func TestRawQueuesByAddress(t *testing.T) {
	p := newRawQueues(t, copyrpc.QueueOptions{})
	var ends [2]copyrpc.QueueHandle
	var addresses [2]copyrpc.QueueAddress
	for i := range ends {
		var err error
		ends[i], _, err = p.raw[i].QueueBlob(uint64(30+i), copyrpc.QueueOptions{RetryTimeout: 20, RetryCount: 7, SequenceZero: i == 1})
		check(t, err)
		addresses[i], err = p.raw[i].QueueAddress(ends[i])
		check(t, err)
		if addresses[i].QueuePairNumber == 0 || addresses[i].MTUBytes < 256 || !addresses[i].GID.IsValid() {
			t.Fatalf("%+v", addresses[i])
		}
	}
	if addresses[1].PacketSequenceNumber != 0 {
		t.Fatalf("%+v", addresses[1])
	}
	_, err := p.raw[0].OpenSharedReceives(32, copyrpc.QueueOptions{Receives: 4, SequenceZero: true}) // it has no packets
	is(t, err, copyrpc.ErrInvalid)
	is(t, p.raw[0].JoinQueueAddress(ends[0], copyrpc.QueueAddress{}), copyrpc.ErrProtocol)
	is(t, p.raw[0].JoinQueueAddress(ends[0], copyrpc.QueueAddress{MTUBytes: -1}), copyrpc.ErrProtocol)
	for i := range ends {
		check(t, p.raw[i].JoinQueueAddress(ends[i], addresses[1-i]))
	}
	for i := range ends {
		if done := p.next(t, i, copyrpc.CompletionConnected); done.Status != 0 || done.EndpointUserData != uint64(30+i) {
			t.Fatalf("%+v", done)
		}
	}
	p.memory[0][16] = 99
	p.raw[0].QueueOps[0] = p.write(2, 0)
	if taken, status := p.raw[0].SubmitQueue(ends[0], 1); taken != 1 {
		t.Fatal(status.Name())
	}
	if done := p.next(t, 0, copyrpc.CompletionWork); done.Status != 0 || p.memory[1][16] != 99 {
		t.Fatalf("%+v", done)
	}
	info, err := p.raw[0].QueueInfo(ends[0])
	check(t, err)
	if info.PeerNumber != addresses[1].QueuePairNumber {
		t.Fatalf("%+v", info)
	}
}

func TestRawSharedReceivesAndEnds(t *testing.T) {
	p := newRawQueues(t, copyrpc.QueueOptions{Receives: 4})
	shared, err := p.raw[1].OpenSharedReceives(50, copyrpc.QueueOptions{Receives: 4})
	check(t, err)
	far, _, err := p.raw[1].QueueBlob(51, copyrpc.QueueOptions{ReceiveQueue: shared})
	check(t, err)
	is(t, p.raw[1].CloseQueue(shared), copyrpc.ErrBusy)
	is(t, p.raw[1].FailQueue(shared), copyrpc.ErrUnsupported)
	p.raw[1].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, UserData: 1, Region: p.regions[1],
		Address: p.infos[1].Address, Bytes: 8}
	for _, queue := range []copyrpc.QueueHandle{shared, p.ends[1]} {
		if taken, status := p.raw[1].SubmitQueue(queue, 1); taken != 1 {
			t.Fatal(status.Name())
		}
	}
	check(t, p.raw[1].FailQueue(p.ends[1]))
	if done := p.next(t, 1, copyrpc.CompletionWork); copyrpc.Status(done.Status) != copyrpc.ErrFlushed || done.Queue() != p.ends[1] {
		t.Fatalf("%+v", done)
	}
	p.next(t, 1, copyrpc.CompletionDisconnected)
	check(t, p.raw[1].CloseQueue(far))
	check(t, p.raw[1].CloseQueue(shared))
	if done := p.next(t, 1, copyrpc.CompletionWork); copyrpc.Status(done.Status) != copyrpc.ErrClosed || done.Queue() != shared {
		t.Fatalf("%+v", done)
	}
	raw := p.raw[0]
	if _, status := raw.SubmitQueue(12345, 1); status != copyrpc.ErrStale {
		t.Fatal(status.Name())
	}
	if _, status := raw.SubmitQueue(p.ends[0], 513); status != copyrpc.ErrInvalid {
		t.Fatal(status.Name())
	}
	if _, status := raw.SubmitQueueFrom(p.ends[0], -1, 1); status != copyrpc.ErrInvalid {
		t.Fatal(status.Name())
	}
	if taken, status := raw.SubmitQueue(p.ends[0], 0); taken != 0 || status != copyrpc.OK {
		t.Fatal(status.Name())
	}
	is(t, raw.RejectQueue(p.ends[0], nil), copyrpc.ErrState)
	is(t, raw.RejectQueue(p.ends[0], make([]byte, 149)), copyrpc.ErrTooBig)
	is(t, raw.DrainQueue(p.ends[0], -1), copyrpc.ErrInvalid)
	is(t, raw.AcceptQueue(0, 1, copyrpc.QueueOptions{}), copyrpc.ErrStale)
	is(t, raw.JoinQueue(0, make([]byte, 100)), copyrpc.ErrStale)
	_, err = raw.QueueInfo(0)
	is(t, err, copyrpc.ErrStale)
	_, err = raw.QueueAddress(0)
	is(t, err, copyrpc.ErrStale)
	_, err = raw.ConnectQueue("x:1", 0, copyrpc.QueueOptions{Sends: -1})
	is(t, err, copyrpc.ErrInvalid)
	_, err = copyrpc.OpenRaw(copyrpc.RawSizes{Pieces: copyrpc.SubmitPiecesMax + 1})
	is(t, err, copyrpc.ErrInvalid)
	check(t, raw.Close())
	if _, status := raw.SubmitQueue(p.ends[0], 1); status != copyrpc.ErrClosed {
		t.Fatal(status.Name())
	}
	is(t, raw.FailQueue(p.ends[0]), copyrpc.ErrClosed)
	is(t, raw.JoinQueueAddress(p.ends[0], copyrpc.QueueAddress{}), copyrpc.ErrClosed)
}

func TestRawQueuesNeverAllocate(t *testing.T) {
	p := newRawQueues(t, copyrpc.QueueOptions{})
	for i := 0; i < 64; i++ {
		p.raw[0].QueueOps[i] = p.write(i, 0)
	}
	per := testing.AllocsPerRun(100, func() {
		if taken, status := p.raw[0].SubmitQueue(p.ends[0], 64); taken != 64 {
			t.Fatal(status.Name())
		}
		for left := 64; left > 0; {
			count, _ := p.raw[0].Poll()
			left -= count
			p.raw[1].Poll()
		}
	})
	if per != 0 {
		t.Fatalf("%v allocations a batch", per)
	}
}
