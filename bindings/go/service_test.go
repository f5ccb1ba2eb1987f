package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestStandardStatusesHaveNumbersAndNamesOfGRPC(t *testing.T) {
	for status, name := range map[copyrpc.Status]string{
		0: "CRPC_OK", copyrpc.StatusCanceled: "CANCELED", copyrpc.StatusUnknown: "UNKNOWN", copyrpc.StatusNotFound: "NOT_FOUND",
		copyrpc.StatusResourceExhausted: "RESOURCE_EXHAUSTED", copyrpc.StatusUnauthenticated: "UNAUTHENTICATED", 17: "17", 300: "300",
		copyrpc.ErrTimeout: "CRPC_E_TIMEOUT",
	} {
		if status.Name() != name {
			t.Errorf("%d is %s, not %s", int32(status), status.Name(), name)
		}
	}
	for status, number := range map[copyrpc.Status]int{copyrpc.StatusUnimplemented: 12, copyrpc.StatusDataLoss: 15, copyrpc.StatusReservedMax: 255} {
		if int(status) != number {
			t.Errorf("%s is %d", status.Name(), int32(status))
		}
	}
	if text := fmt.Sprint(copyrpc.StatusNotFound); text != "NOT_FOUND" {
		t.Error(text)
	}
}

func TestStatusOf(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, one := range []struct {
		err  error
		want copyrpc.Status
	}{
		{nil, copyrpc.OK},
		{errors.New("?"), copyrpc.StatusUnknown},
		{canceled.Err(), copyrpc.StatusCanceled},
		{fmt.Errorf("so: %w", context.DeadlineExceeded), copyrpc.StatusDeadlineExceeded},
		{copyrpc.Errorf(copyrpc.StatusAborted, "no"), copyrpc.StatusAborted},
		{&copyrpc.ReplyError{Status: 300}, 300},
		{copyrpc.ErrTimeout, copyrpc.StatusDeadlineExceeded},
		{&copyrpc.Error{Status: copyrpc.ErrDisconnected}, copyrpc.StatusUnavailable},
		{copyrpc.Status(-1000), copyrpc.StatusUnknown},
	} {
		if got := copyrpc.StatusOf(one.err); got != one.want {
			t.Errorf("%v: %s, not %s", one.err, got.Name(), one.want.Name())
		}
	}
}

func TestHandlersAnswerWithStatuses(t *testing.T) {
	p := newPair(t)
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		switch string(request.Payload) {
		case "bare":
			return nil, copyrpc.StatusAlreadyExists
		case "own":
			return nil, copyrpc.Errorf(300, "mine")
		case "library":
			return nil, copyrpc.ErrTimeout // of a call of its own, say: its caller need not know
		}
		return nil, fmt.Errorf("looking: %w", copyrpc.Errorf(copyrpc.StatusNotFound, "no key %q", request.Payload))
	})
	for request, want := range map[string]struct {
		status copyrpc.Status
		text   string
	}{
		"x":       {copyrpc.StatusNotFound, `status 5 (NOT_FOUND): no key "x"`},
		"bare":    {copyrpc.StatusAlreadyExists, "status 6 (ALREADY_EXISTS)"},
		"own":     {300, "status 300: mine"},
		"library": {copyrpc.StatusUnknown, "status 2 (UNKNOWN): the time limit has passed"},
	} {
		_, err := p.client.Call(limited(t), []byte(request))
		if !errors.Is(err, want.status) || errors.Is(err, copyrpc.StatusAborted) || err.Error() != "copyrpc: the peer answered with "+want.text {
			t.Errorf("%s: %v", request, err)
		}
	}
}

// capi/tests/service_test.c has the same vectors.
func TestNamesHaveNumbers(t *testing.T) {
	for name, number := range map[string]uint16{
		"a": 0xe134, "kv.get": 0xf810, "kv.put": 0x9d15, "echo": 0xfdbf, "/helloworld.Greeter/SayHello": 0xbd85, "grüße": 0xa245,
		"queue.sum": 0x9af2, "lock.update_all": 0x9af2,
	} {
		if got := copyrpc.MethodNumber(name); got != number {
			t.Errorf("%s has %#x", name, got)
		}
	}
}

func answer(text string) copyrpc.Handler {
	return func(context.Context, *copyrpc.Request) ([]byte, error) { return []byte(text), nil }
}

