package copyrpc_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// rawLanes is a rawPair whose sides are polled in turn, with a region on each side.
type rawLanes struct {
	*rawPair
	memory  [2][]byte
	regions [2]copyrpc.RegionHandle
}

// works polls both until one has that many completions of ops, and returns them.
func (p *rawLanes) works(t *testing.T, r *copyrpc.RawContext, count int) []copyrpc.Completion {
	t.Helper()
	var works []copyrpc.Completion
	for end := time.Now().Add(60 * time.Second); len(works) < count && time.Now().Before(end); {
		for _, raw := range []*copyrpc.RawContext{p.client, p.server} {
			got, status := raw.Poll()
			if status != copyrpc.OK {
				t.Fatal(status)
			}
			for _, done := range raw.Completions[:got] {
				if raw == r && done.Kind == copyrpc.CompletionWork {
					works = append(works, done)
				}
			}
		}
	}
	if len(works) != count {
		t.Fatalf("%d completions of %d", len(works), count)
	}
	return works
}

// submit has a side take LaneOps[:count], as soon as there is a lane.
func (p *rawLanes) submit(t *testing.T, r *copyrpc.RawContext, endpoint copyrpc.EndpointHandle, count int) []copyrpc.Completion {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		taken, status := r.SubmitLane(endpoint, count)
		if taken == count {
			return p.works(t, r, count)
		}
		if taken != 0 || status != copyrpc.ErrAgain {
			t.Fatal(taken, status)
		}
		p.works(t, r, 0)
		for _, raw := range []*copyrpc.RawContext{p.client, p.server} {
			if _, status := raw.Poll(); status != copyrpc.OK {
				t.Fatal(status)
			}
		}
	}
	t.Fatal("there is no lane")
	return nil
}

// open has the client open a grant of the server, whose lane is up, as soon as the client has heard that: the bytes, which no message
// has brought, are faster.
func (p *rawLanes) open(t *testing.T, data []byte) copyrpc.GrantHandle {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; {
		grant, err := p.client.OpenGrant(p.to, data)
		if err == nil || !errors.Is(err, copyrpc.ErrAgain) || time.Now().After(end) {
			check(t, err)
			return grant
		}
		for _, raw := range []*copyrpc.RawContext{p.client, p.server} {
			if _, status := raw.Poll(); status != copyrpc.OK {
				t.Fatal(status)
			}
		}
	}
}

func newRawLanes(t *testing.T) *rawLanes {
	t.Helper()
	p := &rawLanes{rawPair: newRawPair(t, copyrpc.WithLane())}
	for i, raw := range []*copyrpc.RawContext{p.client, p.server} {
		p.memory[i] = mapped(t, queueRegionBytes)
		var err error
		p.regions[i], err = raw.Register(pointer(p.memory[i]), len(p.memory[i]), copyrpc.LocalWrite)
		check(t, err)
	}
	return p
}

