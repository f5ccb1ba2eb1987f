package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// Everything that was accepted completes once, whichever way a queue ends.
func TestQueueEnds(t *testing.T) {
	for _, way := range []struct {
		name   string
		end    func(p *queuePair) error
		status copyrpc.Status // of what is open
		after  copyrpc.Status // of what comes then
	}{
		{"Close", func(p *queuePair) error { return p.right.Close() }, copyrpc.ErrClosed, copyrpc.ErrClosed},
		{"Fail", func(p *queuePair) error { return p.right.Fail() }, copyrpc.ErrFlushed, copyrpc.ErrDisconnected},
		{"Drain", func(p *queuePair) error { return p.right.Drain(context.Background()) }, copyrpc.ErrFlushed, copyrpc.ErrClosing},
		{"the Context's Close", func(p *queuePair) error { return p.contexts[1].Close() }, copyrpc.ErrClosed, copyrpc.ErrClosed},
		{"the peer's Close", func(p *queuePair) error { return p.left.Close() }, copyrpc.ErrFlushed, copyrpc.ErrDisconnected},
	} {
		t.Run(way.name, func(t *testing.T) {
			p := newQueues(t, copyrpc.QueueOptions{Receives: 8})
			ctx := limited(t)
			var works []*copyrpc.Work
			for i := 0; i < 8; i++ { // as many as there is room for, at least
				work, err := p.right.PostReceive(p.there.Slice(i, i+8))
				check(t, err)
				works = append(works, work)
			}
			batch, err := p.right.Batch(40)
			check(t, err)
			defer batch.Close()
			for i := range batch.Ops() {
				batch.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueReceive, UserData: uint64(i)}
				check(t, batch.Ops()[i].SetBuffer(p.there.Slice(i, i+8)))
			}
			check(t, batch.Submit(40))
			for stats, err := p.right.Stats(); stats.Receives < 8; stats, err = p.right.Stats() {
				check(t, err)
				check(t, ctx.Err())
			}
			check(t, way.end(p))
			<-p.right.Done()
			for i, work := range works {
				done, err := work.Wait(ctx)
				is(t, err, way.status)
				if ended, again := work.Test(); !ended || !errors.Is(again, way.status) || copyrpc.Status(done.Status) != way.status {
					t.Fatalf("%d: %+v, %v", i, done, again)
				}
			}
			done, err := batch.Wait(ctx)
			if err == nil || len(done) != 40 {
				t.Fatal(err, len(done))
			}
			for i := range done {
				if done[i].Kind != copyrpc.CompletionWork || done[i].Status >= 0 || done[i].UserData != uint64(i) {
					t.Fatalf("%d: %+v", i, done[i])
				}
			}
			if _, err := p.right.PostReceive(p.there.Slice(0, 8)); err == nil {
				t.Fatal("it takes ops after its end")
			} else if way.after != copyrpc.ErrClosing {
				is(t, err, way.after)
			}
			if err := p.right.Write(ctx, p.there.Slice(0, 8), p.remote); err == nil {
				t.Fatal("it takes ops after its end")
			}
			if p.right.Err() == nil {
				t.Fatal("it does not tell that it has ended")
			}
			check(t, p.right.Close())
			check(t, p.right.Close())
		})
	}
}

func TestQueueDrainLetsSendsFinish(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Sends: 16})
	ctx := limited(t)
	batch, err := p.left.Batch(500)
	check(t, err)
	defer batch.Close()
	clear(p.there.Bytes())
	for i := range batch.Ops() {
		batch.Ops()[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueFetchAdd, Operand: 1}
		batch.Ops()[i].SetRemote(p.remote)
	}
	check(t, batch.Submit(500))
	check(t, p.left.Drain(ctx))
	_, err = batch.Wait(ctx)
	check(t, err)
	if word(p.there, 0) != 500 {
		t.Fatal(word(p.there, 0))
	}
	is(t, p.left.Err(), copyrpc.ErrDisconnected)
	is(t, p.left.Fail(), copyrpc.ErrState)
}

