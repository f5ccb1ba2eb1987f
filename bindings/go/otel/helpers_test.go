package otelcopyrpc_test

import (
	"context"
	"os"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	otelcopyrpc "github.com/copyrpc/copyrpc/bindings/go/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func host() string {
	if address := os.Getenv("TEST_ADDRESS"); address != "" {
		return address
	}
	return "127.0.0.1"
}

// limited gives a context that ends a test which hangs.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// side is one that makes spans, and what it has made.
type side struct {
	provider *sdk.TracerProvider
	exporter *tracetest.InMemoryExporter
}

func newSide(t testing.TB, options ...sdk.TracerProviderOption) *side {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(append(options, sdk.WithSyncer(exporter))...)
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	return &side{provider, exporter}
}

func (s *side) provides() otelcopyrpc.Option { return otelcopyrpc.WithTracerProvider(s.provider) }

// calls and handles are the interceptors of a side.
func (s *side) calls(options ...otelcopyrpc.Option) copyrpc.Option {
	return copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor(append(options, s.provides())...))
}

func (s *side) handles(handler copyrpc.Handler, options ...otelcopyrpc.Option) copyrpc.Handler {
	return copyrpc.Chain(handler, otelcopyrpc.HandlerInterceptor(append(options, s.provides())...))
}

// take gives the spans that have ended, in that order.
func (s *side) take() tracetest.SpanStubs {
	spans := s.exporter.GetSpans()
	s.exporter.Reset()
	return spans
}

// one gives the only span that has ended.
func (s *side) one(t testing.TB) tracetest.SpanStub {
	t.Helper()
	spans := s.take()
	if len(spans) != 1 {
		t.Fatalf("%d spans, not one: %v", len(spans), spans)
	}
	return spans[0]
}

// service is a server. Its stop waits until all handlers have ended, and so their spans.
type service struct {
	listener *copyrpc.Listener
	stop     func()
}

func serve(t testing.TB, ctx context.Context, handler copyrpc.Handler, options ...copyrpc.Option) *service {
	t.Helper()
	listener, err := copyrpc.Listen(host()+":0", append(options, copyrpc.WithConnectTimeout(time.Minute))...)
	check(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		listener.Serve(ctx, handler)
	}()
	s := &service{listener, func() { cancel(); <-ended }}
	t.Cleanup(s.stop)
	return s
}

func (s *service) dial(t testing.TB, options ...copyrpc.Option) *copyrpc.Endpoint {
	t.Helper()
	endpoint, err := copyrpc.Dial(limited(t), s.listener.Address(), options...)
	check(t, err)
	t.Cleanup(func() { endpoint.Close() })
	return endpoint
}

func echo(_ context.Context, request *copyrpc.Request) ([]byte, error) { return request.Payload, nil }

// attributes are those of a span, by name.
func attributes(span tracetest.SpanStub) map[attribute.Key]attribute.Value {
	all := map[attribute.Key]attribute.Value{}
	for _, one := range span.Attributes {
		all[one.Key] = one.Value
	}
	return all
}

// has fails the test unless the span has exactly these attributes.
func has(t testing.TB, span tracetest.SpanStub, want map[string]any) {
	t.Helper()
	all := attributes(span)
	for name, value := range want {
		if got := all[attribute.Key(name)].AsInterface(); got != value {
			t.Errorf("%s of %s is %v, and not %v", name, span.Name, got, value)
		}
	}
	for name, value := range all {
		if _, wanted := want[string(name)]; !wanted {
			t.Errorf("%s has %s, %v", span.Name, name, value.AsInterface())
		}
	}
}

// ended fails the test unless the span says so of what has become of it; errorType "" = it is no error.
func ended(t testing.TB, name string, span tracetest.SpanStub, code, errorType string) {
	t.Helper()
	all := attributes(span)
	if got := all["rpc.status_code"].AsString(); got != code {
		t.Errorf("%s: %s, and not %s", name, got, code)
	}
	if got := all["error.type"].AsString(); got != errorType {
		t.Errorf("%s: error.type is %q, and not %q", name, got, errorType)
	}
	if want := errorType != ""; (span.Status.Code == codes.Error) != want || (span.Status.Description != "") != want {
		t.Errorf("%s: the status is %+v", name, span.Status)
	}
}

// isChild fails the test unless the one span is the other's child, told of by a peer.
func isChild(t testing.TB, span tracetest.SpanStub, of trace.SpanContext) {
	t.Helper()
	if span.Parent.SpanID() != of.SpanID() || span.SpanContext.TraceID() != of.TraceID() || !span.Parent.IsRemote() {
		t.Errorf("%s is no child: its parent is %v, and not %v", span.Name, span.Parent, of)
	}
}
