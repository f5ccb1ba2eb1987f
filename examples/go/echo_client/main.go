// echo_client sends calls to echo_server and checks every answer.
//
//	echo_client ADDRESS [CALLS [BYTES]]       e.g. echo_client 10.99.0.1:7471 10000 100
//
// 64 goroutines call, each one call at a time; the library gathers what they send into batches.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	"github.com/copyrpc/copyrpc/examples/go/options"
)

const (
	callers  = 64
	bytesMax = 65536
)

func main() {
	options.Parse("ADDRESS [CALLS [BYTES]]")
	calls, size, err := arguments(flag.Args())
	if err == nil {
		err = run(flag.Arg(0), calls, size)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo_client:", err)
		os.Exit(1)
	}
	fmt.Printf("%d calls of %d bytes answered\n", calls, size)
}

func arguments(words []string) (calls int64, size int, err error) {
	calls, size = 10000, 100
	usage := fmt.Errorf("usage: echo_client ADDRESS [CALLS [BYTES up to %d]]", bytesMax)
	if len(words) < 1 || len(words) > 3 {
		return 0, 0, usage
	}
	if len(words) > 1 {
		number, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil {
			return 0, 0, usage
		}
		calls = int64(number)
	}
	if len(words) > 2 {
		number, err := strconv.ParseUint(words[2], 10, 32)
		if err != nil || number > bytesMax {
			return 0, 0, usage
		}
		size = int(number)
	}
	return calls, size, nil
}

func run(address string, calls int64, size int) error {
	ctx := context.Background()
	server, err := copyrpc.Dial(ctx, address, copyrpc.WithReplyBytes(size))
	if err != nil {
		return err
	}
	defer server.Close()
	request := make([]byte, size)
	for i := range request {
		request[i] = byte(i*7 + 1)
	}
	var left atomic.Int64
	left.Store(calls)
	failures := make(chan error, callers)
	var all sync.WaitGroup
	for i := 0; i < callers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for left.Add(-1) >= 0 {
				if err := callOnce(ctx, server, request); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return server.Shutdown(ctx) // take leave: what is under way on either side finishes first
	}
}

func callOnce(ctx context.Context, server *copyrpc.Endpoint, request []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reply, err := server.Call(ctx, request)
	if err == nil && !bytes.Equal(reply, request) {
		err = fmt.Errorf("the answer is not what was sent")
	}
	return err
}