// A drain without an end: the peer has no receive.
func TestQueueDrainIsLimited(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 1})
	work, err := p.left.Post(copyrpc.QueueOp{Opcode: copyrpc.QueueSend, UserData: 5}, p.here.Slice(0, 8))
	check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	is(t, p.left.Drain(ctx), copyrpc.ErrTimeout)
	done, err := work.Wait(limited(t))
	is(t, err, copyrpc.ErrDisconnected)
	if done.UserData != 5 {
		t.Fatalf("%+v", done)
	}
	is(t, p.left.Err(), copyrpc.ErrDisconnected)
}

func TestQueueErrorsOfThePeer(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	closed := newRegion(t, p.contexts[1], anyAccess)
	info, err := closed.Info()
	check(t, err)
	check(t, closed.Close())
	readOnly := newRegion(t, p.contexts[1], copyrpc.LocalWrite|copyrpc.RemoteRead)
	readable, err := readOnly.Info()
	check(t, err)
	for _, remote := range []copyrpc.Remote{
		{Address: p.remote.Address, Key: p.remote.Key + 1000}, p.remote.At(queueRegionBytes - 7), info.Remote(), readable.Remote(),
	} {
		near, _ := p.connect(t, copyrpc.QueueOptions{}, copyrpc.QueueOptions{})
		err := near.Write(ctx, p.here.Slice(0, 8), remote)
		is(t, err, copyrpc.ErrAccess)
		<-near.Done()
		// The peer's device has failed its queue pair, too: whichever is heard of first.
		if err := near.Err(); !errors.Is(err, copyrpc.ErrAccess) && !errors.Is(err, copyrpc.ErrDisconnected) {
			t.Fatal(err)
		}
		is(t, near.Write(ctx, p.here.Slice(0, 8), p.remote), copyrpc.ErrDisconnected)
	}
	near, _ := p.connect(t, copyrpc.QueueOptions{NotReadyRetryCount: 1}, copyrpc.QueueOptions{Receives: 1})
	is(t, near.Send(ctx, p.here.Slice(0, 8)), copyrpc.ErrNotReady)
	check(t, p.left.Read(ctx, p.here.Slice(0, 8), readable.Remote())) // and everything else goes on
}

