package copyrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func TestCallsOfAllSizes(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := limited(t)
	info, err := p.client.Info()
	check(t, err)
	sizes := []int{0, 1, 31, 32, 33, 4096, 65537, info.RequestBytesMax}
	random := rand.New(rand.NewSource(1))
	for _, size := range sizes {
		request := make([]byte, size)
		random.Read(request)
		most := min(size, info.ReplyBytesMax)
		if most == 0 {
			most = copyrpc.NoReplyBytes
		}
		reply, err := p.client.Do(ctx, copyrpc.Call{Request: request, ReplyBytesMax: most})
		if size > info.ReplyBytesMax {
			var refused *copyrpc.ReplyError
			if !errors.As(err, &refused) {
				t.Fatalf("%d bytes echoed where %d fit: %v", size, info.ReplyBytesMax, err)
			}
			continue
		}
		check(t, err)
		if !bytes.Equal(reply, request) {
			t.Fatalf("the echo of %d bytes is not what was sent", size)
		}
	}
}

func TestManyGoroutinesGetTheirOwnReplies(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	ctx := limited(t)
	var all sync.WaitGroup
	failures := make(chan error, 1000)
	for caller := 0; caller < 1000; caller++ {
		all.Add(1)
		go func(caller int) {
			defer all.Done()
			for i := 0; i < 10; i++ {
				request := []byte(fmt.Sprintf("%d of %d", i, caller))
				reply, err := p.client.Do(ctx, copyrpc.Call{Request: request, ReplyBytesMax: 64})
				if err == nil && !bytes.Equal(reply, request) {
					err = fmt.Errorf("%q answered with %q", request, reply)
				}
				if err != nil {
					failures <- err
					return
				}
			}
		}(caller)
	}
	all.Wait()
	select {
	case err := <-failures:
		t.Fatal(err)
	default:
	}
	stats, err := p.client.Stats()
	check(t, err)
	if stats.Calls != 10000 || stats.Responses != 10000 {
		t.Fatalf("%d calls, %d responses", stats.Calls, stats.Responses)
	}
	if perBatch := float64(stats.Calls) / float64(stats.BatchesSent); perBatch < 4 {
		t.Fatalf("1,000 callers, and %.1f calls in a batch: they are not gathered", perBatch)
	}
}

// More calls than the ring or the peer's window takes: the rest waits its turn and nothing is lost.
func TestMoreCallsThanRoom(t *testing.T) {
	p := newPair(t, copyrpc.WithRingBytes(8192), copyrpc.WithCallsMax(16))
	p.serve(t, echo)
	ctx := limited(t)
	requests := make([][]byte, 2000)
	for i := range requests {
		requests[i] = bytes.Repeat([]byte{byte(i)}, i%700)
	}
	results, err := p.client.CallBatch(ctx, requests)
	check(t, err)
	for i, result := range results {
		check(t, result.Err)
		if !bytes.Equal(result.Reply, requests[i]) {
			t.Fatalf("call %d: %d bytes answered with %d", i, len(requests[i]), len(result.Reply))
		}
	}
	stats, _ := p.client.Stats()
	if stats.Refused == 0 {
		t.Fatal("the ring was never full: this tested nothing")
	}
}

func TestBatchTellsEachResult(t *testing.T) {
	p := newPair(t)
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		switch request.Method {
		case 1:
			return nil, &copyrpc.ReplyError{Status: 77, Payload: []byte("no")}
		case 2:
			return nil, request.Drop()
		case 3:
			return nil, fmt.Errorf("looking it up: %w", &copyrpc.ReplyError{Status: 404, Payload: []byte("none")})
		}
		return request.Payload, nil
	})
	results, err := p.client.DoBatch(limited(t), []copyrpc.Call{
		{Request: []byte("a")}, {Method: 1, Request: []byte("b")}, {Method: 2}, {Request: []byte("c"), ReplyBytesMax: copyrpc.NoReplyBytes}, {Method: 3}})
	check(t, err)
	var refused *copyrpc.ReplyError
	if results[0].Err != nil || string(results[0].Reply) != "a" {
		t.Fatal(results[0])
	}
	if !errors.As(results[1].Err, &refused) || refused.Status != 77 || string(refused.Payload) != "no" {
		t.Fatal(results[1])
	}
	is(t, results[2].Err, copyrpc.ErrDropped)
	if !errors.As(results[3].Err, &refused) || refused.Status != copyrpc.StatusUnknown {
		t.Fatal(results[3])
	}
	if !errors.As(results[4].Err, &refused) || refused.Status != 404 || string(refused.Payload) != "none" {
		t.Fatalf("of a wrapped *ReplyError: status %d, not 404: %v", refused.Status, results[4].Err)
	}
}

func TestRepliesOutOfOrder(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	const count = 50
	go func() {
		var held []*copyrpc.Request
		for len(held) < count {
			request, err := p.server.Receive(ctx)
			if err != nil {
				return
			}
			held = append(held, request)
		}
		for i := count - 1; i >= 0; i-- {
			held[i].Reply(held[i].Payload)
		}
	}()
	requests := make([][]byte, count)
	for i := range requests {
		requests[i] = binary.LittleEndian.AppendUint32(nil, uint32(i))
	}
	results, err := p.client.CallBatch(ctx, requests)
	check(t, err)
	for i, result := range results {
		check(t, result.Err)
		if !bytes.Equal(result.Reply, requests[i]) {
			t.Fatalf("call %d got the reply of another", i)
		}
	}
}

