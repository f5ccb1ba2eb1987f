package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestZeroObjectsAreErrors(t *testing.T) {
	ctx := limited(t)
	for _, endpoint := range []*copyrpc.Endpoint{nil, {}} {
		_, err := endpoint.Call(ctx, nil)
		is(t, err, copyrpc.ErrClosed)
		_, err = endpoint.CallBatch(ctx, [][]byte{nil})
		is(t, err, copyrpc.ErrClosed)
		is(t, endpoint.Serve(ctx, echo), copyrpc.ErrClosed)
		_, err = endpoint.Receive(ctx)
		is(t, err, copyrpc.ErrClosed)
		_, err = endpoint.Info()
		is(t, err, copyrpc.ErrClosed)
		_, err = endpoint.Stats()
		is(t, err, copyrpc.ErrClosed)
		is(t, endpoint.Err(), copyrpc.ErrClosed)
		is(t, endpoint.Shutdown(ctx), copyrpc.ErrClosed)
		<-endpoint.Done()
		check(t, endpoint.Close())
	}
	for _, listener := range []*copyrpc.Listener{nil, {}} {
		_, err := listener.Accept(ctx)
		is(t, err, copyrpc.ErrClosed)
		is(t, listener.Serve(ctx, echo), copyrpc.ErrClosed)
		_, err = listener.Stats()
		is(t, err, copyrpc.ErrClosed)
		if listener.Address() != "" {
			t.Fatal("an address of no listener")
		}
		check(t, listener.Close())
	}
	for _, c := range []*copyrpc.Context{nil, {}} {
		_, err := c.Dial(ctx, "x:1")
		is(t, err, copyrpc.ErrClosed)
		_, err = c.Listen("x:1")
		is(t, err, copyrpc.ErrClosed)
		_, err = c.Info()
		is(t, err, copyrpc.ErrClosed)
		_, err = c.Stats()
		is(t, err, copyrpc.ErrClosed)
		_, err = copyrpc.Dial(ctx, "x:1", copyrpc.WithContext(c))
		is(t, err, copyrpc.ErrInvalid)
		check(t, c.Close())
	}
	var request copyrpc.Request
	is(t, request.Reply(nil), copyrpc.ErrStale)
	is(t, request.Drop(), copyrpc.ErrStale)
	var asked copyrpc.ConnectRequest
	_, err := asked.Accept(ctx)
	is(t, err, copyrpc.ErrStale)
	is(t, asked.Reject(1), copyrpc.ErrStale)
}

func TestOptionsOutOfRange(t *testing.T) {
	ctx := limited(t)
	for name, option := range map[string]copyrpc.Option{
		"negative timeout":   copyrpc.WithConnectTimeout(-time.Second),
		"negative keepalive": copyrpc.WithKeepalive(-1),
		"negative ring":      copyrpc.WithRingBytes(-1),
		"odd ring":           copyrpc.WithRingBytes(5000),
		"negative calls":     copyrpc.WithCallsMax(-1),
		"long token":         copyrpc.WithToken(make([]byte, 17)),
		"negative reply":     copyrpc.WithReplyBytes(-1),
		"device's name":      copyrpc.WithDevice(strings.Repeat("x", 64)),
		"zero in the name":   copyrpc.WithDevice("mlx5\x000"),
		"no such driver":     copyrpc.WithDriver("ib"),
		"nil":                nil,
	} {
		_, err := copyrpc.Dial(ctx, host()+":1", option)
		if !errors.Is(err, copyrpc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := copyrpc.Listen(host()+":0", copyrpc.WithBacklog(-1))
	is(t, err, copyrpc.ErrInvalid)
	_, err = copyrpc.Open(copyrpc.WithDevice("nonesuch0"))
	is(t, err, copyrpc.ErrNoDevice)
	for _, address := range []string{"", "nowhere", host() + ":99999", "[::1", host() + ":1\x00"} {
		if _, err := copyrpc.Dial(ctx, address); err == nil {
			t.Errorf("dialed %q", address)
		}
	}
}

func TestExpiredAndCanceledContexts(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for ctx, status := range map[context.Context]copyrpc.Status{expired: copyrpc.ErrTimeout, canceled: copyrpc.ErrCanceled} {
		_, err := p.client.Call(ctx, nil)
		is(t, err, status)
		_, err = p.client.CallBatch(ctx, [][]byte{nil})
		is(t, err, status)
		_, err = copyrpc.Dial(ctx, p.listener.Address())
		is(t, err, status)
		_, err = p.listener.Accept(ctx)
		is(t, err, status)
		_, err = p.client.Receive(ctx)
		is(t, err, status)
	}
	if stats, _ := p.client.Stats(); stats.Calls != 0 {
		t.Fatalf("%d calls were sent all the same", stats.Calls)
	}
}

func TestTooBig(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := limited(t)
	info, err := p.client.Info()
	check(t, err)
	_, err = p.client.Call(ctx, make([]byte, info.RequestBytesMax+1))
	is(t, err, copyrpc.ErrTooBig)
	_, err = p.client.Do(ctx, copyrpc.Call{ReplyBytesMax: info.ReplyBytesMax + 1})
	is(t, err, copyrpc.ErrTooBig)
	_, err = p.client.Do(ctx, copyrpc.Call{ReplyBytesMax: -2})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.client.CallBatch(ctx, [][]byte{nil, make([]byte, info.RequestBytesMax+1)})
	is(t, err, copyrpc.ErrTooBig)
	if stats, _ := p.client.Stats(); stats.Calls != 0 {
		t.Fatalf("%d calls of refused batches were sent", stats.Calls)
	}
}

func TestReplyRules(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	go func() {
		request, err := p.server.Receive(ctx)
		if err != nil {
			return
		}
		var problems []error
		for _, wrong := range []struct {
			err    error
			status copyrpc.Status
		}{
			{request.ReplyStatus(-1, nil), copyrpc.ErrInvalid},
			{request.Reply(make([]byte, request.ReplyBytesMax+1)), copyrpc.ErrTooBig},
			{request.Reply([]byte("fine")), copyrpc.OK},
			{request.Reply([]byte("twice")), copyrpc.ErrStale},
			{request.Drop(), copyrpc.ErrStale},
		} {
			if wrong.status == copyrpc.OK && wrong.err != nil || wrong.status != copyrpc.OK && !errors.Is(wrong.err, wrong.status) {
				problems = append(problems, wrong.err)
			}
		}
		if len(problems) > 0 {
			t.Errorf("replies: %v", problems)
		}
	}()
	reply, err := p.client.Call(ctx, nil)
	check(t, err)
	if string(reply) != "fine" {
		t.Fatalf("%q", reply)
	}
}

// Whatever a handler does, its caller gets an answer that says so, and the server lives.
func TestHandlersThatFail(t *testing.T) {
	p := newPair(t)
	collected.take()
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		switch string(request.Payload) {
		case "panic":
			panic("out of order")
		case "nil":
			var nothing *copyrpc.Request
			return nothing.Payload, nil
		case "goexit":
			runtime.Goexit()
		case "error":
			return nil, errors.New("no such thing")
		case "long":
			return make([]byte, request.ReplyBytesMax+1), nil
		}
		return request.Payload, nil
	})
	ctx := limited(t)
	for request, text := range map[string]string{
		"panic": "the handler panicked: out of order", "nil": "nil pointer", "goexit": "ended its goroutine",
		"error": "no such thing", "long": "accepts at most 4096",
	} {
		_, err := p.client.Call(ctx, []byte(request))
		var reply *copyrpc.ReplyError
		if !errors.As(err, &reply) || reply.Status != copyrpc.StatusUnknown || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", request, err)
		}
		// A caller who left no room for a text is still told.
		_, err = p.client.Do(ctx, copyrpc.Call{Request: []byte(request), ReplyBytesMax: copyrpc.NoReplyBytes})
		if !errors.As(err, &reply) || reply.Status != copyrpc.StatusUnknown || len(reply.Payload) != 0 {
			t.Errorf("%s, without room: %v", request, err)
		}
	}
	reply, err := p.client.Call(ctx, []byte("fine"))
	check(t, err)
	if string(reply) != "fine" {
		t.Fatalf("%q", reply)
	}
	warned := strings.Join(collected.take(), "\n")
	if !strings.Contains(warned, "out of order") || !strings.Contains(warned, "bad_input_test.go") {
		t.Fatalf("no word of the panic and where it was: %q", warned)
	}
}

