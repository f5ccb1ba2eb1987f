package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// exampleChannels is a channel between two contexts with rails, as two programs would have it, until stop is called.
func exampleChannels() (left, right *copyrpc.Channel, stop func()) {
	ctx := context.Background()
	listener, err := copyrpc.ListenChannels("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	accepted := make(chan *copyrpc.Channel)
	go func() {
		ch, err := listener.Accept(ctx)
		if err != nil {
			log.Fatal(err)
		}
		accepted <- ch
	}()
	left, err = copyrpc.DialChannel(ctx, listener.Address())
	if err != nil {
		log.Fatal(err)
	}
	right = <-accepted
	return left, right, func() {
		left.Close()
		right.Close()
		listener.Close()
	}
}

// A message between two programs; here they are goroutines. What is large goes over both rails.
func ExampleChannel() {
	ctx := context.Background()
	listener, err := copyrpc.ListenChannels("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	received := make(chan int)
	go func() {
		ch, err := listener.Accept(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer ch.Close()
		region, err := ch.NewRegion(1 << 20)
		if err != nil {
			log.Fatal(err)
		}
		defer region.Close()
		sizes, err := ch.Receive(ctx, region.Slice(0, 1<<20))
		if err != nil {
			log.Fatal(err)
		}
		received <- sizes[0]
	}()

	ch, err := copyrpc.DialChannel(ctx, listener.Address())
	if err != nil {
		log.Fatal(err)
	}
	defer ch.Close()
	region, err := ch.NewRegion(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	defer region.Close()
	n := copy(region.Bytes(), make([]byte, 1_000_000))
	fmt.Println(ch.Send(ctx, region.Slice(0, n)))
	fmt.Println(<-received, "bytes")
	// Output:
	// <nil>
	// 1000000 bytes
}

// As a network plugin of NCCL does it: post the receive, post the send, and test both until they are done.
func ExampleChannel_PostSend() {
	left, right, stop := exampleChannels()
	defer stop()
	out, err := left.NewRegion(4096)
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()
	in, err := right.NewRegion(4096)
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()

	receive, err := right.PostReceive(in.Slice(0, 4096).Tagged(7))
	if err != nil {
		log.Fatal(err)
	}
	send, err := left.PostSend(out.Slice(0, 1234).Tagged(7))
	if err != nil {
		log.Fatal(err)
	}
	for _, transfer := range []*copyrpc.Transfer{send, receive} {
		for done := false; !done; {
			if done, err = transfer.Test(); err != nil {
				log.Fatal(err)
			}
		}
	}
	fmt.Println(receive.Sizes())
	// Output: [1234]
}

// Several buffers that are one message: each takes what is sent with its tag, in any order.
func ExampleChannel_Receive() {
	left, right, stop := exampleChannels()
	defer stop()
	region, err := right.NewRegion(8192)
	if err != nil {
		log.Fatal(err)
	}
	defer region.Close()
	ctx := context.Background()
	go left.SendBytes(ctx, []byte("second"), 2)
	go left.SendBytes(ctx, []byte("one"), 1)
	sizes, err := right.Receive(ctx, region.Slice(0, 4096).Tagged(1), region.Slice(4096, 8192).Tagged(2))
	fmt.Println(sizes, string(region.Bytes()[:3]), string(region.Bytes()[4096:4102]), err)
	// Output: [3 6] one second <nil>
}

// Both sides learn that a message did not fit, and the receiver how long it is.
func ExampleTruncatedError() {
	left, right, stop := exampleChannels()
	defer stop()
	ctx := context.Background()
	go left.SendBytes(ctx, make([]byte, 500), 0)
	_, err := right.ReceiveBytes(ctx, 100, 0)
	var truncated *copyrpc.TruncatedError
	if errors.As(err, &truncated) {
		fmt.Println(truncated.Sizes, truncated.Room, errors.Is(err, copyrpc.ErrTruncated))
	}
	// Output: [500] [100] true
}

// Two programs that know each other by other means than an address; here, goroutines and channels.
func ExampleNewChannelBlob() {
	ctx := context.Background()
	toRight, toLeft := make(chan []byte, 1), make(chan []byte, 1)
	join := func(send chan<- []byte, receive <-chan []byte) *copyrpc.Channel {
		blob, err := copyrpc.NewChannelBlob(copyrpc.WithRetry(20, 7)) // 4 s before a retry: the other may join that much later
		if err != nil {
			log.Fatal(err)
		}
		send <- blob.Bytes
		ch, err := blob.Join(ctx, <-receive)
		if err != nil {
			log.Fatal(err)
		}
		return ch
	}
	sent := make(chan error)
	go func() {
		right := join(toLeft, toRight)
		defer right.Close()
		sent <- right.SendBytes(ctx, []byte("hello"), 0)
		<-right.Done()
	}()
	left := join(toRight, toLeft)
	defer left.Close()
	got, err := left.ReceiveBytes(ctx, 4096, 0)
	fmt.Println(string(got), err, <-sent)
	// Output: hello <nil> <nil>
}
