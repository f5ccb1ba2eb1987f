package otelcopyrpc_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	otelcopyrpc "github.com/copyrpc/copyrpc/bindings/go/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// discard is an exporter that does nothing: what it costs to send spans somewhere is not measured.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                        { return nil }

// processor reports the processor time of an op, of all threads: other programs disturb it less than they do its time.
func processor(b *testing.B) (report func()) {
	used := func() time.Duration {
		var usage syscall.Rusage
		check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "processor-ns/op") }
}

// BenchmarkCall has a call and its handler, in one process: with interceptors that do nothing, with providers that make no spans, that make
// spans that are not sampled, and that make spans. For ratios, compare the lines of one run.
//
//	go test -run '^$' -bench . -count 6
func BenchmarkCall(b *testing.B) {
	made := func(sampler sdk.Sampler) trace.TracerProvider {
		provider := sdk.NewTracerProvider(sdk.WithBatcher(discard{}), sdk.WithSampler(sampler))
		b.Cleanup(func() { provider.Shutdown(context.Background()) })
		return provider
	}
	for _, one := range []struct {
		name     string
		provider trace.TracerProvider
	}{
		{"plain", nil}, {"interceptors", nil}, {"noop", noop.NewTracerProvider()}, {"unsampled", made(sdk.NeverSample())},
		{"sdk", made(sdk.AlwaysSample())},
	} {
		var options []copyrpc.Option
		handler := copyrpc.Handler(echo)
		if one.provider != nil {
			provides := otelcopyrpc.WithTracerProvider(one.provider)
			names := otelcopyrpc.WithMethodNames("otel.bench")
			options = append(options, copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor(provides, names)))
			handler = copyrpc.Chain(handler, otelcopyrpc.HandlerInterceptor(provides, names))
		} else if one.name == "interceptors" {
			options = append(options, copyrpc.WithCallInterceptor(func(next copyrpc.CallFunc) copyrpc.CallFunc {
				return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) { return next(ctx, call) }
			}))
		}
		s := serve(b, context.Background(), handler)
		endpoint := s.dial(b, options...)
		call := copyrpc.Call{Method: copyrpc.MethodNumber("otel.bench"), Request: make([]byte, 32), ReplyBytesMax: 64}
		b.Run(one.name+"/alone", func(b *testing.B) {
			b.ReportAllocs()
			defer processor(b)()
			for i := 0; i < b.N; i++ {
				if _, err := endpoint.Do(context.Background(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(one.name+"/many", func(b *testing.B) {
			b.ReportAllocs()
			defer processor(b)()
			b.SetParallelism(100)
			b.RunParallel(func(turns *testing.PB) {
				for turns.Next() {
					if _, err := endpoint.Do(context.Background(), call); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
