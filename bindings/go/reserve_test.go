package copyrpc_test

import (
	"bytes"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func wants(t *testing.T, got, want copyrpc.Status) {
	t.Helper()
	if got != want {
		t.Fatalf("%s, want %s", got.Name(), want.Name())
	}
}

func TestRawReserve(t *testing.T) {
	p := newRawPair(t)
	call := copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, UserData: 3, Method: 4, PayloadBytes: 100, ReplyBytesMax: 64}
	room, status := p.client.Reserve(call)
	wants(t, status, copyrpc.OK)
	if len(room) != 100 {
		t.Fatalf("%d bytes of room", len(room))
	}
	_, status = p.client.Reserve(call)
	wants(t, status, copyrpc.ErrBusy)
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to}
	_, status = p.client.Submit(1)
	wants(t, status, copyrpc.ErrBusy)
	payload := bytes.Repeat([]byte("a"), 61)
	copy(room, payload)
	wants(t, p.client.Commit(p.to, 101), copyrpc.ErrTooBig)
	wants(t, p.client.Commit(p.to, 1<<40), copyrpc.ErrTooBig)
	wants(t, p.client.Commit(p.to, -1), copyrpc.ErrInvalid)
	wants(t, p.client.Commit(p.to, len(payload)), copyrpc.OK)
	wants(t, p.client.Commit(p.to, 1), copyrpc.ErrState)
	request := p.next(t, p.server, copyrpc.CompletionRequest)
	if request.Method != 4 || !bytes.Equal(request.View(), payload) {
		t.Fatalf("%+v: %q", request, request.View())
	}
	reply := copyrpc.Op{Opcode: copyrpc.OpReply, Flags: copyrpc.OpQuiet, Endpoint: p.from, Token: request.Token, PayloadBytes: 16}
	_, status = p.server.Reserve(reply)
	wants(t, status, copyrpc.OK)
	wants(t, p.server.Abort(p.from), copyrpc.OK)
	wants(t, p.server.Abort(p.from), copyrpc.ErrState)
	room, status = p.server.Reserve(reply) // the request remained to be answered
	wants(t, status, copyrpc.OK)
	copy(room, "0123456789abcdef")
	wants(t, p.server.Commit(p.from, 16), copyrpc.OK)
	response := p.next(t, p.client, copyrpc.CompletionResponse)
	if response.UserData != 3 || string(response.View()) != "0123456789abcdef" {
		t.Fatalf("%+v: %q", response, response.View())
	}
}

func TestRawReserveBadInput(t *testing.T) {
	p := newRawPair(t)
	for _, wrong := range []struct {
		op     copyrpc.Op
		status copyrpc.Status
	}{
		{copyrpc.Op{Opcode: copyrpc.OpCancel, Endpoint: p.to}, copyrpc.ErrUnsupported},
		{copyrpc.Op{Opcode: copyrpc.OpCall}, copyrpc.ErrStale},
		{copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, PayloadOffset: 1, PayloadBytes: 1}, copyrpc.ErrInvalid},
		{copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, PayloadBytes: 1 << 30}, copyrpc.ErrTooBig},
		{copyrpc.Op{Opcode: copyrpc.OpReply, Endpoint: p.to, Token: 12345, PayloadBytes: 8}, copyrpc.ErrStale},
	} {
		room, status := p.client.Reserve(wrong.op)
		if status != wrong.status || room != nil {
			t.Errorf("%+v: %s, not %s", wrong.op, status.Name(), wrong.status.Name())
		}
	}
	wants(t, p.client.Commit(0, 0), copyrpc.ErrStale)
	wants(t, p.client.Abort(0), copyrpc.ErrStale)
	check(t, p.client.Close())
	_, status := p.client.Reserve(copyrpc.Op{})
	wants(t, status, copyrpc.ErrClosed)
	wants(t, p.client.Commit(p.to, 0), copyrpc.ErrClosed)
	wants(t, p.client.Abort(p.to), copyrpc.ErrClosed)
}

func TestRawReserveNeverAllocates(t *testing.T) {
	p := newRawPair(t)
	per := testing.AllocsPerRun(100, func() {
		if _, status := p.client.Reserve(copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: p.to, PayloadBytes: 8}); status != copyrpc.OK {
			t.Fatal(status)
		}
		p.client.Abort(p.to)
	})
	if per != 0 {
		t.Fatalf("%v allocations a reservation", per)
	}
}
