package otelcopyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestSpansTellOfStatuses(t *testing.T) {
	copyrpcWarn := copyrpc.Warn
	copyrpc.Warn = func(string) {} // of the handler that panics
	defer func() { copyrpc.Warn = copyrpcWarn }()
	type answer func(ctx context.Context, request *copyrpc.Request) ([]byte, error)
	fails := func(err error) answer {
		return func(context.Context, *copyrpc.Request) ([]byte, error) { return nil, err }
	}
	itself := func(answer func(request *copyrpc.Request) error) answer {
		return func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			return nil, answer(request)
		}
	}
	client, server := newSide(t), newSide(t)
	for name, one := range map[string]struct {
		answer func(ctx context.Context, request *copyrpc.Request) ([]byte, error)
		code   string // that both spans have
		client string // error.type; "": no error
		server string
	}{
		"well":               {echo, "OK", "", ""},
		"canceled":           {fails(copyrpc.StatusCanceled), "CANCELED", "CANCELED", ""},
		"unknown":            {fails(copyrpc.StatusUnknown), "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"invalid":            {fails(copyrpc.StatusInvalidArgument), "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"deadline":           {fails(copyrpc.StatusDeadlineExceeded), "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"},
		"not found":          {fails(copyrpc.Errorf(copyrpc.StatusNotFound, "no key")), "NOT_FOUND", "NOT_FOUND", ""},
		"exists":             {fails(copyrpc.StatusAlreadyExists), "ALREADY_EXISTS", "ALREADY_EXISTS", ""},
		"denied":             {fails(copyrpc.StatusPermissionDenied), "PERMISSION_DENIED", "PERMISSION_DENIED", ""},
		"exhausted":          {fails(copyrpc.StatusResourceExhausted), "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", ""},
		"precondition":       {fails(copyrpc.StatusFailedPrecondition), "FAILED_PRECONDITION", "FAILED_PRECONDITION", ""},
		"aborted":            {fails(copyrpc.StatusAborted), "ABORTED", "ABORTED", ""},
		"range":              {fails(copyrpc.StatusOutOfRange), "OUT_OF_RANGE", "OUT_OF_RANGE", ""},
		"unimplemented":      {new(copyrpc.Router).Serve, "UNIMPLEMENTED", "UNIMPLEMENTED", "UNIMPLEMENTED"},
		"internal":           {fails(copyrpc.StatusInternal), "INTERNAL", "INTERNAL", "INTERNAL"},
		"unavailable":        {fails(copyrpc.StatusUnavailable), "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"},
		"data loss":          {fails(copyrpc.StatusDataLoss), "DATA_LOSS", "DATA_LOSS", "DATA_LOSS"},
		"unauthenticated":    {fails(copyrpc.StatusUnauthenticated), "UNAUTHENTICATED", "UNAUTHENTICATED", ""},
		"an application's":   {fails(copyrpc.Errorf(300, "mine")), "300", "300", ""},
		"wrapped":            {fails(fmt.Errorf("so: %w", copyrpc.Errorf(copyrpc.StatusNotFound, "?"))), "NOT_FOUND", "NOT_FOUND", ""},
		"any error":          {fails(errors.New("?")), "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"of a nested call":   {fails(copyrpc.ErrTimeout), "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"of another context": {fails(context.Canceled), "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"a panic":            {func(context.Context, *copyrpc.Request) ([]byte, error) { panic("!") }, "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"the goroutine's end": {func(context.Context, *copyrpc.Request) ([]byte, error) {
			runtime.Goexit()
			return nil, nil
		}, "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"too long": {func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			return make([]byte, request.ReplyBytesMax+1), nil
		}, "UNKNOWN", "UNKNOWN", "UNKNOWN"},
		"dropped":            {itself((*copyrpc.Request).Drop), copyrpc.StatusOf(copyrpc.ErrDropped).Name(), "CRPC_E_DROPPED", "CRPC_E_DROPPED"},
		"answered by itself": {itself(func(request *copyrpc.Request) error { return request.ReplyStatus(5, nil) }), "NOT_FOUND", "NOT_FOUND", ""},
		"answered, then fails": {itself(func(request *copyrpc.Request) error {
			return errors.Join(request.Reply(nil), errors.New("later"))
		}), "OK", "", ""},
	} {
		s := serve(t, context.Background(), server.handles(one.answer))
		_, err := s.dial(t, client.calls()).Call(limited(t), []byte("x"))
		s.stop() // the answer may have gone before the handler has ended
		call := client.one(t)
		ended(t, name+", client", call, one.code, one.client)
		ended(t, name+", server", server.one(t), one.code, one.server)
		if err != nil && call.Status.Description != err.Error() {
			t.Errorf("%s: %q", name, call.Status.Description)
		}
	}
}

func TestSpansTellOfCallersWhoHaveLeft(t *testing.T) {
	client, server := newSide(t), newSide(t)
	begun := make(chan struct{}, 1)
	s := serve(t, context.Background(), server.handles(func(ctx context.Context, _ *copyrpc.Request) ([]byte, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	endpoint := s.dial(t, client.calls())
	ctx, cancel := context.WithCancel(limited(t))
	go func() {
		<-begun
		cancel()
	}()
	_, err := endpoint.Call(ctx, nil)
	if !errors.Is(err, copyrpc.ErrCanceled) {
		t.Fatal(err)
	}
	s.stop()
	ended(t, "client", client.one(t), "CANCELED", "CRPC_E_CANCELED")
	ended(t, "server", server.one(t), "CANCELED", "")
}

func TestSpansTellOfErrorsOfTheLibrary(t *testing.T) {
	client := newSide(t)
	s := serve(t, context.Background(), echo)
	endpoint := s.dial(t, client.calls())
	_, err := endpoint.Call(limited(t), make([]byte, 1<<30+1))
	if !errors.Is(err, copyrpc.ErrTooBig) {
		t.Fatal(err)
	}
	ended(t, "too big", client.one(t), copyrpc.StatusOf(err).Name(), "CRPC_E_TOO_BIG")
	check(t, endpoint.Close())
	_, err = endpoint.Call(limited(t), nil)
	span := client.one(t)
	ended(t, "closed", span, copyrpc.StatusOf(err).Name(), "CRPC_E_CLOSED")
	if !strings.Contains(span.Status.Description, "closed") {
		t.Error(span.Status.Description)
	}
	inner := errors.New("an interceptor's own")
	refuses := copyrpc.WithCallInterceptor(func(copyrpc.CallFunc) copyrpc.CallFunc {
		return func(context.Context, *copyrpc.Call) ([]byte, error) { return nil, inner }
	})
	if _, err = s.dial(t, client.calls(), refuses).Call(limited(t), nil); err != inner {
		t.Fatal(err)
	}
	ended(t, "an interceptor's", client.one(t), "UNKNOWN", "*errors.errorString")
}
