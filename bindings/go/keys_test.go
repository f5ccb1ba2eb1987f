package copyrpc_test

import (
	"bytes"
	"context"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

var (
	key      = []byte("a key of 32 bytes, which is long")
	otherKey = []byte("another of 32 bytes, as long as it")
)

func TestWhoKnowsTheKeyGetsIn(t *testing.T) {
	p := newPair(t, copyrpc.WithKey(key))
	p.serve(t, echo)
	reply, err := p.client.Call(limited(t), []byte("hello"))
	check(t, err)
	if string(reply) != "hello" {
		t.Fatalf("%q", reply)
	}
}

func TestAnotherKeyOrNoneIsRefused(t *testing.T) {
	listener, err := openContext(t).Listen(host()+":0", patient(copyrpc.WithKey(key))...)
	check(t, err)
	ctx, cancel := context.WithCancel(limited(t))
	served := make(chan error, 1)
	go func() { served <- listener.Serve(ctx, echo) }()
	c := openContext(t)
	for _, options := range [][]copyrpc.Option{
		{copyrpc.WithKey(otherKey)},
		{copyrpc.WithKey(key[:31])},
		{copyrpc.WithKey(append(bytes.Clone(key), 0))},
		{},
	} {
		_, err := c.Dial(ctx, listener.Address(), options...)
		is(t, err, copyrpc.ErrKey)
	}
	client, err := c.Dial(ctx, listener.Address(), copyrpc.WithKey(key)) // the server goes on
	check(t, err)
	check(t, client.Shutdown(ctx))
	cancel()
	check(t, <-served)
	collected.take() // it has told of those that it could not accept
}

func TestTheTokenTellsWhoseKeyItIs(t *testing.T) {
	listener, err := openContext(t).Listen(host()+":0", patient()...)
	check(t, err)
	ctx := limited(t)
	keys := map[string][]byte{"ann": key, "bob": otherKey}
	accepted := make(chan error, 1)
	accept := func() {
		request, err := listener.AcceptRequest(ctx)
		if err == nil {
			_, err = request.Accept(ctx, copyrpc.WithKey(keys[string(request.Info.Token)]))
		}
		accepted <- err
	}
	c := openContext(t)
	for name, its := range keys {
		go accept()
		_, err := c.Dial(ctx, listener.Address(), copyrpc.WithToken([]byte(name)), copyrpc.WithKey(its))
		check(t, err)
		check(t, <-accepted)
	}
	go accept()
	_, err = c.Dial(ctx, listener.Address(), copyrpc.WithToken([]byte("ann")), copyrpc.WithKey(otherKey))
	is(t, err, copyrpc.ErrKey)
	is(t, <-accepted, copyrpc.ErrKey)
	check(t, listener.Close())
}

func TestChannelsCompareKeys(t *testing.T) {
	ctx := limited(t)
	listener, err := copyrpc.ListenChannels(host()+":0", patient(copyrpc.WithKey(key))...)
	check(t, err)
	defer listener.Close()
	for _, its := range [][]byte{key, otherKey} {
		type outcome struct {
			channel *copyrpc.Channel
			err     error
		}
		accepted := make(chan outcome, 1)
		go func() {
			channel, err := listener.Accept(ctx)
			accepted <- outcome{channel, err}
		}()
		channel, err := copyrpc.DialChannel(ctx, listener.Address(), copyrpc.WithKey(its))
		other := <-accepted
		if bytes.Equal(its, key) {
			check(t, err)
			check(t, other.err)
			check(t, channel.Close())
			check(t, other.channel.Close())
		} else {
			is(t, err, copyrpc.ErrKey)
			is(t, other.err, copyrpc.ErrKey)
		}
	}
}

func TestKeysThatAreNone(t *testing.T) {
	for _, length := range []int{0, 15, 65} {
		_, err := copyrpc.Dial(limited(t), host()+":1", copyrpc.WithKey(make([]byte, length)))
		is(t, err, copyrpc.ErrInvalid)
	}
}
