package copyrpc_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// footprint is what a program holds of the machine.
type footprint struct {
	goroutines, descriptors, threads int
	goHeap, resident                 int // bytes
}

func footprintNow(t testing.TB) footprint {
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	entries := func(path string) int {
		list, err := os.ReadDir(path)
		check(t, err)
		return len(list)
	}
	status, err := os.ReadFile("/proc/self/status")
	check(t, err)
	resident := 0
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			resident, _ = strconv.Atoi(fields[1])
		}
	}
	return footprint{
		goroutines: runtime.NumGoroutine(), descriptors: entries("/proc/self/fd"), threads: entries("/proc/self/task"),
		goHeap: int(memory.HeapAlloc), resident: resident << 10,
	}
}

// settled waits until what was closed has ended: threads do so a moment after those that waited for them. Nothing is known to be
// what is left, so it is what does not change for a while.
func settled(t *testing.T) footprint {
	now, same := footprintNow(t), 0
	for end := time.Now().Add(60 * time.Second); same < 50 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		next := footprintNow(t)
		if next.goroutines == now.goroutines && next.descriptors == now.descriptors && next.threads == now.threads {
			same++
		} else {
			same = 0
		}
		now = next
	}
	return now
}

// Limits of growth. Threads: Go's runtime keeps those it has made and makes one more when it is busy; memory: what malloc and
// Go's heap keep for the next time. A leak of 100 bytes a call, or of a page a connection, is above. run_tests.py sets
// MALLOC_ARENA_MAX=1: else each new thread of Go's may get glibc to make a new arena, which only fills over hundreds of cycles.
const (
	threadsMore  = 3
	residentMore = 4 << 20
	goHeapMore   = 1 << 20
)

func (f footprint) isBack(before footprint) bool {
	return f.goroutines <= before.goroutines && f.descriptors <= before.descriptors && f.threads <= before.threads+threadsMore &&
		f.goHeap <= before.goHeap+goHeapMore && (raceDetector || f.resident <= before.resident+residentMore)
}

// compare fails the test if more is held than before, also a minute later.
func compare(t *testing.T, before footprint) {
	t.Helper()
	after := footprintNow(t)
	for end := time.Now().Add(60 * time.Second); !after.isBack(before) && time.Now().Before(end); after = footprintNow(t) {
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("before %+v", before)
	t.Logf("after  %+v", after)
	if !after.isBack(before) {
		t.Fatal("it does not come back to where it began")
	}
}

// often is how often something is done, to see what it leaves behind. With the race detector, which is slow, a fifth: there it is enough to see
// what races, and whether goroutines and descriptors end. What grows a little each time is seen without it.
func often(count int) int {
	if raceDetector {
		return count / 5
	}
	return count
}

func TestCallsLeakNothing(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := context.Background()
	request := make([]byte, 100)
	calls := func(count int) {
		for count > 0 {
			requests := make([][]byte, min(count, 250))
			for i := range requests {
				requests[i] = request
			}
			results, err := p.client.CallBatch(ctx, requests)
			check(t, err)
			for _, result := range results {
				check(t, result.Err)
			}
			count -= len(results)
			for i := 0; i < 50 && count > 0; i++ {
				_, err := p.client.Call(ctx, request)
				check(t, err)
				count--
			}
		}
	}
	calls(often(20000)) // every pool has what it keeps
	before := footprintNow(t)
	calls(often(100000))
	compare(t, before)
}

func TestConnectionsLeakNothing(t *testing.T) {
	server, client := openContext(t), openContext(t)
	options := patient(copyrpc.WithRingBytes(1 << 16)) // its contexts have no deadline
	listener, err := server.Listen(host()+":0", options...)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- listener.Serve(ctx, echo) }()
	cycles := func(count int) {
		for i := 0; i < count; i++ {
			endpoint, err := client.Dial(ctx, listener.Address(), options...)
			check(t, err)
			_, err = endpoint.Call(ctx, []byte("hello"))
			check(t, err)
			if i%2 == 0 {
				check(t, endpoint.Shutdown(ctx))
			} else {
				check(t, endpoint.Close())
			}
		}
	}
	cycles(often(200))
	before := settled(t)
	cycles(often(1000))
	compare(t, before)
	cancel()
	check(t, <-served)
}

