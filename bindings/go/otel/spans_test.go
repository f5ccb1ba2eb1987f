package otelcopyrpc_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	otelcopyrpc "github.com/copyrpc/copyrpc/bindings/go/otel"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

func TestACallAndItsHandlerHaveASpanEach(t *testing.T) {
	client, server := newSide(t), newSide(t)
	var router copyrpc.Router
	router.HandleName("otel.get", echo)
	var from string
	s := serve(t, context.Background(), server.handles(func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		from = request.PeerAddress()
		return router.Serve(ctx, request)
	}))
	endpoint := s.dial(t, client.calls())
	ctx, above := client.provider.Tracer("the program").Start(limited(t), "above")
	_, err := endpoint.Do(ctx, copyrpc.Call{Method: copyrpc.MethodNumber("otel.get"), Request: []byte("x")})
	check(t, err)
	call, handler := client.one(t), server.one(t)

	to, err := netip.ParseAddrPort(s.listener.Address())
	check(t, err)
	has(t, call, map[string]any{
		"rpc.system.name": "copyrpc", "rpc.method": "otel.get", "rpc.status_code": "OK",
		"server.address": to.Addr().String(), "server.port": int64(to.Port()),
		"network.peer.address": to.Addr().String(), "network.peer.port": int64(to.Port()),
	})
	back, err := netip.ParseAddrPort(from)
	check(t, err)
	has(t, handler, map[string]any{
		"rpc.system.name": "copyrpc", "rpc.method": "otel.get", "rpc.status_code": "OK",
		"network.peer.address": back.Addr().String(), "network.peer.port": int64(back.Port()),
	})
	if call.Name != "otel.get" || handler.Name != "otel.get" || call.SpanKind != trace.SpanKindClient || handler.SpanKind != trace.SpanKindServer {
		t.Errorf("%s, %v; %s, %v", call.Name, call.SpanKind, handler.Name, handler.SpanKind)
	}
	if call.Parent.SpanID() != above.SpanContext().SpanID() {
		t.Error("the call is no child of what made it")
	}
	isChild(t, handler, call.SpanContext)
	ended(t, "call", call, "OK", "")
	ended(t, "handler", handler, "OK", "")
	for _, span := range []struct{ name, version, schema string }{
		{call.InstrumentationScope.Name, call.InstrumentationScope.Version, call.InstrumentationScope.SchemaURL},
		{handler.InstrumentationScope.Name, handler.InstrumentationScope.Version, handler.InstrumentationScope.SchemaURL},
	} {
		if span.name != otelcopyrpc.ScopeName || span.version != copyrpc.Version() || span.schema != "https://opentelemetry.io/schemas/1.45.0" {
			t.Errorf("%+v", span)
		}
	}
}

// Each form of call that interceptors see has a span, and a handler's that is its child.
func TestEachFormOfCallHasASpan(t *testing.T) {
	client, server := newSide(t), newSide(t)
	s := serve(t, context.Background(), server.handles(echo))
	c, err := copyrpc.Open()
	check(t, err)
	t.Cleanup(func() { c.Close() })
	region, err := c.NewRegion(8192, 0)
	check(t, err)
	endpoint := s.dial(t, client.calls(), copyrpc.WithContext(c))
	lasting := s.dial(t, client.calls(), copyrpc.WithReconnect(0, 0))
	ctx := limited(t)
	of := func(_ any, err error) error { return err }
	for name, one := range map[string]struct {
		count int
		call  func() error
	}{
		"Call":        {1, func() error { return of(endpoint.Call(ctx, []byte("x"))) }},
		"Do":          {1, func() error { return of(endpoint.Do(ctx, copyrpc.Call{})) }},
		"CallBatch":   {3, func() error { return of(endpoint.CallBatch(ctx, make([][]byte, 3))) }},
		"DoBatch":     {2, func() error { return of(endpoint.DoBatch(ctx, make([]copyrpc.Call, 2))) }},
		"a region":    {1, func() error { return of(endpoint.Do(ctx, copyrpc.Call{From: region.Slice(0, 4000)})) }},
		"short":       {1, func() error { return of(endpoint.Do(ctx, copyrpc.Call{From: region.Slice(0, 10)})) }},
		"idempotent":  {1, func() error { return of(lasting.Do(ctx, copyrpc.Call{Idempotent: true})) }},
		"reconnects":  {1, func() error { return of(lasting.Call(ctx, nil)) }},
		"both of two": {2, func() error { return of(lasting.DoBatch(ctx, []copyrpc.Call{{Idempotent: true}, {}})) }},
	} {
		if err := one.call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		calls, handlers := client.take(), server.take()
		if len(calls) != one.count || len(handlers) != one.count {
			t.Fatalf("%s: %d and %d spans", name, len(calls), len(handlers))
		}
		children := map[trace.SpanID]bool{}
		for _, handler := range handlers {
			children[handler.Parent.SpanID()] = true
		}
		for _, call := range calls {
			if !children[call.SpanContext.SpanID()] {
				t.Errorf("%s: a call without a handler's span", name)
			}
		}
	}
}