func TestQueueBadInput(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 4})
	ctx := limited(t)
	other := newRegion(t, p.contexts[1], anyAccess)
	fixed := newRegion(t, p.contexts[0], copyrpc.RemoteRead)
	is(t, p.left.Write(ctx, other.Slice(0, 8), p.remote), copyrpc.ErrInvalid)
	is(t, p.left.Write(ctx, p.here.Slice(queueRegionBytes-7, queueRegionBytes+1), p.remote), copyrpc.ErrInvalid)
	is(t, p.left.Write(ctx, p.here.Slice(8, 0), p.remote), copyrpc.ErrInvalid)
	is(t, p.left.Write(ctx, copyrpc.Buffer{Length: 8}, p.remote), copyrpc.ErrInvalid)
	is(t, p.left.Read(ctx, fixed.Slice(0, 8), p.remote), copyrpc.ErrInvalid)
	_, err := p.left.Receive(ctx, fixed.Slice(0, 8))
	is(t, err, copyrpc.ErrInvalid)
	for _, op := range []copyrpc.QueueOp{
		{Opcode: copyrpc.QueueSend, Flags: copyrpc.QueueInline}, {Opcode: copyrpc.QueueSend, Flags: copyrpc.QueuePieces},
		{Opcode: copyrpc.QueueSend, Address: 5}, {Opcode: copyrpc.QueueSend, Bytes: 5}, {Opcode: copyrpc.QueueSend, Region: 5},
	} {
		_, err := p.left.Post(op, p.here.Slice(0, 8))
		is(t, err, copyrpc.ErrInvalid)
	}
	for opcode, status := range map[uint8]copyrpc.Status{0: copyrpc.ErrUnsupported, 11: copyrpc.ErrUnsupported, 255: copyrpc.ErrUnsupported,
		copyrpc.QueueNop: copyrpc.ErrInvalid, copyrpc.QueueFetchAdd: copyrpc.ErrInvalid} { // those have no memory
		work, err := p.left.Post(copyrpc.QueueOp{Opcode: opcode}, p.here.Slice(0, 8))
		check(t, err)
		_, err = work.Wait(ctx)
		is(t, err, status)
	}
	for _, count := range []int{0, -1, copyrpc.QueueBatchOpsMax + 1} {
		_, err := p.left.Batch(count)
		is(t, err, copyrpc.ErrInvalid)
	}
	_, err = p.left.BatchWithPieces(1, copyrpc.SubmitPiecesMax+1)
	is(t, err, copyrpc.ErrInvalid)
	for _, options := range []copyrpc.QueueOptions{
		{Sends: -1}, {Sends: copyrpc.QueueDepthMax + 1}, {SendPieces: 17}, {InlineBytes: 513}, {Sparse: true}, {Receives: 8193},
		{ConnectTimeout: -1}, {NotReadyRetryCount: 8}, {ReadsMax: 17}, {Private: make([]byte, 57)}, {Private: make([]byte, 197)},
		{Shared: &copyrpc.SharedReceives{}, ReceiveQueue: 5}, {RetryCount: 8}, {ReceivePieces: 2},
	} {
		if q, err := p.contexts[0].ConnectQueue(ctx, p.listener.Address(), options); err == nil {
			q.Close()
			t.Fatalf("%+v was taken", options)
		}
	}
	_, err = p.contexts[0].ConnectQueue(ctx, p.listener.Address(), copyrpc.QueueOptions{Shared: &copyrpc.SharedReceives{}})
	is(t, err, copyrpc.ErrClosed)
	_, err = p.contexts[0].ConnectQueue(ctx, p.listener.Address(), copyrpc.QueueOptions{ReceiveQueue: 12345})
	is(t, err, copyrpc.ErrStale)
	_, err = p.contexts[0].OpenSharedReceives(copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.contexts[0].OpenSharedReceives(copyrpc.QueueOptions{Receives: 4, Sends: 4})
	is(t, err, copyrpc.ErrInvalid)
	plain := openContext(t)
	_, err = plain.ConnectQueue(ctx, p.listener.Address(), copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrState)
	_, err = plain.ListenQueues(host() + ":0")
	is(t, err, copyrpc.ErrState)
	_, err = plain.OpenSharedReceives(copyrpc.QueueOptions{Receives: 4})
	is(t, err, copyrpc.ErrState)
	_, err = plain.NewQueueBlob(copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrState)
	_, err = copyrpc.Open(copyrpc.WithQueuesMax(5))
	is(t, err, copyrpc.ErrInvalid)
	check(t, p.left.Write(ctx, p.here.Slice(0, 8), p.remote)) // and everything else goes on
}

