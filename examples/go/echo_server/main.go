// echo_server answers every request with the request itself.
//
//	echo_server [ADDRESS]        e.g. 10.99.0.1:7471, [fd10:99::1]:7471, *:7471 (the default)
//
// It ends on SIGINT and SIGTERM, having taken leave of its clients.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	"github.com/copyrpc/copyrpc/examples/go/options"
)

func main() {
	address := "*:7471"
	options.Parse("[ADDRESS]")
	if flag.NArg() > 0 {
		address = flag.Arg(0)
	}
	if err := serve(address); err != nil {
		fmt.Fprintln(os.Stderr, "echo_server:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := copyrpc.Listen(address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Address())
	// Every request gets a goroutine. A reply that is longer than the client left room for, and a handler that returns an
	// error or panics, become an error reply by themselves.
	return listener.Serve(ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return request.Payload, nil
	})
}
