package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// A server and a client. On a machine without RDMA hardware, run it under `simnic run --`.
func Example() {
	listener, err := copyrpc.Listen("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- listener.Serve(ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			return append([]byte("hello, "), request.Payload...), nil
		})
	}()

	server, err := copyrpc.Dial(ctx, listener.Address())
	if err != nil {
		log.Fatal(err)
	}
	reply, err := server.Call(ctx, []byte("world"))
	fmt.Println(string(reply), err)

	server.Close()
	stop()
	fmt.Println(<-served)
	// Output:
	// hello, world <nil>
	// <nil>
}

// exampleServer answers with `handler` until stop is called.
func exampleServer(handler copyrpc.Handler) (server *copyrpc.Endpoint, stop func()) {
	listener, err := copyrpc.Listen("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- listener.Serve(ctx, handler) }()
	server, err = copyrpc.Dial(ctx, listener.Address())
	if err != nil {
		log.Fatal(err)
	}
	return server, func() {
		server.Close()
		cancel()
		<-served
	}
}

// The deadline of the context is the call's.
func ExampleEndpoint_Call() {
	server, stop := exampleServer(func(ctx context.Context, _ *copyrpc.Request) ([]byte, error) {
		<-ctx.Done() // it never answers
		return nil, ctx.Err()
	})
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := server.Call(ctx, []byte("are you there?"))
	fmt.Println(errors.Is(err, copyrpc.ErrTimeout), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

// Many calls at once; each has a result of its own.
func ExampleEndpoint_CallBatch() {
	server, stop := exampleServer(func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		if len(request.Payload) == 0 {
			return nil, errors.New("nothing to double")
		}
		return append(request.Payload, request.Payload...), nil
	})
	defer stop()

	results, err := server.CallBatch(context.Background(), [][]byte{[]byte("ab"), {}, []byte("c")})
	if err != nil {
		log.Fatal(err)
	}
	for _, result := range results {
		fmt.Printf("%q %v\n", result.Reply, result.Err)
	}
	// Output:
	// "abab" <nil>
	// "" copyrpc: the peer answered with status 2 (UNKNOWN): nothing to double
	// "cc" <nil>
}

// A handler that sends a status of its own, and a caller that looks at it.
func ExampleReplyError() {
	server, stop := exampleServer(func(context.Context, *copyrpc.Request) ([]byte, error) {
		return nil, &copyrpc.ReplyError{Status: 404, Payload: []byte("no such key")}
	})
	defer stop()

	_, err := server.Call(context.Background(), []byte("get x"))
	var reply *copyrpc.ReplyError
	if errors.As(err, &reply) {
		fmt.Println(reply.Status, string(reply.Payload))
	}
	// Output: 404 no such key
}

// The low level: fill the arrays, Submit, Poll, Wait.
func ExampleRawContext() {
	listener, err := copyrpc.Listen("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- listener.Serve(ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			return request.Payload, nil
		})
	}()

	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{Ops: 256})
	if err != nil {
		log.Fatal(err)
	}
	endpoint, err := raw.Connect(listener.Address(), 0)
	if err != nil {
		log.Fatal(err)
	}
	sum, answered := 0, 0
	for answered < 256 {
		count, _ := raw.Poll()
		for _, done := range raw.Completions[:count] {
			switch done.Kind {
			case copyrpc.CompletionConnected:
				for i := range raw.Ops {
					raw.Payload[i] = byte(i)
					raw.Ops[i] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: endpoint, UserData: uint64(i),
						PayloadOffset: uint64(i), PayloadBytes: 1, ReplyBytesMax: 1}
				}
				if taken, status := raw.Submit(256); taken != 256 {
					log.Fatal(status)
				}
			case copyrpc.CompletionResponse:
				sum += int(done.View()[0])
				answered++
			}
		}
		if count == 0 {
			if err := raw.Wait(ctx); err != nil {
				log.Fatal(err)
			}
		}
	}
	fmt.Println(sum)
	raw.Close()
	cancel()
	<-served
	// Output: 32640
}

// Two programs that know each other by other means than an address; here, goroutines and channels.
func ExampleNewBlob() {
	ctx := context.Background()
	toServer, toClient := make(chan []byte, 1), make(chan []byte, 1)
	go func() {
		blob, err := copyrpc.NewBlob()
		if err != nil {
			log.Fatal(err)
		}
		toClient <- blob.Bytes
		endpoint, err := blob.Join(ctx, <-toServer)
		if err != nil {
			log.Fatal(err)
		}
		defer endpoint.Close()
		endpoint.Serve(ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			return append([]byte("hello, "), request.Payload...), nil
		})
	}()

	blob, err := copyrpc.NewBlob()
	if err != nil {
		log.Fatal(err)
	}
	toServer <- blob.Bytes
	server, err := blob.Join(ctx, <-toClient)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	reply, err := server.Call(ctx, []byte("world"))
	fmt.Println(string(reply), err)
	// Output: hello, world <nil>
}

func ExampleContext_NewRegion() {
	c, err := copyrpc.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() // and with it the region
	region, err := c.NewRegion(1<<20, copyrpc.LocalWrite|copyrpc.RemoteRead)
	if err != nil {
		log.Fatal(err)
	}
	copy(region.Bytes(), "what peers may read")
	info, err := region.Info()
	fmt.Println(info.Bytes, info.RemoteKey != 0, err)
	// Output: 1048576 true <nil>
}
