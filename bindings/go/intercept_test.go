package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestInterceptorsGoAroundCalls(t *testing.T) {
	named := func(name string) func(copyrpc.CallFunc) copyrpc.CallFunc {
		return func(next copyrpc.CallFunc) copyrpc.CallFunc {
			return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
				call.Request = append([]byte(name+">"), call.Request...)
				call.Method++
				reply, err := next(ctx, call)
				return []byte(name + "(" + string(reply) + ")"), err
			}
		}
	}
	p := newPair(t)
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return []byte(fmt.Sprint(request.Method, string(request.Payload))), nil
	})
	client, server := p.connect(t, limited(t), copyrpc.WithCallInterceptor(named("a"), named("b")), copyrpc.WithCallInterceptor(named("c")))
	serveUntilTheEnd(t, server, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return []byte(fmt.Sprint(request.Method, string(request.Payload))), nil
	})
	ctx := limited(t)
	reply, err := client.Call(ctx, []byte("x"))
	check(t, err)
	if string(reply) != "a(b(c(3c>b>a>x)))" {
		t.Errorf("%q", reply)
	}
	call := copyrpc.Call{Method: 10, Request: []byte("y")}
	reply, err = client.Do(ctx, call)
	check(t, err)
	if string(reply) != "a(b(c(13c>b>a>y)))" || call.Method != 10 {
		t.Errorf("%q, %d", reply, call.Method)
	}
	results, err := client.CallBatch(ctx, [][]byte{[]byte("1"), []byte("2")})
	check(t, err)
	for i, result := range results {
		if want := fmt.Sprintf("a(b(c(3c>b>a>%d)))", i+1); result.Err != nil || string(result.Reply) != want {
			t.Errorf("%q, %v", result.Reply, result.Err)
		}
	}
	results, err = client.DoBatch(ctx, []copyrpc.Call{{Method: 1}, {Method: 2}})
	check(t, err)
	for i, result := range results {
		if want := fmt.Sprintf("a(b(c(%dc>b>a>)))", i+4); result.Err != nil || string(result.Reply) != want {
			t.Errorf("%q, %v", result.Reply, result.Err)
		}
	}
	if reply, err = p.client.Call(ctx, []byte("x")); err != nil || string(reply) != "0x" { // the other connection has none
		t.Errorf("%q, %v", reply, err)
	}
}

func serveUntilTheEnd(t *testing.T, endpoint *copyrpc.Endpoint, handler copyrpc.Handler) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		endpoint.Serve(ctx, handler)
		close(ended)
	}()
	t.Cleanup(func() { stop(); <-ended })
}

func TestAnInterceptorMayCallAgainOrNotAtAll(t *testing.T) {
	var calls atomic.Int32
	again := func(next copyrpc.CallFunc) copyrpc.CallFunc {
		return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
			if len(call.Request) == 0 {
				return nil, copyrpc.StatusInvalidArgument
			}
			for {
				if reply, err := next(ctx, call); !errors.Is(err, copyrpc.StatusUnavailable) {
					return reply, err
				}
			}
		}
	}
	p := newPair(t)
	client, server := p.connect(t, limited(t), copyrpc.WithCallInterceptor(again))
	serveUntilTheEnd(t, server, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		if calls.Add(1) < 3 {
			return nil, copyrpc.Errorf(copyrpc.StatusUnavailable, "not yet")
		}
		return request.Payload, nil
	})
	reply, err := client.Call(limited(t), []byte("x"))
	check(t, err)
	if string(reply) != "x" || calls.Load() != 3 {
		t.Errorf("%q after %d", reply, calls.Load())
	}
	if _, err = client.Call(limited(t), nil); err != copyrpc.StatusInvalidArgument || calls.Load() != 3 {
		t.Error(err)
	}
	client.Close()
	_, err = client.Call(limited(t), []byte("x"))
	is(t, err, copyrpc.ErrClosed)
	if _, err = client.CallBatch(limited(t), [][]byte{nil}); !errors.Is(err, copyrpc.ErrClosed) {
		t.Error(err)
	}
}

func TestAnInterceptorThatIsNil(t *testing.T) {
	_, err := copyrpc.Dial(limited(t), host()+":1", copyrpc.WithCallInterceptor(nil))
	is(t, err, copyrpc.ErrInvalid)
}
