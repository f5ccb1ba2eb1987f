package copyrpc_test

import (
	"errors"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// newRawDynamic is a rawQueues whose left end is a DCI, and whose right end is a DCT with the receives that are returned.
func newRawDynamic(t *testing.T, options copyrpc.QueueOptions) (p *rawQueues, shared copyrpc.QueueHandle, target copyrpc.TargetHandle) {
	t.Helper()
	p = &rawQueues{}
	for i := range p.raw {
		p.memory[i] = mapped(t, queueRegionBytes)
		raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{QueueOps: 64, Completions: 64, Pieces: 4}, copyrpc.WithQueues())
		check(t, err)
		t.Cleanup(func() { raw.Close() })
		p.raw[i] = raw
		p.regions[i], err = raw.Register(pointer(p.memory[i]), len(p.memory[i]), allRights)
		check(t, err)
		p.infos[i], err = raw.RegionInfo(p.regions[i])
		check(t, err)
	}
	var err error
	p.ends[0], err = p.raw[0].OpenDCI(7, options)
	if errors.Is(err, copyrpc.ErrUnsupported) {
		t.Skip("the device has no DC")
	}
	check(t, err)
	shared, err = p.raw[1].OpenSharedReceives(9, copyrpc.QueueOptions{Receives: 16})
	check(t, err)
	p.ends[1], err = p.raw[1].OpenDCT(8, copyrpc.QueueOptions{ReceiveQueue: shared, AccessKey: accessKey})
	check(t, err)
	address, err := p.raw[1].QueueAddress(p.ends[1])
	check(t, err)
	target, err = p.raw[0].OpenTarget(address, copyrpc.TargetOptions{ForDCI: true, AccessKey: accessKey})
	check(t, err)
	return p, shared, target
}

func (p *rawQueues) writeTo(target copyrpc.TargetHandle, stream int) copyrpc.QueueOp {
	return copyrpc.QueueOp{Opcode: copyrpc.QueueWrite, Stream: uint16(stream), Region: p.regions[0], Address: p.infos[0].Address, Bytes: 16,
		RemoteAddress: p.infos[1].Address, RemoteKey: p.infos[1].RemoteKey, Target: target}
}

func TestRawDynamic(t *testing.T) {
	p, shared, target := newRawDynamic(t, copyrpc.QueueOptions{Streams: 4})
	p.raw[1].QueueOps[0] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, UserData: 3, Region: p.regions[1], Address: p.infos[1].Address + 4096, Bytes: 64}
	p.raw[1].QueueOps[1] = p.raw[1].QueueOps[0]
	if taken, status := p.raw[1].SubmitQueue(shared, 2); taken != 2 {
		t.Fatal(status.Name())
	}
	copy(p.memory[0], "to one of many")
	send := p.writeTo(target, 1)
	send.Opcode, send.Bytes, send.RemoteAddress, send.RemoteKey = copyrpc.QueueSend, 14, 0, 0
	p.submitOne(t, 0, send)
	write := p.writeTo(target, 2)
	write.Opcode, write.Immediate = copyrpc.QueueWriteImmediate, 5
	p.submitOne(t, 0, write)
	from, err := p.raw[0].QueueInfo(p.ends[0])
	check(t, err)
	for i := 0; i < 2; i++ {
		if done := p.next(t, 0, copyrpc.CompletionWork); done.Status != 0 || done.EndpointUserData != 7 || done.Queue() != p.ends[0] {
			t.Fatalf("%+v", done)
		}
		done := p.next(t, 1, copyrpc.CompletionWork)
		r := done.Received()
		if done.Status != 0 || done.UserData != 3 || done.EndpointUserData != 8 || done.Flags&copyrpc.CompletionOfDCT == 0 || r.Queue != p.ends[1] ||
			r.Source() != 0 && r.Source() != from.QueuePairNumber {
			t.Fatalf("%+v", done)
		}
		if r.HasImmediate && (r.Immediate != 5 || r.Written != 16 || r.Bytes != 0) ||
			!r.HasImmediate && (r.Written != 0 || r.Bytes != 14 || string(p.memory[1][4096:4110]) != "to one of many") {
			t.Fatalf("%+v", r)
		}
	}
	if string(p.memory[1][:14]) != "to one of many" {
		t.Fatalf("%q", p.memory[1][:16])
	}
	bad := p.writeTo(target, 3)
	bad.RemoteKey ^= 0x5500
	p.submitOne(t, 0, bad)
	if done := p.next(t, 0, copyrpc.CompletionWork); copyrpc.Status(done.Status) != copyrpc.ErrAccess {
		t.Fatalf("%+v", done)
	}
	if info, err := p.raw[0].QueueInfo(p.ends[0]); err != nil || info.Streams != 4 || info.StreamsFailed != 1 {
		t.Fatal(err, info)
	}
	check(t, p.raw[0].ResetStream(p.ends[0], 3))
	p.submitOne(t, 0, p.writeTo(target, 3))
	if done := p.next(t, 0, copyrpc.CompletionWork); done.Status != 0 {
		t.Fatalf("%+v", done)
	}
	check(t, p.raw[0].CloseTarget(target))
	check(t, p.raw[0].DrainQueue(p.ends[0], 0))
	if done := p.next(t, 0, copyrpc.CompletionDisconnected); done.EndpointUserData != 7 {
		t.Fatalf("%+v", done)
	}
}

func TestRawDynamicBadInput(t *testing.T) {
	p, shared, target := newRawDynamic(t, copyrpc.QueueOptions{Streams: 4})
	is(t, p.raw[0].ResetStream(p.ends[0], 4), copyrpc.ErrInvalid)
	is(t, p.raw[0].ResetStream(p.ends[0], -1), copyrpc.ErrInvalid)
	is(t, p.raw[0].ResetStream(p.ends[0], 1<<32), copyrpc.ErrInvalid)
	is(t, p.raw[0].ResetStream(5, 0), copyrpc.ErrStale)
	is(t, p.raw[1].ResetStream(p.ends[1], 0), copyrpc.ErrUnsupported)
	_, err := p.raw[0].OpenDCI(0, copyrpc.QueueOptions{Streams: -1})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.raw[1].OpenDCT(0, copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.raw[0].OpenDCT(0, copyrpc.QueueOptions{ReceiveQueue: shared})
	is(t, err, copyrpc.ErrStale)
	address, err := p.raw[1].QueueAddress(p.ends[1])
	check(t, err)
	_, err = p.raw[0].OpenTarget(address, copyrpc.TargetOptions{AccessKey: 1})
	is(t, err, copyrpc.ErrInvalid)
	for stream, reason := range map[uint16]copyrpc.Status{3: copyrpc.OK, 4: copyrpc.ErrInvalid} {
		p.raw[0].QueueOps[0] = p.writeTo(target, int(stream))
		if _, status := p.raw[0].SubmitQueue(p.ends[0], 1); status != reason {
			t.Fatal(stream, status.Name())
		}
	}
	for handle, reason := range map[copyrpc.TargetHandle]copyrpc.Status{0: copyrpc.ErrInvalid, 5: copyrpc.ErrStale} {
		p.raw[0].QueueOps[0] = p.writeTo(handle, 0)
		if taken, status := p.raw[0].SubmitQueue(p.ends[0], 1); taken != 0 || status != reason {
			t.Fatal(taken, status.Name())
		}
	}
	var nobody *copyrpc.RawContext
	is(t, nobody.ResetStream(0, 0), copyrpc.ErrClosed)
	_, err = nobody.OpenDCI(0, copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrClosed)
	_, err = nobody.OpenDCT(0, copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrClosed)
}