// A handler calls another server: its call is a child of its span.
func TestWhatAHandlerCallsIsPartOfTheTrace(t *testing.T) {
	first, second, third := newSide(t), newSide(t), newSide(t)
	back := serve(t, context.Background(), third.handles(echo))
	onward := back.dial(t, second.calls())
	front := serve(t, context.Background(), second.handles(func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		return onward.Call(ctx, request.Payload)
	}))
	reply, err := front.dial(t, first.calls()).Call(limited(t), []byte("x"))
	if err != nil || string(reply) != "x" {
		t.Fatalf("%q, %v", reply, err)
	}
	call, between, last := first.one(t), second.take(), third.one(t)
	if len(between) != 2 {
		t.Fatal(between)
	}
	nested, handler := between[0], between[1]
	isChild(t, handler, call.SpanContext)
	isChild(t, last, nested.SpanContext)
	if nested.Parent.SpanID() != handler.SpanContext.SpanID() || last.SpanContext.TraceID() != call.SpanContext.TraceID() {
		t.Error("the trace is torn")
	}
}

var runs int

func TestSpansHaveTheNamesOfMethods(t *testing.T) {
	client, server := newSide(t), newSide(t)
	s := serve(t, context.Background(), server.handles(echo, otelcopyrpc.WithMethodNames("otel.server")))
	var names []string
	numbers := map[uint16]bool{}
	for i := 0; len(names) < 100; i++ {
		name := fmt.Sprint("otel.many.", i)
		if number := copyrpc.MethodNumber(name); !numbers[number] {
			numbers[number], names = true, append(names, name)
		}
	}
	endpoint := s.dial(t, client.calls(otelcopyrpc.WithMethodNames("otel.a", "otel.b"), otelcopyrpc.WithMethodNames(names...)))
	call := func(method uint16) (string, string) {
		t.Helper()
		_, err := endpoint.Do(limited(t), copyrpc.Call{Method: method})
		check(t, err)
		call, handler := client.one(t), server.one(t)
		if handler.Name != attributes(handler)["rpc.method"].AsString() || call.Name != attributes(call)["rpc.method"].AsString() {
			t.Errorf("%v, %v", call, handler)
		}
		return call.Name, handler.Name
	}
	runs++ // of `go test -count`: names last as long as the program
	laterName := fmt.Sprint("otel.later.", runs)
	later := copyrpc.MethodNumber(laterName)
	number := fmt.Sprintf("method %#x", later)
	for turn := 0; turn < 2; turn++ {
		for _, one := range []struct {
			method          uint16
			client, handler string
		}{
			{0, "method 0", "method 0"},
			{7, "method 7", "method 7"},
			{copyrpc.MethodNumber("otel.a"), "otel.a", fmt.Sprintf("method %#x", copyrpc.MethodNumber("otel.a"))},
			{copyrpc.MethodNumber("otel.b"), "otel.b", fmt.Sprintf("method %#x", copyrpc.MethodNumber("otel.b"))},
			{copyrpc.MethodNumber("otel.server"), fmt.Sprintf("method %#x", copyrpc.MethodNumber("otel.server")), "otel.server"},
			{later, number, number},
		} {
			if name, handler := call(one.method); name != one.client || handler != one.handler {
				t.Errorf("%d: %q and %q, and not %q and %q", one.method, name, handler, one.client, one.handler)
			}
		}
	}
	for turn := 0; turn < 2; turn++ { // many, of which some have to share what is kept
		for _, name := range names {
			if got, _ := call(copyrpc.MethodNumber(name)); got != name {
				t.Errorf("%q, and not %q", got, name)
			}
		}
	}
	new(copyrpc.Router).HandleName(laterName, echo) // any router of the program
	if name, handler := call(later); name != laterName || handler != laterName {
		t.Errorf("%q, %q", name, handler)
	}
}

