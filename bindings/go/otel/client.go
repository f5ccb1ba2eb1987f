// client.go: the spans of calls.

package otelcopyrpc

import (
	"context"
	"errors"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
)

// CallInterceptor makes a span of each call of an endpoint, for [copyrpc.WithCallInterceptor]. The span is a child of that
// of the call's ctx, and what the peer does for the call is a child of it. If there is no valid span, as with
// a provider that makes none, the Trace of the call stays as it is.
//
// An interceptor that calls again belongs before this one, in order that each attempt has a span.
func CallInterceptor(options ...Option) func(next copyrpc.CallFunc) copyrpc.CallFunc {
	s := settingsOf(options)
	tracer := s.tracer()
	return func(next copyrpc.CallFunc) copyrpc.CallFunc {
		begins := &starts{kind: trace.SpanKindClient, names: s.names} // of one connection
		return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
			begin := begins.of(call.Method, call.PeerAddress())
			ctx, span := tracer.Start(ctx, begin.name, begin.options...)
			defer span.End()
			if own := span.SpanContext(); own.IsValid() {
				call.Trace = &copyrpc.Trace{TraceID: own.TraceID(), SpanID: own.SpanID(), Flags: byte(own.TraceFlags())}
			}
			reply, err := next(ctx, call)
			if span.IsRecording() {
				endCall(span, err)
			}
			return reply, err
		}
	}
}

// endCall says what has become of a call. For its caller, each error is one.
func endCall(span trace.Span, err error) {
	if err == nil {
		span.SetAttributes(rpcStatusCode.String("OK"))
		return
	}
	span.SetAttributes(rpcStatusCode.String(statusName(copyrpc.StatusOf(err))), errorType(err))
	span.SetStatus(codes.Error, err.Error())
}

// errorType is the name of copyrpc's status, whether the library's or the peer's; of another error, its type in Go.
func errorType(err error) attribute.KeyValue {
	var status copyrpc.Status
	if errors.As(err, &status) {
		return semconv.ErrorTypeKey.String(status.Name())
	}
	return semconv.ErrorType(err)
}
