package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// aTrace is another one for each number.
func aTrace(number byte) *copyrpc.Trace {
	trace := &copyrpc.Trace{Flags: number & 3}
	for i := range trace.TraceID {
		trace.TraceID[i] = number + byte(i)
	}
	for i := range trace.SpanID {
		trace.SpanID[i] = ^number - byte(i)
	}
	return trace
}

// told writes what a request tells of its trace.
func told(request *copyrpc.Request) string {
	trace, found := request.Trace()
	return fmt.Sprintf("%x %v", trace, found)
}

var toldNone = fmt.Sprintf("%x false", copyrpc.Trace{})

func tell(_ context.Context, request *copyrpc.Request) ([]byte, error) {
	return []byte(told(request) + " " + string(request.Payload)), nil
}

// toldOf is what `tell` answers.
func toldOf(trace *copyrpc.Trace, payload string) string {
	if trace == nil {
		return toldNone + " " + payload
	}
	return fmt.Sprintf("%x true %s", *trace, payload)
}

func TestATraceTravelsWithEachFormOfCall(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	var number byte
	client, server := p.connect(t, ctx, copyrpc.WithCallInterceptor(func(next copyrpc.CallFunc) copyrpc.CallFunc {
		return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
			call.Trace = aTrace(number)
			return next(ctx, call)
		}
	}))
	serveUntilTheEnd(t, server, tell)
	p.serve(t, tell)
	region, err := p.clientContext.NewRegion(payloadBytes, 0)
	check(t, err)
	t.Cleanup(func() { closedAtLast(t, region) })
	long := strings.Repeat("x", 5000)
	copy(region.Bytes(), long)
	short, whole := region.Slice(0, 7), region.Slice(0, 5000)
	for _, call := range []copyrpc.Call{
		{}, {Request: []byte("request")}, {Request: []byte(long)}, {Request: []byte("twice"), Idempotent: true}, {From: short}, {From: whole},
		{From: whole, Idempotent: true},
	} {
		call.ReplyBytesMax = 8192
		payload := string(call.Request)
		if call.From.Region != nil {
			payload = string(call.From.Bytes())
		}
		for _, one := range []struct {
			name string
			call func() ([]byte, error)
		}{
			{"an interceptor's", func() ([]byte, error) { return client.Do(ctx, call) }},
			{"an interceptor's, of a batch", func() ([]byte, error) { return only(client.DoBatch(ctx, []copyrpc.Call{call})) }},
			{"Do", func() ([]byte, error) { call.Trace = aTrace(number); return p.client.Do(ctx, call) }},
			{"DoBatch", func() ([]byte, error) {
				call.Trace = aTrace(number)
				return only(p.client.DoBatch(ctx, []copyrpc.Call{call}))
			}},
		} {
			number++
			reply, err := one.call()
			if want := toldOf(aTrace(number), payload); err != nil || string(reply) != want {
				t.Errorf("%s, %d bytes: %.80q, %v, and not %.80q", one.name, len(payload), reply, err, want)
			}
		}
	}
	number++
	reply, err := client.Call(ctx, []byte("call"))
	if err != nil || string(reply) != toldOf(aTrace(number), "call") {
		t.Errorf("%q, %v", reply, err)
	}
	reply, err = only(client.CallBatch(ctx, [][]byte{[]byte("batch")}))
	if err != nil || string(reply) != toldOf(aTrace(number), "batch") {
		t.Errorf("%q, %v", reply, err)
	}
}

func only(results []copyrpc.Result, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return results[0].Reply, results[0].Err
}

// Some of a batch have a trace, and payloads have all lengths: each keeps what is its own, however often the batch's memory grows.
func TestATraceBelongsToOneCallOfABatch(t *testing.T) {
	p := newPair(t)
	p.serve(t, tell)
	calls := make([]copyrpc.Call, 1000)
	for i := range calls {
		calls[i].Request = bytes.Repeat([]byte{'a' + byte(i%26)}, i%300)
		if i%3 != 0 {
			calls[i].Trace = aTrace(byte(i))
		}
	}
	results, err := p.client.DoBatch(limited(t), calls)
	check(t, err)
	for i, result := range results {
		if want := toldOf(calls[i].Trace, string(calls[i].Request)); result.Err != nil || string(result.Reply) != want {
			t.Fatalf("call %d: %q, %v, and not %q", i, result.Reply, result.Err, want)
		}
	}
}

