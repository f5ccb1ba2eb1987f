package otelcopyrpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	otelcopyrpc "github.com/copyrpc/copyrpc/bindings/go/otel"
	"go.opentelemetry.io/otel/baggage"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// seen is what a handler knows of the trace.
type seen struct {
	told    copyrpc.Trace
	found   bool
	span    trace.SpanContext
	baggage int
}

func watch(into *seen) copyrpc.Handler {
	return func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		into.told, into.found = request.Trace()
		into.span, into.baggage = trace.SpanContextFromContext(ctx), baggage.FromContext(ctx).Len()
		return nil, nil
	}
}

func TestTheSampledFlagTravels(t *testing.T) {
	for _, sampled := range []bool{true, false} {
		opposite := map[bool]sdk.Sampler{true: sdk.NeverSample(), false: sdk.AlwaysSample()}[sampled] // what the server does without a parent
		root := map[bool]sdk.Sampler{true: sdk.AlwaysSample(), false: sdk.NeverSample()}[sampled]
		client, server := newSide(t, sdk.WithSampler(root)), newSide(t, sdk.WithSampler(sdk.ParentBased(opposite)))
		var handler seen
		s := serve(t, context.Background(), server.handles(watch(&handler)))
		ctx, above := client.provider.Tracer("the program").Start(limited(t), "above")
		_, err := s.dial(t, client.calls()).Call(ctx, nil)
		check(t, err)
		if !handler.found || handler.told.TraceID != above.SpanContext().TraceID() || handler.told.Flags&1 == 1 != sampled {
			t.Errorf("sampled %v: %+v", sampled, handler.told)
		}
		if handler.span.TraceID() != above.SpanContext().TraceID() || handler.span.IsSampled() != sampled {
			t.Errorf("sampled %v: %v", sampled, handler.span)
		}
		if count := map[bool]int{true: 1, false: 0}[sampled]; len(client.take()) != count || len(server.take()) != count {
			t.Errorf("sampled %v: spans were exported, or were not", sampled)
		}
	}
}

func TestWithoutASpanNothingTravels(t *testing.T) {
	server := newSide(t)
	var handler seen
	serving, own := server.provider.Tracer("the program").Start(context.Background(), "serving")
	s := serve(t, serving, server.handles(watch(&handler)))
	none := copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor(otelcopyrpc.WithTracerProvider(noop.NewTracerProvider())))
	_, err := s.dial(t, none).Call(limited(t), nil)
	check(t, err)
	if handler.found {
		t.Errorf("%+v", handler.told)
	}
	if span := server.one(t); span.Parent.IsValid() || span.SpanContext.TraceID() == own.SpanContext().TraceID() {
		t.Errorf("the span of a request without a caller's has the parent %v", span.Parent)
	}
}

// Who makes no spans passes on what it was told.
func TestATraceGoesThroughWhoMakesNoSpans(t *testing.T) {
	client := newSide(t)
	nothing := otelcopyrpc.WithTracerProvider(noop.NewTracerProvider())
	var handler seen
	back := serve(t, context.Background(), watch(&handler))
	onward := back.dial(t, copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor(nothing)))
	front := serve(t, context.Background(), copyrpc.Chain(func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		return onward.Call(ctx, nil)
	}, otelcopyrpc.HandlerInterceptor(nothing)))
	_, err := front.dial(t, client.calls()).Call(limited(t), nil)
	check(t, err)
	span := client.one(t).SpanContext
	if want := (copyrpc.Trace{TraceID: span.TraceID(), SpanID: span.SpanID(), Flags: byte(span.TraceFlags())}); !handler.found || handler.told != want {
		t.Errorf("%+v, and not %+v", handler.told, want)
	}
}

func TestATraceThatTheProgramHasSetStaysWithoutASpan(t *testing.T) {
	var handler seen
	s := serve(t, context.Background(), watch(&handler))
	none := copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor(otelcopyrpc.WithTracerProvider(noop.NewTracerProvider())))
	own := copyrpc.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1}
	_, err := s.dial(t, none).Do(limited(t), copyrpc.Call{Trace: &own})
	check(t, err)
	if !handler.found || handler.told != own {
		t.Errorf("%+v", handler)
	}
}

func TestTracestateAndBaggageStayBehind(t *testing.T) {
	client, server := newSide(t), newSide(t)
	var handler seen
	s := serve(t, context.Background(), server.handles(watch(&handler)))
	state, err := trace.ParseTraceState("vendor=value")
	check(t, err)
	ctx := trace.ContextWithSpanContext(limited(t), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	member, err := baggage.NewMember("user", "1")
	check(t, err)
	bag, err := baggage.New(member)
	check(t, err)
	_, err = s.dial(t, client.calls()).Call(baggage.ContextWithBaggage(ctx, bag), nil)
	check(t, err)
	if call := client.one(t); call.SpanContext.TraceState().Len() != 1 {
		t.Fatal("the call has no tracestate: this tests nothing")
	}
	if handler.span.TraceID() != (trace.TraceID{1}) || handler.span.TraceState().Len() != 0 || handler.baggage != 0 {
		t.Errorf("%+v", handler)
	}
}

// Many at once, of which each second one is part of a trace: each handler has its own caller.
func TestManyTracesAtOnce(t *testing.T) {
	client, server := newSide(t), newSide(t)
	s := serve(t, context.Background(), server.handles(func(ctx context.Context, _ *copyrpc.Request) ([]byte, error) {
		return []byte(trace.SpanContextFromContext(ctx).TraceID().String()), nil
	}))
	traced, plain := s.dial(t, client.calls()), s.dial(t)
	var all sync.WaitGroup
	for caller := 0; caller < 100; caller++ {
		all.Add(2)
		go func() {
			defer all.Done()
			for i := 0; i < 10; i++ {
				ctx, span := client.provider.Tracer("the program").Start(limited(t), fmt.Sprint(caller))
				reply, err := traced.Call(ctx, nil)
				if want := span.SpanContext().TraceID().String(); err != nil || string(reply) != want {
					t.Errorf("%s, %v, and not %s", reply, err, want)
				}
				span.End()
			}
		}()
		go func() {
			defer all.Done()
			for i := 0; i < 10; i++ {
				if _, err := plain.Call(limited(t), nil); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	calls, roots := map[trace.SpanID]trace.TraceID{}, 0
	for _, span := range client.take() {
		if span.SpanKind == trace.SpanKindClient {
			calls[span.SpanContext.SpanID()] = span.SpanContext.TraceID()
		}
	}
	for _, span := range server.take() {
		if !span.Parent.IsValid() {
			roots++
		} else if calls[span.Parent.SpanID()] != span.SpanContext.TraceID() {
			t.Fatalf("%v is the child of no call", span.SpanContext)
		} else {
			delete(calls, span.Parent.SpanID())
		}
	}
	if len(calls) != 0 || roots != 1000 {
		t.Errorf("%d calls without a handler's span, %d roots", len(calls), roots)
	}
}
