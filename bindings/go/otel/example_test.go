package otelcopyrpc_test

import (
	"context"
	"fmt"
	"log"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	otelcopyrpc "github.com/copyrpc/copyrpc/bindings/go/otel"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A server and its client, which share a program here. A program has its own exporter, which sends spans to a collector.
func Example() {
	exporter := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(exporter)))

	var router copyrpc.Router
	router.HandleName("kv.get", func(context.Context, *copyrpc.Request) ([]byte, error) { return []byte("Luna"), nil })
	listener, err := copyrpc.Listen(host() + ":0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- listener.Serve(ctx, copyrpc.Chain(router.Serve, otelcopyrpc.HandlerInterceptor())) }()

	server, err := copyrpc.Dial(ctx, listener.Address(), copyrpc.WithCallInterceptor(otelcopyrpc.CallInterceptor()))
	if err != nil {
		log.Fatal(err)
	}
	if _, err = server.Do(ctx, copyrpc.Call{Method: copyrpc.MethodNumber("kv.get")}); err != nil {
		log.Fatal(err)
	}
	server.Close()
	stop()
	<-served
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name, span.SpanKind, span.Parent.IsRemote())
	}
	// Output:
	// kv.get server true
	// kv.get client false
}