func TestATraceFollowsTheOpsOfALane(t *testing.T) {
	p := newPair(t, copyrpc.WithLane())
	p.serve(t, tell)
	reply, err := p.client.Do(limited(t), copyrpc.Call{Request: []byte("after"), After: true, Trace: aTrace(1)})
	if err != nil || string(reply) != toldOf(aTrace(1), "after") {
		t.Fatalf("%q, %v", reply, err)
	}
}

// The first connection is cut when the request has come; the library sends the call again, with its trace.
func TestATraceIsSentAgain(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	var told sync.Map
	var served sync.WaitGroup
	served.Add(1)
	go func() {
		defer served.Done()
		for connection := 1; connection <= 2; connection++ {
			endpoint, err := p.listener.Accept(ctx)
			if err != nil {
				return
			}
			defer endpoint.Close()
			request, err := endpoint.Receive(ctx)
			if err != nil {
				return
			}
			trace, _ := request.Trace()
			told.Store(connection, trace)
			if connection == 1 {
				endpoint.Close()
				continue
			}
			request.Reply(request.Payload)
			endpoint.Shutdown(ctx)
		}
	}()
	client, err := p.clientContext.Dial(ctx, p.listener.Address(), copyrpc.WithReconnect(time.Millisecond, 10*time.Millisecond))
	check(t, err)
	defer client.Close()
	reply, err := client.Do(ctx, copyrpc.Call{Request: []byte("again"), Idempotent: true, Trace: aTrace(9)})
	if err != nil || string(reply) != "again" {
		t.Fatalf("%q, %v", reply, err)
	}
	client.Close()
	served.Wait()
	for connection := 1; connection <= 2; connection++ {
		if trace, _ := told.Load(connection); trace != *aTrace(9) {
			t.Errorf("connection %d: %v", connection, trace)
		}
	}
}

// Handlers of many requests that are open at once ask for the first time, while the poller takes more; none sees the trace of another.
func TestManyAskForTracesAtOnce(t *testing.T) {
	p := newPair(t)
	p.serve(t, tell)
	var all sync.WaitGroup
	for caller := 0; caller < 200; caller++ {
		all.Add(1)
		go func(caller int) {
			defer all.Done()
			for i := 0; i < 10; i++ {
				call := copyrpc.Call{Request: []byte(fmt.Sprint(caller, i)), ReplyBytesMax: 200}
				if (caller+i)%2 == 0 {
					call.Trace = aTrace(byte(caller + 7*i))
				}
				reply, err := p.client.Do(limited(t), call)
				if want := toldOf(call.Trace, string(call.Request)); err != nil || string(reply) != want {
					t.Errorf("%q, %v, and not %q", reply, err, want)
				}
			}
		}(caller)
	}
	all.Wait()
}

// received makes a call of the client, and gives the request that the server has received, and what the call ends with.
func (p *pair) received(t *testing.T, call copyrpc.Call) (*copyrpc.Request, <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := p.client.Do(limited(t), call)
		ended <- err
	}()
	request, err := p.server.Receive(limited(t))
	check(t, err)
	return request, ended
}

func TestATraceIsToldWhileTheRequestIsOpen(t *testing.T) {
	p := newPair(t)
	late, ended := p.received(t, copyrpc.Call{Trace: aTrace(1)})
	check(t, late.Reply(nil))
	check(t, <-ended)
	if told(late) != toldNone {
		t.Errorf("of a request that was answered: %s", told(late))
	}
	first, ended := p.received(t, copyrpc.Call{Trace: aTrace(2)})
	if trace, found := first.Trace(); !found || trace != *aTrace(2) {
		t.Errorf("%v, %v", trace, found)
	}
	check(t, first.Reply(nil))
	check(t, <-ended)
	if trace, found := first.Trace(); !found || trace != *aTrace(2) {
		t.Errorf("what was told once is told again: %v, %v", trace, found)
	}
	next, _ := p.received(t, copyrpc.Call{Trace: aTrace(3)}) // for which the poller has asked
	check(t, p.server.Close())
	if trace, found := next.Trace(); !found || trace != *aTrace(3) {
		t.Errorf("%v, %v", trace, found)
	}
	if told(&copyrpc.Request{}) != toldNone {
		t.Error("of a Request that is none")
	}
}