func TestARouterCallsTheHandlerOfTheMethod(t *testing.T) {
	var router copyrpc.Router
	router.HandleName("kv.get", answer("get"))
	router.Handle(7, answer("seven"))
	p := newPair(t)
	p.serve(t, router.Serve)
	ctx := limited(t)
	for method, want := range map[uint16]string{copyrpc.MethodNumber("kv.get"): "get", 7: "seven"} {
		if reply, err := p.client.Do(ctx, copyrpc.Call{Method: method}); err != nil || string(reply) != want {
			t.Errorf("%#x: %q, %v", method, reply, err)
		}
	}
	for method, text := range map[uint16]string{0: "there is no method 0 here", copyrpc.MethodNumber("kv.put"): "there is no method 0x9d15 here"} {
		_, err := p.client.Do(ctx, copyrpc.Call{Method: method})
		if !errors.Is(err, copyrpc.StatusUnimplemented) || !strings.Contains(err.Error(), text) {
			t.Errorf("%#x: %v", method, err)
		}
	}
	router.HandleName("kv.put", answer("put")) // while it serves
	if reply, err := p.client.Do(ctx, copyrpc.Call{Method: copyrpc.MethodNumber("kv.put")}); err != nil || string(reply) != "put" {
		t.Errorf("%q, %v", reply, err)
	}
	if router.Name(copyrpc.MethodNumber("kv.put")) != "kv.put" || router.Name(7) != "" || router.Name(8) != "" {
		t.Error("names")
	}
}

// refused calls what must panic with an *Error, and gives that.
func refused(t *testing.T, add func()) (err *copyrpc.Error) {
	t.Helper()
	defer func() {
		var ok bool
		if err, ok = recover().(*copyrpc.Error); !ok {
			t.Error("no panic with an *Error")
			err = &copyrpc.Error{}
		}
	}()
	add()
	return nil
}

func TestARouterNoticesMethodsThatCollide(t *testing.T) {
	var router copyrpc.Router
	router.HandleName("queue.sum", echo)
	router.Handle(0xf810, echo)
	for _, one := range []struct {
		add  func()
		want []string
	}{
		{func() { router.HandleName("lock.update_all", echo) }, []string{`method "queue.sum" (0x9af2)`, `method "lock.update_all" (0x9af2)`, "rename one"}},
		{func() { router.HandleName("kv.get", echo) }, []string{"method 0xf810", `method "kv.get" (0xf810)`, "rename one"}},
		{func() { router.Handle(0x9af2, echo) }, []string{`method "queue.sum"`, "rename one"}},
		{func() { router.HandleName("queue.sum", echo) }, []string{`method "queue.sum" (0x9af2) has a handler already`}},
		{func() { router.Handle(0xf810, echo) }, []string{"method 0xf810 has a handler already"}},
		{func() { router.Handle(3, nil) }, []string{"the handler of method 3 is nil"}},
		{func() { router.HandleName("", echo) }, []string{`"" is no name`}},
		{func() { router.HandleName("a\x00b", echo) }, []string{"is no name"}},
	} {
		err := refused(t, one.add)
		for _, text := range one.want {
			if !strings.Contains(err.Message, text) {
				t.Errorf("%q is not in %q", text, err.Message)
			}
		}
	}
}

func TestInterceptorsGoAroundHandlers(t *testing.T) {
	named := func(name string) func(copyrpc.Handler) copyrpc.Handler {
		return func(next copyrpc.Handler) copyrpc.Handler {
			return func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
				if string(request.Payload) == name {
					return nil, copyrpc.Errorf(copyrpc.StatusPermissionDenied, "by %s", name)
				}
				reply, err := next(ctx, request)
				return []byte(name + "(" + string(reply) + ")"), err
			}
		}
	}
	p := newPair(t)
	p.serve(t, copyrpc.Chain(echo, named("outer"), named("inner")))
	reply, err := p.client.Call(limited(t), []byte("x"))
	check(t, err)
	if string(reply) != "outer(inner(x))" {
		t.Errorf("%q", reply)
	}
	if _, err = p.client.Call(limited(t), []byte("inner")); !errors.Is(err, copyrpc.StatusPermissionDenied) || !strings.Contains(err.Error(), "by inner") {
		t.Error(err)
	}
}
