package copyrpc_test

import (
	"bytes"
	"syscall"
	"testing"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// rawChannels is two contexts driven by hand in one goroutine, with a channel between them and memory of C's, without regions.
type rawChannels struct {
	raw    [2]*copyrpc.RawContext
	ends   [2]copyrpc.ChannelHandle
	memory [2][]byte
	kept   [2][]copyrpc.Completion
}

func (p *rawChannels) openBoth(t *testing.T) {
	for i := range p.raw {
		raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{ChannelOps: 16}, copyrpc.WithRails())
		check(t, err)
		t.Cleanup(func() { raw.Close() })
		p.raw[i] = raw
		p.memory[i], err = syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		check(t, err)
	}
}

// next polls both until one has a completion of that kind; others of its are kept for later.
func (p *rawChannels) next(t *testing.T, side int, kind uint8) copyrpc.Completion {
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

func newRawChannels(t *testing.T) *rawChannels {
	p := &rawChannels{}
	p.openBoth(t)
	listener, err := p.raw[1].ListenChannels(host()+":0", 5)
	check(t, err)
	address, err := p.raw[1].ListenerAddress(listener)
	check(t, err)
	p.ends[0], err = p.raw[0].ConnectChannel(address, 7, patient(copyrpc.WithToken([]byte("raw")), copyrpc.WithSlots(4))...)
	check(t, err)
	request := p.next(t, 1, copyrpc.CompletionConnectRequest)
	if request.Flags != copyrpc.CompletionOfChannel || request.UserData != 5 {
		t.Fatalf("%+v", request)
	}
	p.ends[1] = request.Channel()
	info, err := p.raw[1].ChannelInfo(p.ends[1])
	check(t, err)
	if string(info.Token) != "raw" || info.State != copyrpc.StateRequested {
		t.Fatalf("%+v", info)
	}
	check(t, p.raw[1].AcceptChannel(p.ends[1], 9, patient()...))
	for side, userData := range []uint64{7, 9} {
		if done := p.next(t, side, copyrpc.CompletionConnected); done.Status != 0 || done.EndpointUserData != userData || done.Channel() != p.ends[side] {
			t.Fatalf("%+v", done)
		}
	}
	return p
}

func (p *rawChannels) op(side int, opcode uint8, from, to int, userData uint64) copyrpc.ChannelOp {
	return copyrpc.ChannelOp{Opcode: opcode, Channel: p.ends[side], UserData: userData, Bytes: uint64(to - from),
		Address: uint64(uintptr(unsafe.Pointer(&p.memory[side][from])))}
}

func TestRawChannels(t *testing.T) {
	p := newRawChannels(t)
	for i := range p.memory[0] {
		p.memory[0][i] = byte(i * 3)
	}
	for i := 0; i < 6; i++ { // of which four have slots
		p.raw[1].ChannelOps[i] = p.op(1, copyrpc.ChannelReceive, 100000*i, 100000*(i+1), uint64(20+i))
	}
	p.raw[1].ChannelOps[1].Flags = copyrpc.ChannelMore
	if taken, status := p.raw[1].SubmitChannel(6); taken != 5 || status != copyrpc.ErrAgain {
		t.Fatal(taken, status.Name())
	}
	for i := 0; i < 5; i++ {
		p.raw[0].ChannelOps[i] = p.op(0, copyrpc.ChannelSend, i, 2*i+90000, uint64(10+i))
	}
	if taken, status := p.raw[0].SubmitChannelFrom(0, 5); taken != 5 || status != copyrpc.OK {
		t.Fatal(taken, status.Name())
	}
	for i, message := range []uint64{0, 1, 1, 2, 3} {
		done := p.next(t, 1, copyrpc.CompletionReceived)
		if done.Status != 0 || done.UserData != uint64(20+i) || done.Token != message || done.EndpointUserData != 9 ||
			!bytes.Equal(done.View(), p.memory[0][i:2*i+90000]) || &done.View()[0] != &p.memory[1][100000*i] {
			t.Fatalf("%d: %+v", i, done)
		}
		if done := p.next(t, 0, copyrpc.CompletionSent); done.Status != 0 || done.UserData != uint64(10+i) || int(done.PayloadBytes) != 90000+i {
			t.Fatalf("%+v", done)
		}
	}
	p.next(t, 1, copyrpc.CompletionRoom)
	cache, err := p.raw[0].CacheInfo()
	check(t, err)
	if cache.Registrations == 0 || cache.Misses == 0 || cache.Bytes == 0 || cache.BytesMax == 0 {
		t.Fatalf("%+v", cache)
	}
	forgotten, err := p.raw[0].ForgetMemory(unsafe.Pointer(&p.memory[0][0]), 1<<20)
	check(t, err)
	if forgotten != cache.Registrations {
		t.Fatalf("%d of %d registrations", forgotten, cache.Registrations)
	}
	_, err = p.raw[0].ForgetMemory(nil, -1)
	is(t, err, copyrpc.ErrInvalid)
	stats, err := p.raw[1].ChannelStats(p.ends[1])
	check(t, err)
	if stats.MessagesReceived != 4 || stats.BytesReceived != 5*90000+10 {
		t.Fatalf("%+v", stats)
	}
	// Too long: View shows nothing, for there are fewer bytes than PayloadBytes says.
	p.raw[1].ChannelOps[0] = p.op(1, copyrpc.ChannelReceive, 0, 10, 1)
	p.raw[1].SubmitChannel(1)
	p.raw[0].ChannelOps[0] = p.op(0, copyrpc.ChannelSend, 0, 1<<20, 2)
	p.raw[0].SubmitChannel(1)
	done := p.next(t, 1, copyrpc.CompletionReceived)
	if copyrpc.Status(done.Status) != copyrpc.ErrTruncated || done.PayloadBytes != 1<<20 || done.View() != nil {
		t.Fatalf("%+v", done)
	}
	check(t, p.raw[0].SetShare(p.ends[0], 100))
	check(t, p.raw[0].ChannelError(p.ends[0]))
	check(t, p.raw[0].DisconnectChannel(p.ends[0], copyrpc.Forever))
	check(t, p.raw[0].DisconnectChannel(p.ends[0], copyrpc.Forever)) // a second call replaces the limit
	is(t, p.raw[0].DisconnectChannel(p.ends[0], -1), copyrpc.ErrInvalid)
	p.next(t, 0, copyrpc.CompletionSent)
	for side := range p.raw {
		p.raw[1].DisconnectChannel(p.ends[1], copyrpc.Forever)
		if done := p.next(t, side, copyrpc.CompletionDisconnected); done.Status != 0 || done.Channel() != p.ends[side] {
			t.Fatalf("%+v", done)
		}
		check(t, p.raw[side].CloseChannel(p.ends[side]))
		is(t, p.raw[side].CloseChannel(p.ends[side]), copyrpc.ErrStale)
	}
}

func TestRawChannelBlobsAndCancel(t *testing.T) {
	p := &rawChannels{}
	p.openBoth(t)
	var blobs [2][]byte
	for i, raw := range p.raw {
		var err error
		p.ends[i], blobs[i], err = raw.ChannelBlob(uint64(70+i), copyrpc.WithRetry(20, 7)) // 4 s for the other to join
		check(t, err)
	}
	is(t, p.raw[0].JoinChannel(p.ends[0], nil), copyrpc.ErrProtocol)
	is(t, p.raw[0].JoinChannel(0, blobs[1]), copyrpc.ErrStale)
	for i, raw := range p.raw {
		check(t, raw.JoinChannel(p.ends[i], blobs[1-i]))
	}
	for side := range p.raw {
		if done := p.next(t, side, copyrpc.CompletionConnected); done.Status != 0 || done.EndpointUserData != uint64(70+side) {
			t.Fatalf("%+v", done)
		}
	}
	p.raw[0].ChannelOps[0] = p.op(0, copyrpc.ChannelSend, 0, 10, 11)
	p.raw[0].ChannelOps[1] = copyrpc.ChannelOp{Opcode: copyrpc.ChannelCancel, Channel: p.ends[0], UserData: 12, Token: 11}
	if taken, status := p.raw[0].SubmitChannel(2); taken != 2 || status != copyrpc.OK {
		t.Fatal(taken, status.Name())
	}
	if done := p.next(t, 0, copyrpc.CompletionSent); copyrpc.Status(done.Status) != copyrpc.ErrCanceled || done.UserData != 11 {
		t.Fatalf("%+v", done)
	}
	if done := p.next(t, 0, copyrpc.CompletionCancel); done.Status != 0 || done.Token != 1 || done.UserData != 12 {
		t.Fatalf("%+v", done)
	}
}

func TestRawChannelsThatCannotBe(t *testing.T) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{ChannelOps: 2})
	check(t, err)
	ends := func(want copyrpc.Status) {
		t.Helper()
		_, err := raw.ConnectChannel(host()+":1", 0)
		is(t, err, want)
		_, err = raw.ListenChannels(host()+":0", 0)
		is(t, err, want)
		_, _, err = raw.ChannelBlob(0)
		is(t, err, want)
		_, err = raw.CacheInfo()
		is(t, err, want)
		_, err = raw.ForgetMemory(nil, 0)
		is(t, err, want)
	}
	handles := func(want copyrpc.Status) {
		t.Helper()
		is(t, raw.AcceptChannel(1, 0), want)
		is(t, raw.RejectChannel(1, 0), want)
		is(t, raw.JoinChannel(1, []byte{1}), want)
		is(t, raw.SetShare(1, 0), want)
		is(t, raw.DisconnectChannel(1, 0), want)
		is(t, raw.CloseChannel(1), want)
		is(t, raw.ChannelError(1), want)
		_, err := raw.ChannelInfo(1)
		is(t, err, want)
		_, err = raw.ChannelStats(1)
		is(t, err, want)
		raw := raw
		if taken, status := raw.SubmitChannel(1); taken != 0 || status != want {
			t.Fatal(taken, status.Name())
		}
	}
	ends(copyrpc.ErrState) // it has no rails
	raw.ChannelOps[0] = copyrpc.ChannelOp{Opcode: copyrpc.ChannelSend, Channel: 1}
	handles(copyrpc.ErrStale)
	_, err = raw.RailInfo(0)
	is(t, err, copyrpc.ErrNotFound)
	_, err = raw.RailInfo(-1)
	is(t, err, copyrpc.ErrNotFound)
	for _, wrong := range [][2]int{{0, 3}, {-1, 1}, {2, 1}, {0, -1}} {
		if taken, status := raw.SubmitChannelFrom(wrong[0], wrong[1]); taken != 0 || status != copyrpc.ErrInvalid {
			t.Fatal(taken, status.Name())
		}
	}
	check(t, raw.Close())
	ends(copyrpc.ErrClosed)
	handles(copyrpc.ErrClosed)
	_, err = raw.RailInfo(0)
	is(t, err, copyrpc.ErrClosed)
	_, err = copyrpc.OpenRaw(copyrpc.RawSizes{ChannelOps: -1})
	is(t, err, copyrpc.ErrInvalid)
}