func TestATraceOfAnEndpointThatHasEnded(t *testing.T) {
	p := newPair(t)
	request, ended := p.received(t, copyrpc.Call{Trace: aTrace(1)})
	check(t, p.server.Close())
	if told(request) != toldNone {
		t.Error(told(request))
	}
	if err := <-ended; !errors.Is(err, copyrpc.ErrDisconnected) {
		t.Error(err)
	}
	request, _ = newPair(t).received(t, copyrpc.Call{})
	if told(request) != toldNone {
		t.Error(told(request))
	}
}

func TestAReservationHasNoTrace(t *testing.T) {
	p := newPair(t)
	_, err := p.client.Reserve(copyrpc.Call{Trace: aTrace(1)}, 10)
	is(t, err, copyrpc.ErrInvalid)
}

func TestRequestsTellWhatTheyWereAnsweredWith(t *testing.T) {
	p := newPair(t)
	region := filled(t, p.serverContext)
	for name, one := range map[string]struct {
		answer func(request *copyrpc.Request) error
		want   copyrpc.Status
	}{
		"Reply":            {func(request *copyrpc.Request) error { return request.Reply(nil) }, copyrpc.OK},
		"ReplyStatus":      {func(request *copyrpc.Request) error { return request.ReplyStatus(copyrpc.StatusNotFound, nil) }, copyrpc.StatusNotFound},
		"an application's": {func(request *copyrpc.Request) error { return request.ReplyStatus(1<<31-1, nil) }, 1<<31 - 1},
		"ReplyBuffer":      {func(request *copyrpc.Request) error { return request.ReplyBuffer(300, region.Slice(0, 9)) }, 300},
		"Drop":             {(*copyrpc.Request).Drop, copyrpc.ErrDropped},
		"DropNotStarted":   {(*copyrpc.Request).DropNotStarted, copyrpc.ErrNotStarted},
		"Reserve": {func(request *copyrpc.Request) error {
			room, err := request.Reserve(copyrpc.StatusAborted, 3)
			if err != nil {
				return err
			}
			if _, answered := request.Answered(); answered {
				return errors.New("it is answered before Commit")
			}
			return room.Commit(3)
		}, copyrpc.StatusAborted},
	} {
		request, ended := p.received(t, copyrpc.Call{})
		if status, answered := request.Answered(); answered || status != copyrpc.OK {
			t.Errorf("%s: %v before the answer", name, status)
		}
		check(t, one.answer(request))
		if status, answered := request.Answered(); !answered || status != one.want {
			t.Errorf("%s: %v, %v, and not %v", name, status, answered, one.want)
		}
		if err := request.Reply(nil); !errors.Is(err, copyrpc.ErrStale) {
			t.Errorf("%s: answered twice: %v", name, err)
		}
		if status, _ := request.Answered(); status != one.want {
			t.Errorf("%s: %v after what was refused", name, status)
		}
		if err := <-ended; (err == nil) != (one.want == copyrpc.OK) || err != nil && !errors.Is(err, one.want) {
			t.Errorf("%s: the caller got %v", name, err)
		}
	}
}

func TestInterceptorsKnowThePeersAddress(t *testing.T) {
	ofCall := make(chan string, 10)
	seen := copyrpc.WithCallInterceptor(func(next copyrpc.CallFunc) copyrpc.CallFunc {
		return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
			ofCall <- call.PeerAddress()
			return next(ctx, call)
		}
	})
	tellAddress := func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		return []byte(request.PeerAddress()), nil
	}
	p := newPair(t)
	for name, options := range map[string][]copyrpc.Option{"plain": {seen}, "lasting": {seen, copyrpc.WithReconnect(0, 0)}} {
		client, server := p.connect(t, limited(t), options...)
		serveUntilTheEnd(t, server, tellAddress)
		serverInfo, err := server.Info()
		check(t, err)
		for way, call := range map[string]func() ([]byte, error){
			"Call":    func() ([]byte, error) { return client.Call(limited(t), nil) },
			"Do":      func() ([]byte, error) { return client.Do(limited(t), copyrpc.Call{}) },
			"DoBatch": func() ([]byte, error) { return only(client.DoBatch(limited(t), []copyrpc.Call{{}})) },
		} {
			reply, err := call()
			if err != nil || string(reply) != serverInfo.PeerAddress || serverInfo.PeerAddress == "" {
				t.Errorf("%s, %s: the request is from %q, %v, and not %q", name, way, reply, err, serverInfo.PeerAddress)
			}
			if address := <-ofCall; address != p.listener.Address() {
				t.Errorf("%s, %s: the call goes to %q, and not %q", name, way, address, p.listener.Address())
			}
		}
	}
	if (&copyrpc.Call{}).PeerAddress() != "" || (&copyrpc.Request{}).PeerAddress() != "" {
		t.Error("what has no peer has an address")
	}
}

