// Package otelcopyrpc makes spans of OpenTelemetry of the calls and the handlers of copyrpc, and has the context travel with the calls:
// the span of a handler is a child of its caller's.
//
//	server, err := copyrpc.Dial(ctx, address, copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor()))
//
//	err := listener.Serve(ctx, copyrpc.Chain(router.Serve, otelcopyrpc.HandlerInterceptor()))
//
// What travels is the id of the trace, the id of the caller's span, and the flags. The tracestate and the baggage stay
// behind. A peer that does not use OpenTelemetry notices nothing.
//
// The spans follow the semantic conventions for RPC. docs/observability.md says which attributes they have.
package otelcopyrpc

import (
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
)

// ScopeName is the instrumentation scope of the spans.
const ScopeName = "github.com/copyrpc/copyrpc/bindings/go/otel"

// The semantic conventions in which those for RPC are stable. Of their package for Go, which lags behind, the names that have changed since are here.
const (
	schemaURL     = "https://opentelemetry.io/schemas/1.45.0"
	rpcStatusCode = attribute.Key("rpc.status_code")
)

// Option is an option of CallInterceptor and HandlerInterceptor.
type Option func(*settings)

type settings struct {
	provider trace.TracerProvider
	names    map[uint16]string
}

// WithTracerProvider has another provider make the spans than the global one, [otel.GetTracerProvider].
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(s *settings) {
		if provider != nil {
			s.provider = provider
		}
	}
}

// WithMethodNames tells the names of methods that no [copyrpc.Router] of the program has: mostly those that a client calls. A call has only
// the number that [copyrpc.MethodNumber] makes of the name. Without a name, a span is called "method 7". As a Router does, the interceptor
// panics if two names have the same number.
func WithMethodNames(names ...string) Option {
	return func(s *settings) {
		for _, name := range names {
			number := copyrpc.MethodNumber(name)
			if other, taken := s.names[number]; taken && other != name {
				panic(&copyrpc.Error{Op: "method names", Status: copyrpc.ErrBusy,
					Message: fmt.Sprintf("the methods %q and %q have the same number, %#x: rename one", other, name, number)})
			}
			s.names[number] = name
		}
	}
}

func settingsOf(options []Option) *settings {
	s := &settings{provider: otel.GetTracerProvider(), names: map[uint16]string{}}
	for _, option := range options {
		option(s)
	}
	return s
}

func (s *settings) tracer() trace.Tracer {
	return s.provider.Tracer(ScopeName, trace.WithInstrumentationVersion(copyrpc.Version()), trace.WithSchemaURL(schemaURL))
}

// starts knows how the spans of one side begin. It keeps that of methods with a name, in places that they share if they are many: what a peer
// can send are numbers of any kind.
type starts struct {
	kind  trace.SpanKind
	names map[uint16]string
	kept  [64]atomic.Pointer[start]
}

// start is how the spans of a method begin, with attributes of the peer, unless that is "".
type start struct {
	method  uint16
	peer    string
	name    string
	options []trace.SpanStartOption
}

func (s *starts) of(method uint16, peer string) *start {
	kept := &s.kept[int(method)%len(s.kept)]
	if known := kept.Load(); known != nil && known.method == method && known.peer == peer {
		return known
	}
	name := s.names[method]
	if name == "" {
		name = copyrpc.MethodName(method)
	}
	if name == "" { // for now: a router may give it one
		return s.make(method, peer, numbered(method))
	}
	begin := s.make(method, peer, name)
	kept.Store(begin)
	return begin
}

func (s *starts) make(method uint16, peer, name string) *start {
	attributes := []attribute.KeyValue{semconv.RPCSystemNameKey.String("copyrpc"), semconv.RPCMethod(name)}
	if host, port, ok := split(peer); ok {
		attributes = append(attributes, semconv.ServerAddress(host), semconv.ServerPort(port),
			semconv.NetworkPeerAddress(host), semconv.NetworkPeerPort(port))
	}
	return &start{method, peer, name, []trace.SpanStartOption{trace.WithSpanKind(s.kind), trace.WithAttributes(attributes...)}}
}

// numbered names a method without a name as copyrpc's errors do.
func numbered(method uint16) string {
	if method >= copyrpc.MethodNamed {
		return "method 0x" + strconv.FormatUint(uint64(method), 16)
	}
	return "method " + strconv.FormatUint(uint64(method), 10)
}

// split takes an address of a peer apart, which is "" if blobs have connected it.
func split(peer string) (host string, port int, ok bool) {
	address, err := netip.ParseAddrPort(peer)
	if err != nil {
		return "", 0, false
	}
	return address.Addr().String(), int(address.Port()), true
}

// statusName is the name of a status as gRPC has it, and the number of an application's own.
func statusName(status copyrpc.Status) string {
	if status == copyrpc.OK {
		return "OK"
	}
	return status.Name()
}