func TestRawLane(t *testing.T) {
	p := newRawLanes(t)
	give := &p.server.LaneOps[0]
	*give = copyrpc.LaneOp{Opcode: copyrpc.LaneGrant, Region: p.regions[1], Address: uint64(uintptr(pointer(p.memory[1]))), Bytes: 4096, UserData: 5}
	give.SetAccess(everyRight)
	done := p.submit(t, p.server, p.from, 1)[0]
	if done.Status != 0 || done.UserData != 5 || done.Method != copyrpc.LaneGrant || done.Endpoint != p.from || done.EndpointUserData != 9 {
		t.Fatalf("%+v", done)
	}
	own := copyrpc.GrantHandle(done.Token)
	data, err := p.server.GrantBytes(own)
	check(t, err)
	grant := p.open(t, data)
	info, err := p.client.GrantInfo(grant)
	check(t, err)
	if info != (copyrpc.GrantInfo{Endpoint: p.to, Access: everyRight, Bytes: 4096, OfPeer: true}) {
		t.Fatalf("%+v", info)
	}

	copy(p.memory[0], "written by the client")
	at := uint64(uintptr(pointer(p.memory[0])))
	ops := p.client.LaneOps
	ops[0] = copyrpc.LaneOp{Opcode: copyrpc.LaneWrite, Region: p.regions[0], Address: at, Bytes: 21, Grant: grant, Offset: 100, UserData: 1}
	ops[1] = copyrpc.LaneOp{Opcode: copyrpc.LaneRead, Region: p.regions[0], Address: at + 1000, Bytes: 21, Grant: grant, Offset: 100, UserData: 2}
	ops[2] = copyrpc.LaneOp{Opcode: copyrpc.LaneFetchAdd, Grant: grant, Operand: 3, UserData: 3}
	ops[3] = copyrpc.LaneOp{Opcode: copyrpc.LaneCompareSwap, Flags: copyrpc.LaneFence, Grant: grant, Compare: 3, Operand: 9, UserData: 4}
	works := p.submit(t, p.client, p.to, 4)
	for i, done := range works {
		if done.Status != 0 || done.UserData != uint64(i)+1 || done.Method != [4]uint16{1, 2, 4, 3}[i] || done.Flags&copyrpc.CompletionOfQueue != 0 {
			t.Fatalf("%d: %+v", i, done)
		}
	}
	if works[3].Token != 3 || p.memory[1][0] != 9 || !bytes.Equal(p.memory[1][100:121], p.memory[0][:21]) ||
		!bytes.Equal(p.memory[0][1000:1021], p.memory[0][:21]) {
		t.Fatalf("%+v", works[3])
	}

	p.server.LaneOps[0] = copyrpc.LaneOp{Opcode: copyrpc.LaneRevoke, Grant: own}
	if done := p.submit(t, p.server, p.from, 1)[0]; done.Status != 0 {
		t.Fatalf("%+v", done)
	}
	if taken, status := p.client.SubmitLane(p.to, 1); taken != 0 || status != copyrpc.ErrStale {
		t.Fatal(taken, status)
	}
	check(t, p.client.CloseGrant(grant))
	is(t, p.client.CloseGrant(grant), copyrpc.ErrStale)
	for _, wrong := range [][2]int{{-1, 1}, {0, -1}, {0, 257}, {256, 1}} {
		if taken, status := p.client.SubmitLaneFrom(p.to, wrong[0], wrong[1]); taken != 0 || status != copyrpc.ErrInvalid {
			t.Fatal(taken, status)
		}
	}
	if taken, status := p.client.SubmitLane(p.to, 0); taken != 0 || status != copyrpc.OK {
		t.Fatal(taken, status)
	}
}

// A message that waits for an op which fails must not be sent: the connection ends instead.
func TestRawLaneAfterFailure(t *testing.T) {
	p := newRawLanes(t)
	give := &p.server.LaneOps[0]
	*give = copyrpc.LaneOp{Opcode: copyrpc.LaneGrant, Region: p.regions[1], Address: uint64(uintptr(pointer(p.memory[1]))), Bytes: 4096}
	give.SetAccess(copyrpc.RemoteWrite)
	data, err := p.server.GrantBytes(copyrpc.GrantHandle(p.submit(t, p.server, p.from, 1)[0].Token))
	check(t, err)
	wrong := p.open(t, forged(data, keyOfGrant, 0x123456))
	p.client.LaneOps[0] = copyrpc.LaneOp{Opcode: copyrpc.LaneWrite, Region: p.regions[0], Address: uint64(uintptr(pointer(p.memory[0]))), Bytes: 8,
		Grant: wrong}
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Flags: copyrpc.OpAfter, Endpoint: p.to}
	if taken, status := p.client.SubmitLane(p.to, 1); taken != 1 {
		t.Fatal(status)
	}
	if taken, status := p.client.Submit(1); taken != 1 {
		t.Fatal(status)
	}
	ended := map[uint8]copyrpc.Status{}
	for end := time.Now().Add(60 * time.Second); len(ended) < 3 && time.Now().Before(end); {
		count, _ := p.client.Poll()
		for _, done := range p.client.Completions[:count] {
			if done.Kind != copyrpc.CompletionRoom { // which follows if there was no lane yet
				ended[done.Kind] = copyrpc.Status(done.Status)
			}
		}
		if count, _ = p.server.Poll(); count > 0 && p.server.Completions[0].Kind == copyrpc.CompletionRequest {
			t.Fatal("the peer has heard of what was not done")
		}
	}
	if ended[copyrpc.CompletionWork] != copyrpc.ErrAccess || ended[copyrpc.CompletionResponse] != copyrpc.ErrDisconnected ||
		ended[copyrpc.CompletionDisconnected] != copyrpc.ErrDisconnected {
		t.Fatal(ended)
	}
}