func TestQueuesLeakNothing(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := context.Background()
	cycles := func(count int) {
		for i := 0; i < count; i++ {
			near, far := p.connectForLong(t, copyrpc.QueueOptions{Receives: 8})
			batch, err := near.Batch(100)
			check(t, err)
			for j := range batch.Ops() {
				batch.Ops()[j].Opcode = copyrpc.QueueNop
			}
			_, err = batch.Do(ctx)
			check(t, err)
			check(t, near.WriteBytes(ctx, []byte("hello"), p.remote))
			work, err := far.PostReceive(p.there.Slice(0, 8))
			check(t, err)
			if i%2 == 0 {
				check(t, far.Drain(ctx))
			}
			check(t, far.Close())
			<-work.Done()
			check(t, near.Close())
			check(t, batch.Close())
		}
	}
	cycles(often(200))
	before := settled(t)
	cycles(often(600))
	compare(t, before)
}

func TestLanesLeakNothing(t *testing.T) {
	p := newLanes(t)
	p.serve(t, echo)
	ctx := context.Background()
	connect := func() {
		accepted := make(chan *copyrpc.Endpoint, 1)
		go func() {
			far, _ := p.listener.Accept(ctx)
			accepted <- far
		}()
		near, err := p.clientContext.Dial(ctx, p.listener.Address(), patient(copyrpc.WithLane())...)
		check(t, err)
		far := <-accepted
		_, err = near.Grant(ctx, p.here.Slice(0, 64), copyrpc.RemoteRead)
		check(t, err)
		check(t, near.Close())
		check(t, far.Close())
	}
	cycles := func(count int) {
		for i := 0; i < count; i++ {
			own, grant := p.give(t, p.there.Slice(0, 4096), everyRight)
			batch, err := p.left.LaneBatch(100)
			check(t, err)
			for j := range batch.Ops() {
				batch.Ops()[j] = copyrpc.LaneOp{Opcode: copyrpc.LaneFetchAdd, Operand: 1}
				check(t, batch.Ops()[j].SetPlace(grant.At(0)))
			}
			check(t, batch.Submit(100))
			_, err = p.left.Do(ctx, copyrpc.Call{After: true})
			check(t, err)
			_, err = batch.Wait(ctx)
			check(t, err)
			check(t, batch.Close())
			check(t, p.right.Revoke(ctx, own, time.Minute))
			check(t, grant.Close())
			if i%4 == 0 {
				connect()
			}
		}
	}
	cycles(often(800)) // connections with two queue pairs each take longer until malloc has what it keeps
	before := settled(t)
	cycles(often(600))
	compare(t, before)
}

func TestContextsLeakNothing(t *testing.T) {
	cycle := func() {
		listener, err := copyrpc.Listen(host()+":0", patient()...) // its contexts have no deadline
		check(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- listener.Serve(ctx, echo) }()
		endpoint, err := copyrpc.Dial(ctx, listener.Address(), patient()...)
		check(t, err)
		_, err = endpoint.Call(ctx, []byte("hello"))
		check(t, err)
		check(t, endpoint.Close())
		cancel()
		check(t, <-served)
	}
	for i := 0; i < 10; i++ {
		cycle()
	}
	before := settled(t)
	for i := 0; i < 20; i++ {
		cycle()
	}
	compare(t, before)
}

// Callers that wait are goroutines, not threads: a thousand of them hold none.
func TestWaitingCallersHoldNoThreads(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithCancel(limited(t))
	before := footprintNow(t)
	ended := make(chan error)
	const callers = 1000
	for i := 0; i < callers; i++ {
		go func() {
			_, err := p.client.Do(ctx, copyrpc.Call{ReplyBytesMax: copyrpc.NoReplyBytes})
			ended <- err
		}()
	}
	for i := 0; i < callers; i++ { // all are under way, and nobody answers
		if _, err := p.server.Receive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	during := footprintNow(t)
	cancel()
	for i := 0; i < callers; i++ {
		is(t, <-ended, copyrpc.ErrCanceled)
	}
	if during.threads > before.threads+callers/10 { // Go makes a few on a busy machine, for whatever else is to be done
		t.Fatalf("%d threads for %d callers that wait", during.threads-before.threads, callers)
	}
}
