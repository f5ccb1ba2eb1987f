// server.go: the spans of handlers.

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

// HandlerInterceptor makes a span of each request, for [copyrpc.Chain]. The span is a child of the caller's, if that has told
// of one, and else the root of a trace. It is in the ctx of the handler, so calls with this ctx are children of it.
func HandlerInterceptor(options ...Option) func(next copyrpc.Handler) copyrpc.Handler {
	s := settingsOf(options)
	tracer := s.tracer()
	return func(next copyrpc.Handler) copyrpc.Handler {
		begins := &starts{kind: trace.SpanKindServer, names: s.names}
		return func(ctx context.Context, request *copyrpc.Request) (reply []byte, err error) {
			begin := begins.of(request.Method, "")
			ctx, span := tracer.Start(withCaller(ctx, request), begin.name, begin.options...)
			returned := false
			defer func() {
				if span.IsRecording() {
					endRequest(span, request, reply, err, returned)
				}
				span.End()
			}()
			reply, err = next(ctx, request)
			returned = true
			return reply, err
		}
	}
}

// withCaller gives a context with the span of the caller. A request that has none has none of the ctx of Serve either: that is not its
// caller's.
func withCaller(ctx context.Context, request *copyrpc.Request) context.Context {
	told, found := request.Trace()
	if !found && !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: told.TraceID, SpanID: told.SpanID, TraceFlags: trace.TraceFlags(told.Flags), Remote: true,
	}))
}

// endRequest says what the caller is told. It is an error of the server only if that is to blame.
func endRequest(span trace.Span, request *copyrpc.Request, reply []byte, err error, returned bool) {
	attributes := make([]attribute.KeyValue, 0, 4)
	if host, port, ok := split(request.PeerAddress()); ok {
		attributes = append(attributes, semconv.NetworkPeerAddress(host), semconv.NetworkPeerPort(port))
	}
	status, why := told(request, reply, err, returned)
	seen := status
	if status < 0 { // it was dropped
		seen = copyrpc.StatusOf(status)
	}
	attributes = append(attributes, rpcStatusCode.String(statusName(seen)))
	if serverIsToBlame(seen) {
		attributes = append(attributes, semconv.ErrorTypeKey.String(status.Name()))
		span.SetStatus(codes.Error, why)
	}
	span.SetAttributes(attributes...)
}

// told is the status that the request is answered with, and why.
func told(request *copyrpc.Request, reply []byte, err error, returned bool) (copyrpc.Status, string) {
	if status, answered := request.Answered(); answered { // the handler did it by itself
		return status, "the handler has answered so"
	}
	switch {
	case !returned:
		return copyrpc.StatusUnknown, "the handler panicked, or ended its goroutine"
	case err == nil && len(reply) > request.ReplyBytesMax:
		return copyrpc.StatusUnknown, "the reply is longer than its caller accepts"
	case err == nil:
		return copyrpc.OK, ""
	}
	var answer *copyrpc.ReplyError
	if errors.As(err, &answer) && answer != nil && answer.Status > 0 {
		return answer.Status, err.Error()
	}
	var status copyrpc.Status
	if errors.As(err, &status) && status > 0 {
		return status, err.Error()
	}
	if stopped := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); stopped && request.Context().Err() != nil {
		// It is answered with StatusUnknown, which its caller does not wait for any more.
		return copyrpc.StatusOf(context.Cause(request.Context())), err.Error()
	}
	return copyrpc.StatusUnknown, err.Error()
}

// serverIsToBlame is what the conventions say of gRPC's statuses, whose numbers are the same. What an application's own statuses mean
// is not known here.
func serverIsToBlame(status copyrpc.Status) bool {
	switch status {
	case copyrpc.StatusUnknown, copyrpc.StatusDeadlineExceeded, copyrpc.StatusUnimplemented, copyrpc.StatusInternal, copyrpc.StatusUnavailable,
		copyrpc.StatusDataLoss:
		return true
	}
	return false
}
