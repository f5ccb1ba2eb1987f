package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// Methods have names; a status says why there is no answer.
func ExampleRouter() {
	values := map[string]string{"moon": "384400 km"}
	var router copyrpc.Router
	router.HandleName("kv.get", func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		value, found := values[string(request.Payload)]
		if !found {
			return nil, copyrpc.Errorf(copyrpc.StatusNotFound, "no key %q", request.Payload)
		}
		return []byte(value), nil
	})
	server, stop := exampleServer(router.Serve)
	defer stop()

	get := copyrpc.MethodNumber("kv.get")
	for _, key := range []string{"moon", "sun"} {
		reply, err := server.Do(context.Background(), copyrpc.Call{Method: get, Request: []byte(key)})
		fmt.Printf("%s: %s, %v\n", key, reply, errors.Is(err, copyrpc.StatusNotFound))
	}
	// Output:
	// moon: 384400 km, false
	// sun: , true
}

// A payload that is written where the device takes it from is not copied.
func ExampleReservation() {
	server, stop := exampleServer(func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return []byte(strings.ToUpper(string(request.Payload))), nil
	})
	defer stop()

	room, err := server.Reserve(copyrpc.Call{}, 100)
	if err != nil {
		log.Fatal(err)
	}
	if err := room.Commit(copy(room.Bytes(), "written in place")); err != nil {
		log.Fatal(err)
	}
	reply, err := room.Wait(context.Background())
	fmt.Println(string(reply), err)
	// Output: WRITTEN IN PLACE <nil>
}

// The server grants its client a part of a region. The client's device uses that, while the server's program does nothing.
func ExampleGrant() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	there, err := copyrpc.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer there.Close()
	table, err := there.NewRegion(4096, copyrpc.LocalWrite)
	if err != nil {
		log.Fatal(err)
	}
	copy(table.Bytes(), "granted to one peer")
	listener, err := there.Listen("127.0.0.1:0", copyrpc.WithLane())
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		client, err := listener.Accept(ctx)
		if err != nil {
			log.Fatal(err)
		}
		request, err := client.Receive(ctx)
		if err != nil {
			log.Fatal(err)
		}
		grant, err := client.Grant(ctx, table.Slice(0, 64), copyrpc.RemoteRead)
		if err != nil {
			log.Fatal(err)
		}
		bytes, err := grant.Bytes() // for any payload
		if err != nil {
			log.Fatal(err)
		}
		if err := request.Reply(bytes); err != nil {
			log.Fatal(err)
		}
	}()

	here, err := copyrpc.Open() // another program
	if err != nil {
		log.Fatal(err)
	}
	defer here.Close()
	region, err := here.NewRegion(64, copyrpc.LocalWrite)
	if err != nil {
		log.Fatal(err)
	}
	server, err := here.Dial(ctx, listener.Address(), copyrpc.WithLane())
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	bytes, err := server.Call(ctx, []byte("what may I read?"))
	if err != nil {
		log.Fatal(err)
	}
	grant, err := server.OpenGrant(ctx, bytes)
	if err != nil {
		log.Fatal(err)
	}
	err = server.Read(ctx, region.Slice(0, 19), grant.At(0))
	fmt.Println(string(region.Bytes()[:19]), err)
	// Output: granted to one peer <nil>
}

// Two queues for datagrams: whoever knows the address of one can send to it.
func ExampleDatagrams() {
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
	receiver, err := c.OpenDatagrams(copyrpc.QueueOptions{Receives: 16})
	if err != nil {
		log.Fatal(err)
	}
	work, err := receiver.PostReceive(region.Slice(0, 1024)) // before anything comes: what finds no receive is lost
	if err != nil {
		log.Fatal(err)
	}
	address, err := receiver.Address() // which its program tells the others, by a call for example
	if err != nil {
		log.Fatal(err)
	}

	sender, err := c.OpenDatagrams(copyrpc.QueueOptions{})
	if err != nil {
		log.Fatal(err)
	}
	target, err := sender.OpenTarget(address, copyrpc.TargetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sender.SendBytes(ctx, []byte("who is there?"), target); err != nil {
		log.Fatal(err)
	}
	done, err := work.Wait(ctx)
	received := done.Received()
	fmt.Println(string(region.Bytes()[copyrpc.QueueHeaderBytes:received.Bytes]), err) // behind the header that the device writes
	// Output: who is there? <nil>
}

// One DCI sends to any number of DCTs, reliably, by the target that each op names.
func ExampleDCI() {
	const key = 0x636f7079
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
	shared, err := c.OpenSharedReceives(copyrpc.QueueOptions{Receives: 16})
	if err != nil {
		log.Fatal(err)
	}
	work, err := shared.PostReceive(region.Slice(0, 1024))
	if err != nil {
		log.Fatal(err)
	}
	dct, err := c.OpenDCT(copyrpc.QueueOptions{Shared: shared, AccessKey: key})
	if err != nil {
		log.Fatal(err)
	}
	address, err := dct.Address()
	if err != nil {
		log.Fatal(err)
	}

	dci, err := c.OpenDCI(copyrpc.QueueOptions{})
	if err != nil {
		log.Fatal(err)
	}
	target, err := dci.OpenTarget(address, copyrpc.TargetOptions{AccessKey: key})
	if err != nil {
		log.Fatal(err)
	}
	if err := dci.SendBytes(ctx, []byte("hello"), copyrpc.Destination{Target: target}); err != nil {
		log.Fatal(err)
	}
	done, err := work.Wait(ctx)
	fmt.Println(string(region.Bytes()[:done.Received().Bytes]), err)
	// Output: hello <nil>
}

// A program that watches the ports tells all channels of the machine that were made with WithShareHint of this name.
func ExampleShareHint() {
	hint, err := copyrpc.OpenShareHint("/copyrpc-hint-example")
	if err != nil {
		log.Fatal(err)
	}
	defer hint.Close()
	if err := hint.Publish(256, time.Second); err != nil { // a quarter over rail 0, for a second at most
		log.Fatal(err)
	}
}