// The zero values, and nil, say what they are.
func TestQueuesThatNeverWere(t *testing.T) {
	ctx := limited(t)
	for _, q := range []*copyrpc.Queue{nil, {}} {
		is(t, q.Send(ctx, copyrpc.Buffer{}), copyrpc.ErrClosed)
		_, err := q.Receive(ctx, copyrpc.Buffer{})
		is(t, err, copyrpc.ErrClosed)
		_, err = q.Batch(1)
		is(t, err, copyrpc.ErrClosed)
		_, err = q.Info()
		is(t, err, copyrpc.ErrClosed)
		is(t, q.Err(), copyrpc.ErrClosed)
		is(t, q.Fail(), copyrpc.ErrClosed)
		is(t, q.Drain(ctx), copyrpc.ErrClosed)
		check(t, q.Close())
		<-q.Done()
		if q.Handle() != 0 {
			t.Fatal("it has a handle")
		}
	}
	for _, shared := range []*copyrpc.SharedReceives{nil, {}} {
		_, err := shared.PostReceive(copyrpc.Buffer{})
		is(t, err, copyrpc.ErrClosed)
		_, err = shared.Batch(1)
		is(t, err, copyrpc.ErrClosed)
		is(t, shared.Err(), copyrpc.ErrClosed)
		check(t, shared.Close())
		<-shared.Done()
	}
	for _, batch := range []*copyrpc.QueueBatch{nil, {}} {
		_, err := batch.Do(ctx)
		is(t, err, copyrpc.ErrClosed)
		_, err = batch.Wait(ctx)
		is(t, err, copyrpc.ErrClosed)
		is(t, batch.Submit(0), copyrpc.ErrClosed)
		check(t, batch.Close())
		if batch.Ops() != nil || batch.Pieces() != nil {
			t.Fatal("it has memory")
		}
	}
	var none *copyrpc.QueueListener
	_, err := none.Accept(ctx, copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrClosed)
	check(t, none.Close())
	_, err = new(copyrpc.QueueBlob).Join(ctx, nil)
	is(t, err, copyrpc.ErrClosed)
	var c *copyrpc.Context
	_, err = c.ConnectQueue(ctx, "x:1", copyrpc.QueueOptions{})
	is(t, err, copyrpc.ErrClosed)
}

func TestQueuePrivateData(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	connect := func(private string) (*copyrpc.QueueRequest, chan error, **copyrpc.Queue) {
		t.Helper()
		connected, near := make(chan error, 1), new(*copyrpc.Queue)
		go func() {
			var err error
			*near, err = p.contexts[0].ConnectQueue(ctx, p.listener.Address(), copyrpc.QueueOptions{Private: []byte(private)})
			connected <- err
		}()
		request, err := p.listener.AcceptRequest(ctx)
		check(t, err)
		if !bytes.HasPrefix(request.Info.Private, []byte(private)) || request.Info.PeerAddress == "" {
			t.Fatalf("%+v", request.Info)
		}
		return request, connected, near
	}
	request, connected, near := connect("a question")
	is(t, request.Reject(make([]byte, 149)), copyrpc.ErrTooBig)
	_, err := request.Accept(ctx, copyrpc.QueueOptions{Sends: -1})
	is(t, err, copyrpc.ErrInvalid)
	far, err := request.Accept(ctx, copyrpc.QueueOptions{Private: []byte("an answer"), ConnectTimeout: time.Minute})
	check(t, err)
	defer far.Close()
	check(t, <-connected)
	defer (*near).Close()
	info, err := (*near).Info()
	check(t, err)
	if !bytes.HasPrefix(info.Private, []byte("an answer")) {
		t.Fatalf("%q", info.Private)
	}
	is(t, request.Reject(nil), copyrpc.ErrStale)
	request, connected, _ = connect("and another")
	check(t, request.Reject([]byte("go away")))
	is(t, <-connected, copyrpc.ErrRefused)
	stats, err := p.listener.Stats()
	check(t, err)
	if stats.Requests != 3 || stats.Refused != 0 {
		t.Fatalf("%+v", stats)
	}
}

func TestQueueBlobs(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	var blobs [2]*copyrpc.QueueBlob
	for i := range blobs {
		var err error
		blobs[i], err = p.contexts[i].NewQueueBlob(copyrpc.QueueOptions{RetryTimeout: 20, RetryCount: 7, ConnectTimeout: time.Minute})
		check(t, err)
		defer blobs[i].Close()
	}
	_, err := blobs[0].Join(ctx, []byte("no blob"))
	is(t, err, copyrpc.ErrProtocol)
	joined := make(chan *copyrpc.Queue)
	go func() {
		far, err := blobs[1].Join(ctx, blobs[0].Bytes)
		if err != nil {
			t.Error(err)
		}
		joined <- far
	}()
	near, err := blobs[0].Join(ctx, blobs[1].Bytes)
	check(t, err)
	defer near.Close()
	far := <-joined
	defer far.Close()
	check(t, near.Write(ctx, p.here.Slice(0, 100), p.remote))
	if !bytes.Equal(p.here.Bytes()[:100], p.there.Bytes()[:100]) {
		t.Fatal("the bytes differ")
	}
	_, err = blobs[0].Join(ctx, blobs[1].Bytes)
	is(t, err, copyrpc.ErrState)
}