func TestMethodsThatCollide(t *testing.T) {
	defer func() {
		if err, ok := recover().(*copyrpc.Error); !ok || !strings.Contains(err.Message, "queue.sum") || !strings.Contains(err.Message, "lock.update_all") {
			t.Error(err)
		}
	}()
	otelcopyrpc.CallInterceptor(otelcopyrpc.WithMethodNames("queue.sum", "queue.sum"), otelcopyrpc.WithMethodNames("lock.update_all"))
}

// The peer of an endpoint that reconnects may be another one later.
func TestSpansTellOfThePresentPeer(t *testing.T) {
	client := newSide(t)
	first, second := serve(t, context.Background(), echo), serve(t, context.Background(), echo)
	endpoint, err := copyrpc.Dial(limited(t), first.listener.Address()+","+second.listener.Address(),
		copyrpc.WithReconnect(time.Millisecond, 10*time.Millisecond), client.calls(otelcopyrpc.WithMethodNames("otel.a")))
	check(t, err)
	t.Cleanup(func() { endpoint.Close() })
	for _, s := range []*service{first, second} {
		to, err := netip.ParseAddrPort(s.listener.Address())
		check(t, err)
		if s == second {
			first.stop()
			_, err = endpoint.Call(limited(t), nil) // waits for the connection
			check(t, err)
			client.take()
		}
		for turn := 0; turn < 2; turn++ {
			_, err = endpoint.Do(limited(t), copyrpc.Call{Method: copyrpc.MethodNumber("otel.a")})
			check(t, err)
			if port := attributes(client.one(t))["server.port"].AsInt64(); port != int64(to.Port()) {
				t.Errorf("%d, and not %d", port, to.Port())
			}
		}
	}
}

func TestPeersWithoutAnAddress(t *testing.T) {
	client, server := newSide(t), newSide(t)
	ctx := limited(t)
	ours, err := copyrpc.NewBlob(client.calls())
	check(t, err)
	theirs, err := copyrpc.NewBlob()
	check(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		endpoint, err := theirs.Join(ctx, ours.Bytes)
		if err != nil {
			t.Error(err)
			return
		}
		defer endpoint.Close()
		endpoint.Serve(ctx, server.handles(echo))
	}()
	endpoint, err := ours.Join(ctx, theirs.Bytes)
	check(t, err)
	_, err = endpoint.Do(ctx, copyrpc.Call{Method: 3})
	check(t, err)
	endpoint.Close()
	<-served
	for _, span := range append(client.take(), server.take()...) {
		has(t, span, map[string]any{"rpc.system.name": "copyrpc", "rpc.method": "method 3", "rpc.status_code": "OK"})
	}
}

func TestTheGlobalProviderIsTheDefault(t *testing.T) {
	both, before := newSide(t), otel.GetTracerProvider()
	otel.SetTracerProvider(both.provider)
	defer otel.SetTracerProvider(before)
	s := serve(t, context.Background(), copyrpc.Chain(echo, otelcopyrpc.HandlerInterceptor(otelcopyrpc.WithTracerProvider(nil))))
	endpoint := s.dial(t, copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor()))
	_, err := endpoint.Call(limited(t), nil)
	check(t, err)
	if spans := both.take(); len(spans) != 2 {
		t.Error(spans)
	}
}
