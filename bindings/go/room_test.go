package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestReserve(t *testing.T) {
	ctx := limited(t)
	p := newPair(t)
	var written atomic.Int32
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		room, err := request.Reserve(0, len(request.Payload))
		if errors.Is(err, copyrpc.ErrBusy) || errors.Is(err, copyrpc.ErrAgain) { // another handler's reply is under way
			return bytes.Clone(request.Payload), nil
		}
		if err != nil {
			return nil, err
		}
		written.Add(1)
		return nil, room.Commit(copy(room.Bytes(), request.Payload))
	})
	room, err := p.client.Reserve(copyrpc.Call{Method: 3}, 100)
	check(t, err)
	if len(room.Bytes()) != 100 {
		t.Fatalf("%d bytes of room", len(room.Bytes()))
	}
	_, err = p.client.Reserve(copyrpc.Call{}, 1)
	is(t, err, copyrpc.ErrBusy)
	_, err = room.Wait(ctx)
	is(t, err, copyrpc.ErrState)
	is(t, room.Commit(101), copyrpc.ErrTooBig)
	payload := bytes.Repeat([]byte("a"), 61)
	copy(room.Bytes(), payload)

	// What others call meanwhile waits, and goes when the room is gone.
	other := make(chan error, 1)
	go func() {
		_, err := p.client.Call(ctx, []byte("other"))
		other <- err
	}()
	check(t, room.Commit(len(payload)))
	if room.Bytes() != nil {
		t.Fatal("there is still room")
	}
	reply, err := room.Wait(ctx)
	check(t, err)
	if !bytes.Equal(reply, payload) {
		t.Fatalf("%q", reply)
	}
	check(t, <-other)
	is(t, room.Commit(1), copyrpc.ErrState)
	_, err = room.Wait(ctx)
	is(t, err, copyrpc.ErrState)

	room, err = p.client.Reserve(copyrpc.Call{}, 10)
	check(t, err)
	check(t, room.Abort())
	check(t, room.Abort())
	is(t, room.Commit(1), copyrpc.ErrState)
	_, err = p.client.Call(ctx, []byte("again"))
	check(t, err)
	if written.Load() < 2 {
		t.Fatalf("%d replies were written in place", written.Load())
	}
}

// Handlers run side by side, and their endpoint has one room.
func TestHandlersShareTheRoomOfTheirEndpoint(t *testing.T) {
	ctx := limited(t)
	p := newPair(t)
	has, tried := make(chan struct{}), make(chan struct{})
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		if request.Method == 2 {
			<-has
			defer close(tried)
			if _, err := request.Reserve(0, 1); !errors.Is(err, copyrpc.ErrBusy) {
				return nil, fmt.Errorf("beside another's room: %w", err)
			}
			return []byte("copied"), nil
		}
		room, err := request.Reserve(0, 6)
		close(has)
		if err != nil {
			return nil, err
		}
		<-tried
		return nil, room.Commit(copy(room.Bytes(), "placed"))
	})
	var group sync.WaitGroup
	for method, want := range map[uint16]string{1: "placed", 2: "copied"} {
		group.Add(1)
		go func(method uint16, want string) {
			defer group.Done()
			reply, err := p.client.Do(ctx, copyrpc.Call{Method: method, Request: []byte("?")})
			if err != nil || string(reply) != want {
				t.Errorf("method %d: %q, %v", method, reply, err)
			}
		}(method, want)
	}
	group.Wait()
}

func TestReserveBadInput(t *testing.T) {
	p := newPair(t)
	for _, call := range []copyrpc.Call{{Request: []byte("x")}, {After: true}} {
		_, err := p.client.Reserve(call, 1)
		is(t, err, copyrpc.ErrInvalid)
	}
	_, err := p.client.Reserve(copyrpc.Call{}, 1<<30)
	is(t, err, copyrpc.ErrTooBig)
	check(t, p.client.Close())
	_, err = p.client.Reserve(copyrpc.Call{}, 1)
	is(t, err, copyrpc.ErrClosed)
}

// The room stays until its owner has done with it: a goroutine may be writing there.
func TestRoomOutlivesThePeer(t *testing.T) {
	ctx := limited(t)
	p := newPair(t)
	room, err := p.client.Reserve(copyrpc.Call{}, 1000)
	check(t, err)
	check(t, p.server.Close())
	<-p.client.Done()
	copy(room.Bytes(), bytes.Repeat([]byte("b"), 1000))
	is(t, room.Commit(1000), copyrpc.ErrDisconnected)
	_, err = room.Wait(ctx)
	is(t, err, copyrpc.ErrState)
}

func TestRoomEndsWithItsEndpoint(t *testing.T) {
	p := newPair(t)
	room, err := p.client.Reserve(copyrpc.Call{}, 1000)
	check(t, err)
	check(t, p.client.Close())
	is(t, room.Commit(10), copyrpc.ErrClosed)
	check(t, room.Abort())
}
