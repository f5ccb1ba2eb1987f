package copyrpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func endpointsOf(t *testing.T, c *copyrpc.Context) int {
	t.Helper()
	info, err := c.Info()
	check(t, err)
	return info.Endpoints
}

// One listener, and each context polls its share of what it accepts.
func TestSpreadTakesTheContextsInTurn(t *testing.T) {
	front := openContext(t)
	spread := []*copyrpc.Context{openContext(t), front, openContext(t)}
	listener, err := front.Listen(host()+":0", patient(copyrpc.WithSpread(spread...))...)
	check(t, err)
	ctx, cancel := context.WithCancel(limited(t))
	served := make(chan error, 1)
	go func() { served <- listener.Serve(ctx, echo) }()
	clients := openContext(t)
	for i := 0; i < 2*len(spread); i++ {
		client, err := clients.Dial(ctx, listener.Address())
		check(t, err)
		defer client.Close()
		reply, err := client.Call(ctx, []byte("hello"))
		check(t, err)
		if string(reply) != "hello" {
			t.Fatalf("%q", reply)
		}
	}
	for i, c := range spread {
		if count := endpointsOf(t, c); count != 2 {
			t.Errorf("context %d has %d endpoints", i, count)
		}
	}
	cancel()
	check(t, <-served)
}

// Whoever cannot have it refuses the peer, and the listener goes on.
func TestSpreadOverAContextThatWasClosed(t *testing.T) {
	gone, there := openContext(t), openContext(t)
	listener, err := openContext(t).Listen(host()+":0", patient(copyrpc.WithSpread(gone, there))...)
	check(t, err)
	defer listener.Close()
	check(t, gone.Close())
	ctx := limited(t)
	accepted := make(chan error, 1)
	accept := func() {
		endpoint, err := listener.Accept(ctx)
		if err == nil {
			defer endpoint.Close()
		}
		accepted <- err
	}
	clients := openContext(t)
	go accept()
	_, err = clients.Dial(ctx, listener.Address())
	is(t, err, copyrpc.ErrRefused)
	is(t, <-accepted, copyrpc.ErrClosed)
	go accept()
	client, err := clients.Dial(ctx, listener.Address())
	check(t, err)
	defer client.Close()
	check(t, <-accepted)
}

// Accept is given up at any moment, and nothing is left of the request.
func TestSpreadGivenUp(t *testing.T) {
	there := openContext(t)
	listener, err := openContext(t).Listen(host()+":0", patient(copyrpc.WithSpread(there))...)
	check(t, err)
	defer listener.Close()
	clients := openContext(t)
	for i := 0; i < 20; i++ {
		dialed := make(chan error, 1)
		go func() {
			client, err := clients.Dial(limited(t), listener.Address())
			if err == nil {
				client.Close()
			}
			dialed <- err
		}()
		request, err := listener.AcceptRequest(limited(t))
		check(t, err)
		ctx, cancel := context.WithCancel(limited(t))
		go cancel()
		endpoint, err := request.Accept(ctx)
		if err == nil {
			endpoint.Close()
		} else if !errors.Is(err, copyrpc.ErrCanceled) && !errors.Is(err, context.Canceled) && !errors.Is(err, copyrpc.ErrDisconnected) {
			t.Fatal(err)
		}
		<-dialed
	}
	for limit := limited(t); endpointsOf(t, there) != 0; time.Sleep(time.Millisecond) {
		check(t, limit.Err())
	}
}

func TestSpreadOfChannels(t *testing.T) {
	rails := copyrpc.WithRails()
	there := openContext(t, rails)
	listener, err := openContext(t, rails).ListenChannels(host()+":0", patient(copyrpc.WithSpread(there))...)
	check(t, err)
	defer listener.Close()
	ctx := limited(t)
	accepted := make(chan *copyrpc.Channel, 1)
	go func() {
		channel, err := listener.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- channel
	}()
	channel, err := openContext(t, rails).DialChannel(ctx, listener.Address())
	check(t, err)
	defer channel.Close()
	theirs := <-accepted
	defer theirs.Close()
	check(t, there.Close()) // it was made there
	<-channel.Done()
}

func TestSpreadNeedsContexts(t *testing.T) {
	_, err := copyrpc.Listen(host()+":0", copyrpc.WithSpread(nil))
	is(t, err, copyrpc.ErrInvalid)
	_, err = copyrpc.Listen(host()+":0", copyrpc.WithSpread(new(copyrpc.Context)))
	is(t, err, copyrpc.ErrInvalid)
}

func openRaw(t *testing.T) *copyrpc.RawContext {
	t.Helper()
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{})
	check(t, err)
	t.Cleanup(func() { raw.Close() })
	return raw
}

func await(t *testing.T, raw *copyrpc.RawContext, kind uint8) copyrpc.Completion {
	t.Helper()
	return new(rawPair).next(t, raw, kind)
}

// The low level: whoever polls the other context accepts.
func TestRawHandOver(t *testing.T) {
	front, there := openRaw(t), openRaw(t)
	listener, err := front.Listen(host()+":0", 1)
	check(t, err)
	address, err := front.ListenerAddress(listener)
	check(t, err)
	clients, ctx := openContext(t), limited(t)
	dialed := make(chan error, 1)
	go func() {
		_, err := clients.Dial(ctx, address) // its context closes it
		dialed <- err
	}()
	request := await(t, front, copyrpc.CompletionConnectRequest)
	is(t, front.HandOver(request.Endpoint, front, 7), copyrpc.ErrInvalid)
	check(t, front.HandOver(request.Endpoint, there, 7))
	is(t, front.HandOver(request.Endpoint, there, 7), copyrpc.ErrStale)
	check(t, front.Close())
	is(t, there.HandOver(request.Endpoint, front, 7), copyrpc.ErrClosed)
	taken := await(t, there, copyrpc.CompletionConnectRequest)
	if taken.UserData != 7 {
		t.Fatalf("user data %d", taken.UserData)
	}
	check(t, there.Accept(taken.Endpoint, 8))
	await(t, there, copyrpc.CompletionConnected)
	check(t, <-dialed)
}
