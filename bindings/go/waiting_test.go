package copyrpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestHandlersKnowHowLongTheirCallersWait(t *testing.T) {
	p := newPair(t)
	deadlines := make(chan time.Time, 1)
	p.serve(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		deadline, _ := ctx.Deadline()
		if other, is := request.Context().Deadline(); other != deadline || is == deadline.IsZero() {
			t.Errorf("the request's context has the deadline %v, the handler's %v", other, deadline)
		}
		deadlines <- deadline
		return nil, ctx.Err()
	})
	_, err := p.client.Call(context.Background(), nil)
	check(t, err)
	if deadline := came(t, deadlines, "the request"); !deadline.IsZero() {
		t.Fatalf("a call without a deadline shows %v", deadline)
	}
	for _, patience := range []time.Duration{time.Hour, 70 * time.Hour} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		asked, _ := ctx.Deadline()
		_, err = p.client.Call(ctx, nil)
		check(t, err)
		deadline := came(t, deadlines, "the request")
		if early, late := asked.Add(-time.Second), time.Now().Add(patience+patience/128); deadline.Before(early) || deadline.After(late) {
			t.Fatalf("a deadline at %v is shown as %v", asked, deadline)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 1000*time.Hour)
	defer cancel()
	_, err = p.client.Call(ctx, nil)
	check(t, err)
	if deadline := came(t, deadlines, "the request"); !deadline.IsZero() {
		t.Fatalf("a deadline that is too far away to be told shows %v", deadline)
	}
}

// What a handler is told when its caller leaves, by each way to ask.
func TestHandlersEndWithTheirCallers(t *testing.T) {
	p := newPair(t)
	begun, causes := make(chan struct{}), make(chan error, 1)
	p.serve(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		switch request.Method {
		case 0: // nobody has asked before the caller leaves
			begun <- struct{}{}
			for context.Cause(ctx) == nil {
				time.Sleep(time.Millisecond)
			}
		case 1:
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			begun <- struct{}{}
			<-child.Done()
		case 2:
			begun <- struct{}{}
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		case 3:
			done := make(chan struct{})
			context.AfterFunc(ctx, func() { close(done) })
			begun <- struct{}{}
			<-done
		}
		if request.Method == 7 {
			return nil, ctx.Err()
		}
		if ctx.Err() == nil || request.Context().Err() == nil {
			t.Error("it has ended without an error")
		}
		causes <- context.Cause(ctx)
		return nil, nil
	})
	for method := uint16(0); method < 4; method++ {
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error, 1)
		go func() {
			_, err := p.client.Do(ctx, copyrpc.Call{Method: method})
			failed <- err
		}()
		came(t, begun, "the request")
		cancel()
		is(t, came(t, failed, "the call"), copyrpc.ErrCanceled)
		is(t, came(t, causes, "the handler's cause"), copyrpc.ErrCanceled)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := p.client.Do(ctx, copyrpc.Call{Method: 1})
	is(t, err, copyrpc.ErrTimeout)
	select {
	case <-begun: // its ctx and its deadline end at the same time: either can be told first
		if cause := came(t, causes, "the handler's cause"); !errors.Is(cause, copyrpc.ErrTimeout) && !errors.Is(cause, copyrpc.ErrCanceled) {
			t.Fatal(cause)
		}
	case <-time.After(100 * time.Millisecond): // it came too late to be begun at all
	}
	_, err = p.client.Do(limited(t), copyrpc.Call{Method: 7})
	check(t, err)
}

// Who receives requests is told likewise, and is not given what nobody waits for.
func TestReceivedRequestsEndWithTheirCallers(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 2)
	call := func(ctx context.Context) {
		_, err := p.client.Call(ctx, []byte("?"))
		failed <- err
	}
	go call(ctx)
	request, err := p.server.Receive(limited(t))
	check(t, err)
	cancel()
	is(t, came(t, failed, "the call"), copyrpc.ErrCanceled)
	came(t, request.Context().Done(), "the request's end")
	is(t, context.Cause(request.Context()), copyrpc.ErrCanceled)
	check(t, request.Reply(nil)) // which nobody sees

	other, stop := context.WithCancel(context.Background())
	go call(other)
	go call(limited(t))
	for info, _ := p.server.Info(); info.RequestsOpen < 2; info, _ = p.server.Info() {
		time.Sleep(time.Millisecond)
	}
	stop()
	is(t, came(t, failed, "the call"), copyrpc.ErrCanceled)
	for i := 0; i < 100; i++ { // until it is told; how long that takes is nobody's promise
		time.Sleep(time.Millisecond)
	}
	request, err = p.server.Receive(limited(t))
	check(t, err)
	check(t, request.Context().Err())
	check(t, request.DropNotStarted())
	is(t, came(t, failed, "the other call"), copyrpc.ErrNotStarted)

	go call(limited(t))
	request, err = p.server.Receive(limited(t))
	check(t, err)
	check(t, p.client.Close())
	came(t, request.Context().Done(), "the request's end")
	is(t, context.Cause(request.Context()), copyrpc.ErrDisconnected)
	if !errors.Is(request.Context().Err(), context.Canceled) {
		t.Fatal(request.Context().Err())
	}
}
