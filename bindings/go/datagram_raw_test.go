package copyrpc_test

import (
	"bytes"
	"errors"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// newRawDatagrams is a rawQueues of queues for datagrams, which are not connected.
func newRawDatagrams(t *testing.T, options copyrpc.QueueOptions) *rawQueues {
	t.Helper()
	p := &rawQueues{}
	for i := range p.raw {
		p.memory[i] = mapped(t, queueRegionBytes)
		raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{QueueOps: 64, Completions: 64, Pieces: 4}, copyrpc.WithQueues())
		check(t, err)
		t.Cleanup(func() { raw.Close() })
		p.raw[i] = raw
		p.regions[i], err = raw.Register(pointer(p.memory[i]), len(p.memory[i]), copyrpc.LocalWrite)
		check(t, err)
		p.infos[i], err = raw.RegionInfo(p.regions[i])
		check(t, err)
		p.ends[i], err = raw.OpenDatagrams(uint64(7+i), options)
		check(t, err)
	}
	return p
}

func (p *rawQueues) submitOne(t *testing.T, side int, op copyrpc.QueueOp) {
	t.Helper()
	p.raw[side].QueueOps[0] = op
	if taken, status := p.raw[side].SubmitQueue(p.ends[side], 1); taken != 1 {
		t.Fatal(status.Name())
	}
}

func TestRawDatagrams(t *testing.T) {
	p := newRawDatagrams(t, copyrpc.QueueOptions{Receives: 4, QueueKey: 77})
	address, err := p.raw[1].QueueAddress(p.ends[1])
	check(t, err)
	target, err := p.raw[0].OpenTarget(address, copyrpc.TargetOptions{QueueKey: 77})
	check(t, err)
	wrong, err := p.raw[0].OpenTarget(address, copyrpc.TargetOptions{})
	check(t, err)
	for side := range p.raw {
		p.submitOne(t, side, copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, UserData: 3, Region: p.regions[side],
			Address: p.infos[side].Address + 4096, Bytes: 1000})
	}
	copy(p.memory[0], "who is there?")
	send := copyrpc.QueueOp{Opcode: copyrpc.QueueSend, Region: p.regions[0], Address: p.infos[0].Address, Bytes: 13, Target: wrong}
	p.submitOne(t, 0, send) // it is lost
	send.Target = target
	p.submitOne(t, 0, send)
	for i := 0; i < 2; i++ {
		if done := p.next(t, 0, copyrpc.CompletionWork); done.Status != 0 || done.Method != copyrpc.QueueSend || done.EndpointUserData != 7 {
			t.Fatalf("%+v", done)
		}
	}
	arrived := p.next(t, 1, copyrpc.CompletionWork)
	info, err := p.raw[0].QueueInfo(p.ends[0])
	check(t, err)
	received := p.memory[1][4096:]
	if arrived.PayloadBytes != copyrpc.QueueHeaderBytes+13 ||
		arrived.Source() != info.QueuePairNumber || !bytes.HasPrefix(received[copyrpc.QueueHeaderBytes:], []byte("who is there?")) {
		t.Fatalf("%+v", arrived)
	}
	back, err := p.raw[1].TargetOf(&arrived, received)
	check(t, err)
	from, err := p.raw[1].TargetAddress(back)
	check(t, err)
	if here, err := p.raw[0].QueueAddress(p.ends[0]); err != nil || !isSender(from, here) ||
		(arrived.Flags&copyrpc.CompletionGRH != 0) == here.InfiniBand {
		t.Fatal(err, from, here)
	}
	copy(p.memory[1], "it is me")
	p.submitOne(t, 1, copyrpc.QueueOp{Opcode: copyrpc.QueueSendImmediate, Immediate: 9, Region: p.regions[1], Address: p.infos[1].Address,
		Bytes: 8, Target: back})
	check(t, p.raw[1].CloseTarget(back))
	answer := p.next(t, 0, copyrpc.CompletionWork)
	if number, ok := answer.Immediate(); !ok || number != 9 || answer.PayloadBytes != copyrpc.QueueHeaderBytes+8 {
		t.Fatalf("%+v", answer)
	}
	check(t, p.raw[0].DrainQueue(p.ends[0], 0))
	if done := p.next(t, 0, copyrpc.CompletionDisconnected); done.EndpointUserData != 7 {
		t.Fatalf("%+v", done)
	}
}

func TestRawDatagramsBadInput(t *testing.T) {
	p := newRawDatagrams(t, copyrpc.QueueOptions{Receives: 4})
	address, err := p.raw[1].QueueAddress(p.ends[1])
	check(t, err)
	expect := func(err error, status copyrpc.Status) {
		t.Helper()
		if !errors.Is(err, status) {
			t.Fatalf("%v, not %s", err, status.Name())
		}
	}
	nobody := address
	nobody.QueuePairNumber = 0
	_, err = p.raw[0].OpenTarget(nobody, copyrpc.TargetOptions{})
	expect(err, copyrpc.ErrProtocol)
	_, err = p.raw[0].OpenTarget(address, copyrpc.TargetOptions{QueueKey: 1 << 31})
	expect(err, copyrpc.ErrInvalid)
	_, err = p.raw[0].OpenTarget(address, copyrpc.TargetOptions{ServiceLevel: -1})
	expect(err, copyrpc.ErrInvalid)
	_, err = p.raw[0].OpenTarget(address, copyrpc.TargetOptions{ServiceLevel: 16})
	expect(err, copyrpc.ErrInvalid)
	_, err = p.raw[0].OpenDatagrams(0, copyrpc.QueueOptions{Private: []byte("x")})
	expect(err, copyrpc.ErrInvalid)
	_, err = p.raw[0].TargetOf(&copyrpc.Completion{}, make([]byte, copyrpc.QueueHeaderBytes))
	expect(err, copyrpc.ErrStale)
	_, err = p.raw[0].TargetOf(&copyrpc.Completion{}, nil)
	expect(err, copyrpc.ErrInvalid)
	expect(p.raw[0].CloseTarget(5), copyrpc.ErrStale)
	_, err = p.raw[0].TargetAddress(0)
	expect(err, copyrpc.ErrStale)
	for target, reason := range map[copyrpc.TargetHandle]copyrpc.Status{0: copyrpc.ErrInvalid, 5: copyrpc.ErrStale} {
		p.raw[0].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueSend, Target: target}
		if taken, status := p.raw[0].SubmitQueue(p.ends[0], 1); taken != 0 || status != reason {
			t.Fatal(taken, status.Name())
		}
	}
}
