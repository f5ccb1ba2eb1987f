package copyrpc_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// exampleMemory is a program that opens a page of its memory to whoever connects, and tells each where it is by private data. It
// does nothing else: the devices do the rest. Here it is a goroutine, until stop is called.
func exampleMemory() (address string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c, err := copyrpc.Open(copyrpc.WithQueues())
	if err != nil {
		log.Fatal(err)
	}
	region, err := c.NewRegion(4096, copyrpc.LocalWrite|copyrpc.RemoteWrite|copyrpc.RemoteRead|copyrpc.RemoteAtomic)
	if err != nil {
		log.Fatal(err)
	}
	copy(region.Bytes()[64:], "whoever connects may read this")
	info, err := region.Info()
	if err != nil {
		log.Fatal(err)
	}
	private := binary.LittleEndian.AppendUint64(nil, info.Address)
	private = binary.LittleEndian.AppendUint32(private, info.RemoteKey)
	listener, err := c.ListenQueues("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			peer, err := listener.Accept(ctx, copyrpc.QueueOptions{Private: private})
			if err != nil {
				return
			}
			defer peer.Close()
		}
	}()
	return listener.Address(), func() {
		cancel()
		<-ended
		listener.Close()
		c.Close()
	}
}

// One-sided ops on a peer's memory: its program does nothing for them.
func ExampleContext_ConnectQueue() {
	address, stop := exampleMemory()
	defer stop()

	ctx := context.Background()
	c, err := copyrpc.Open(copyrpc.WithQueues())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	region, err := c.NewRegion(4096, copyrpc.LocalWrite)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := c.ConnectQueue(ctx, address, copyrpc.QueueOptions{})
	if err != nil {
		log.Fatal(err)
	}
	info, err := queue.Info()
	if err != nil {
		log.Fatal(err)
	}
	remote := copyrpc.Remote{ // as the peer has written it
		Address: binary.LittleEndian.Uint64(info.Private), Key: binary.LittleEndian.Uint32(info.Private[8:]),
	}

	err = queue.Read(ctx, region.Slice(0, 30), remote.At(64))
	fmt.Println(string(region.Bytes()[:30]), err)

	old, err := queue.FetchAdd(ctx, remote, 5)
	fmt.Println(old, err)
	old, err = queue.CompareSwap(ctx, remote, 5, 7)
	fmt.Println(old, err)

	copy(region.Bytes(), "written")
	fmt.Println(queue.Write(ctx, region.Slice(0, 7), remote.At(1000)))
	// Output:
	// whoever connects may read this <nil>
	// 0 <nil>
	// 5 <nil>
	// <nil>
}

// A thousand ops in one call: they and their completions are arrays in C memory.
func ExampleQueue_Batch() {
	address, stop := exampleMemory()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := copyrpc.Open(copyrpc.WithQueues())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	queue, err := c.ConnectQueue(ctx, address, copyrpc.QueueOptions{Sends: 1000})
	if err != nil {
		log.Fatal(err)
	}
	info, err := queue.Info()
	if err != nil {
		log.Fatal(err)
	}
	remote := copyrpc.Remote{Address: binary.LittleEndian.Uint64(info.Private), Key: binary.LittleEndian.Uint32(info.Private[8:])}

	batch, err := queue.Batch(1000)
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	for i := range batch.Ops() {
		op := &batch.Ops()[i]
		*op = copyrpc.QueueOp{Opcode: copyrpc.QueueFetchAdd, Operand: 2}
		op.SetRemote(remote)
	}
	done, err := batch.Do(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(done), done[0].Token, done[999].Token) // what was there before
	// Output: 1000 0 1998
}

// Receives that all queues of a server share: the first message of each peer finds one.
func ExampleContext_OpenSharedReceives() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := copyrpc.Open(copyrpc.WithQueues())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	region, err := c.NewRegion(4096, copyrpc.LocalWrite)
	if err != nil {
		log.Fatal(err)
	}
	shared, err := c.OpenSharedReceives(copyrpc.QueueOptions{Receives: 64})
	if err != nil {
		log.Fatal(err)
	}
	work, err := shared.PostReceive(region.Slice(0, 1024))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := c.ListenQueues("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	sent := make(chan struct{})
	go func() { // another program; here it has the same context
		defer close(sent)
		queue, err := c.ConnectQueue(ctx, listener.Address(), copyrpc.QueueOptions{})
		if err != nil {
			log.Fatal(err)
		}
		defer queue.Close()
		copy(region.Bytes()[2048:], "hello")
		if err = queue.SendImmediate(ctx, region.Slice(2048, 2053), 7); err != nil {
			log.Fatal(err)
		}
	}()
	peer, err := listener.Accept(ctx, copyrpc.QueueOptions{Shared: shared})
	if err != nil {
		log.Fatal(err)
	}
	defer peer.Close()
	done, err := work.Wait(ctx)
	<-sent
	message := done.Received()
	fmt.Println(string(region.Bytes()[:message.Bytes]), message.Immediate, err)
	// Output: hello 7 <nil>
}