func TestMethodsHaveTheNamesOfRouters(t *testing.T) {
	var router copyrpc.Router
	router.HandleName("trace.named", echo)
	router.Handle(77, echo)
	if name := copyrpc.MethodName(copyrpc.MethodNumber("trace.named")); name != "trace.named" {
		t.Error(name)
	}
	if name := copyrpc.MethodName(77) + copyrpc.MethodName(copyrpc.MethodNumber("trace.nowhere")); name != "" {
		t.Error(name)
	}
}

// ---- The raw level ------------------------------------------------------------------------------

func TestRawTrace(t *testing.T) {
	p := newRawPair(t)
	const offset = 5 // of the trace, which need not be aligned
	trace := aTrace(4)
	for i := range p.client.Payload {
		p.client.Payload[i] = 0xff // reserved bytes must be zero
	}
	trace.Put(p.client.Payload[offset:])
	copy(p.client.Payload[100:], "payload")
	call := copyrpc.Op{Opcode: copyrpc.OpCall, Flags: copyrpc.OpTraced, Endpoint: p.to, Token: offset, PayloadOffset: 100, PayloadBytes: 7, ReplyBytesMax: 8}
	p.client.Ops[0] = call
	_, status := p.client.Submit(1)
	wants(t, status, copyrpc.OK)
	request := p.next(t, p.server, copyrpc.CompletionRequest)
	if string(request.View()) != "payload" {
		t.Fatalf("%q", request.View())
	}
	got, status := p.server.RequestTrace(p.from, request.Token)
	wants(t, status, copyrpc.OK)
	if got != *trace {
		t.Fatalf("%v", got)
	}
	_, status = p.server.RequestTrace(p.from, request.Token+1)
	wants(t, status, copyrpc.ErrStale)
	p.server.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpReply, Flags: copyrpc.OpQuiet, Endpoint: p.from, Token: request.Token}
	_, status = p.server.Submit(1)
	wants(t, status, copyrpc.OK)
	_, status = p.server.RequestTrace(p.from, request.Token)
	wants(t, status, copyrpc.ErrStale)
	p.next(t, p.client, copyrpc.CompletionResponse)

	call.Flags, call.Token = 0, 0
	p.client.Ops[0] = call
	_, status = p.client.Submit(1)
	wants(t, status, copyrpc.OK)
	request = p.next(t, p.server, copyrpc.CompletionRequest)
	_, status = p.server.RequestTrace(p.from, request.Token)
	wants(t, status, copyrpc.ErrNotFound)

	call.Flags, call.Token = copyrpc.OpTraced, uint64(len(p.client.Payload)-copyrpc.TraceBytes+1)
	p.client.Ops[0] = call
	_, status = p.client.Submit(1)
	wants(t, status, copyrpc.ErrInvalid)
	_, status = p.client.Reserve(call)
	wants(t, status, copyrpc.ErrInvalid)
	check(t, p.server.Close())
	_, status = p.server.RequestTrace(p.from, request.Token)
	wants(t, status, copyrpc.ErrClosed)
}

func TestATraceNeedsRoom(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Put writes beyond its room")
		}
	}()
	aTrace(1).Put(make([]byte, copyrpc.TraceBytes-1))
}

func TestRawTracesNeverAllocate(t *testing.T) {
	p := newRawPair(t)
	aTrace(4).Put(p.client.Payload)
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Flags: copyrpc.OpTraced, Endpoint: p.to, ReplyBytesMax: 8}
	_, status := p.client.Submit(1)
	wants(t, status, copyrpc.OK)
	request := p.next(t, p.server, copyrpc.CompletionRequest)
	per := testing.AllocsPerRun(100, func() {
		if _, status := p.server.RequestTrace(p.from, request.Token); status != copyrpc.OK {
			t.Fatal(status)
		}
	})
	if per != 0 {
		t.Fatalf("%v allocations", per)
	}
}