func TestServerCallsItsClient(t *testing.T) {
	p := newPair(t)
	p.serve(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		return p.server.Call(ctx, append([]byte("back: "), request.Payload...))
	})
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	go p.client.Serve(ctx, echo)
	reply, err := p.client.Call(ctx, []byte("forth"))
	check(t, err)
	if string(reply) != "back: forth" {
		t.Fatalf("%q", reply)
	}
}

// ---- Deadlines and cancel -----------------------------------------------------------------------

// alwaysSoon is a context whose deadline is ahead whenever one asks: however late a call comes to C, it has time left, and only C ends it.
type alwaysSoon struct{ context.Context }

func (alwaysSoon) Deadline() (time.Time, bool) { return time.Now().Add(50 * time.Millisecond), true }

func TestDeadlineReachesTheCall(t *testing.T) {
	p := newPair(t) // nobody answers
	begun := time.Now()
	_, err := p.client.Call(alwaysSoon{limited(t)}, []byte("?"))
	is(t, err, copyrpc.ErrTimeout)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v is not context.DeadlineExceeded", err)
	}
	if took := time.Since(begun); took < 45*time.Millisecond {
		t.Fatalf("it took %v", took)
	}
	stats, _ := p.client.Stats()
	if stats.CallsFailed != 1 {
		t.Fatalf("C counts %d failed calls: the deadline did not reach it", stats.CallsFailed)
	}
}

// C's clock may be ahead of the context's timer, which alone knows the cause.
func TestDeadlinesHaveACause(t *testing.T) {
	p := newPair(t) // nobody answers
	cause := errors.New("the budget is spent")
	for i := 0; i < 20; i++ {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Duration(i)*time.Millisecond/4, cause)
		_, err := p.client.Call(ctx, []byte("?"))
		cancel()
		is(t, err, copyrpc.ErrTimeout)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) {
			t.Fatalf("%v is not context.DeadlineExceeded with its cause", err)
		}
	}
}

func TestCancelReachesTheCall(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the user has left")
	go func() {
		p.server.Receive(context.Background()) // it is under way, not in a queue of ours
		cancel(cause)
	}()
	_, err := p.client.Call(ctx, []byte("?"))
	is(t, err, copyrpc.ErrCanceled)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !strings.Contains(err.Error(), cause.Error()) {
		t.Fatalf("%v is not context.Canceled with its cause", err)
	}
	info, _ := p.client.Info()
	if info.CallsOpen != 0 {
		t.Fatalf("%d calls are open: the cancel did not reach C", info.CallsOpen)
	}
}

func TestCancelOfCallsThatWaitForRoom(t *testing.T) {
	p := newPair(t, copyrpc.WithCallsMax(4))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	results, err := p.client.CallBatch(ctx, make([][]byte, 100))
	check(t, err)
	for _, result := range results {
		is(t, result.Err, copyrpc.ErrCanceled)
	}
	// The four whose replies may still come keep their slots; when they are answered, there is room again.
	p.serve(t, echo)
	if _, err := p.client.Call(limited(t), []byte("again")); err != nil {
		t.Fatal(err)
	}
}

func TestCancelAndReplyAtOnce(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	random := rand.New(rand.NewSource(2))
	ended := 0
	for i := 0; i < 300; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		go func(pause int) {
			time.Sleep(time.Duration(pause) * time.Microsecond)
			cancel()
		}(random.Intn(200))
		request := []byte(fmt.Sprint(i))
		reply, err := p.client.Call(ctx, request)
		cancel()
		if err == nil && !bytes.Equal(reply, request) {
			t.Fatalf("%q answered with %q", request, reply)
		}
		if err != nil {
			is(t, err, copyrpc.ErrCanceled)
			ended++
		}
	}
	t.Logf("%d of 300 were canceled in time", ended)
	_, err := p.client.Call(limited(t), []byte("and on"))
	check(t, err)
}

// An idle program burns no processor: the poller sleeps in Go's netpoller.
func TestIdleUsesNoProcessor(t *testing.T) {
	p := newPair(t)
	p.serve(t, echo)
	_, err := p.client.Call(limited(t), nil)
	check(t, err)
	time.Sleep(50 * time.Millisecond)
	statsBefore, _ := p.clientContext.Stats()
	before := processorTime()
	time.Sleep(time.Second)
	used := processorTime() - before
	stats, _ := p.clientContext.Stats()
	if used > 100*time.Millisecond {
		t.Fatalf("%v of processor time in a second of doing nothing", used)
	}
	if polls := stats.Polls - statsBefore.Polls; polls > 5000 { // a wake-up has it spin for 20 us; one that never sleeps polls a million times
		t.Fatalf("%d polls in a second of doing nothing", polls)
	}
	begun := time.Now()
	_, err = p.client.Call(limited(t), nil)
	check(t, err)
	t.Logf("%v in a second; woke and was answered in %v", used, time.Since(begun))
}