// The device takes the queue pair down under the program.
func TestAQueueThatBreaks(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 8})
	ctx := limited(t)
	t.Cleanup(func() { fault(t, "none") })
	info, err := p.left.Info()
	check(t, err)
	var works []*copyrpc.Work
	for i := 0; i < 20; i++ { // also those for which there is no room
		work, err := p.left.PostReceive(p.here.Slice(i, i+8))
		check(t, err)
		works = append(works, work)
	}
	fault(t, fmt.Sprintf("kill=%d", info.QueuePairNumber))
	for err = nil; err == nil; err = p.left.Write(ctx, p.here.Slice(0, 8), p.remote) {
	}
	check(t, ctx.Err())
	<-p.left.Done()
	for _, work := range works {
		if _, err := work.Wait(ctx); !errors.Is(err, copyrpc.ErrFlushed) && !errors.Is(err, copyrpc.ErrDisconnected) {
			t.Fatal(err)
		}
	}
	if p.left.Err() == nil {
		t.Fatal("it does not tell why it has ended")
	}
	check(t, p.left.Close())
	check(t, p.here.Close()) // nothing uses it any more
}

// Many goroutines and queues, which are closed under them: each op ends once, with a result or a reason.
func TestQueueStorm(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	var begun, ended atomic.Int64
	for round := 0; round < 8; round++ {
		near, far := p.connect(t, copyrpc.QueueOptions{Sends: 8, Receives: 8}, copyrpc.QueueOptions{Sends: 8, Receives: 8})
		var callers sync.WaitGroup
		for i := 0; i < 16; i++ {
			callers.Add(1)
			go func(i int) {
				defer callers.Done()
				batch, err := near.Batch(20)
				if err != nil {
					return // closed already
				}
				defer batch.Close()
				for j := range batch.Ops() {
					batch.Ops()[j].Opcode = copyrpc.QueueNop
				}
				for err == nil {
					begun.Add(1)
					switch i % 4 {
					case 0:
						_, err = batch.Do(ctx)
					case 1:
						err = near.Write(ctx, p.here.Slice(i, i+8), p.remote.At(8*i))
					case 2:
						err = near.Send(ctx, p.here.Slice(i, i+8))
					case 3:
						_, err = far.Receive(ctx, p.there.Slice(1000*i, 1000*i+8))
					}
					ended.Add(1)
				}
				if ctx.Err() != nil {
					t.Error("an op did not end: ", err)
				}
			}(i)
		}
		time.Sleep(20 * time.Millisecond)
		switch round % 4 {
		case 0:
			near.Close()
		case 1:
			check(t, near.Fail())
		case 2:
			check(t, far.Drain(ctx))
		case 3:
			far.Close()
		}
		<-near.Done()
		<-far.Done()
		callers.Wait()
	}
	if begun.Load() != ended.Load() {
		t.Fatal(begun.Load(), ended.Load())
	}
}

// What docs/go.md prints of queues is what ExampleContext_ConnectQueue runs, but for its looks at errors.
func TestDocsOfQueuesAreTheExample(t *testing.T) {
	docs, err := os.ReadFile("../../docs/go.md")
	check(t, err)
	_, section, _ := strings.Cut(string(docs), "\n## Queues\n")
	_, block, _ := strings.Cut(section, "```go\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("there is no program")
	}
	source, err := os.ReadFile("queue_example_test.go")
	check(t, err)
	_, example, _ := strings.Cut(string(source), "\nfunc ExampleContext_ConnectQueue() {")
	rest := strings.Split(example, "\n")
	for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
		for len(rest) > 0 && strings.TrimSpace(rest[0]) != strings.TrimSpace(line) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			t.Fatalf("the example does not run %q", line)
		}
	}
}