// ---- Close --------------------------------------------------------------------------------------

func TestCloseWithCallsPending(t *testing.T) {
	for name, shut := range map[string]func(*pair){
		"endpoint": func(p *pair) { p.client.Close() },
		"context":  func(p *pair) { p.clientContext.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			ctx := limited(t)
			var callers sync.WaitGroup
			failures := make(chan error, 100)
			for i := 0; i < 100; i++ {
				callers.Add(1)
				go func() {
					defer callers.Done()
					_, err := p.client.Call(ctx, []byte("?"))
					failures <- err
				}()
			}
			for i := 0; i < 100; i++ {
				if _, err := p.server.Receive(ctx); err != nil {
					t.Fatal(err)
				}
			}
			shut(p)
			callers.Wait()
			close(failures)
			for err := range failures {
				is(t, err, copyrpc.ErrClosed)
			}
		})
	}
}

func TestUseAfterClose(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := limited(t)
	_, other := p.connect(t, ctx)
	check(t, p.client.Close())
	check(t, p.client.Close())
	_, err := p.client.Call(ctx, nil)
	is(t, err, copyrpc.ErrClosed)
	is(t, p.client.Serve(ctx, echo), copyrpc.ErrClosed)
	_, err = p.client.Stats()
	is(t, err, copyrpc.ErrClosed)
	check(t, p.listener.Close())
	check(t, p.listener.Close())
	_, err = p.listener.Accept(ctx)
	is(t, err, copyrpc.ErrClosed)
	check(t, p.serverContext.Close())
	check(t, p.serverContext.Close())
	_, err = p.serverContext.Dial(ctx, "127.0.0.1:1")
	is(t, err, copyrpc.ErrClosed)
	_, err = p.serverContext.Info()
	is(t, err, copyrpc.ErrClosed)
	_, err = other.Call(ctx, nil)
	is(t, err, copyrpc.ErrClosed)
}

// Goroutines that go on calling while the endpoint is closed under them: each call is answered or fails, none hangs.
func TestCloseAmongCallers(t *testing.T) {
	for round := 0; round < 5; round++ {
		p := newPair(t)
		p.serve(t, echo)
		ctx := limited(t)
		var callers sync.WaitGroup
		for i := 0; i < 50; i++ {
			callers.Add(1)
			go func() {
				defer callers.Done()
				for {
					request := []byte("still there?")
					reply, err := p.client.Call(ctx, request)
					if err != nil {
						if !errors.Is(err, copyrpc.ErrClosed) && !errors.Is(err, copyrpc.ErrDisconnected) {
							t.Error(err)
						}
						return
					}
					if !bytes.Equal(reply, request) {
						t.Errorf("%q", reply)
					}
				}
			}()
		}
		time.Sleep(10 * time.Millisecond)
		switch round % 3 {
		case 0:
			p.client.Close()
		case 1:
			p.clientContext.Close()
		case 2:
			p.server.Close()
		}
		callers.Wait()
	}
}
