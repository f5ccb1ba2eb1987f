package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// ---- Connections --------------------------------------------------------------------------------

func TestReconnectComesBack(t *testing.T) {
	p := newProcess(t)
	p.start(t)
	l := dialLasting(t, p.address)
	l.echo(t, "first")
	for turn := 0; turn < 3; turn++ {
		p.end(t, syscall.SIGKILL)
		if state := l.until(t, "it is lost", away); !errors.Is(state.Err, copyrpc.ErrDisconnected) || state.Ended {
			t.Fatalf("%+v", state)
		}
		if info := l.info(t); info.State != copyrpc.StateConnecting || info.Connections != turn+1 {
			t.Fatalf("%+v", info)
		}
		check(t, l.Err())
		waiting := l.going(t, copyrpc.Call{Request: []byte("waiting")})
		until(t, "it waits", func() bool { return l.info(t).CallsWaiting == 1 })
		p.start(t)
		if state := l.until(t, "it comes back", connected); state.Err != nil {
			t.Fatalf("%+v", state)
		}
		if result := came(t, waiting, "the call that waited"); result.Err != nil || string(result.Reply) != "waiting" {
			t.Fatalf("%+v", result)
		}
		l.echo(t, "next")
		if info := l.info(t); info.State != copyrpc.StateConnected || info.Connections != turn+2 || info.AttemptsFailed < 1 {
			t.Fatalf("%+v", info)
		}
	}
	if p.done(t)["waiting"] != 3 {
		t.Fatal(p.done(t))
	}
	check(t, l.Close())
	if state := l.until(t, "its end", away); !state.Ended || !errors.Is(state.Err, copyrpc.ErrClosed) {
		t.Fatalf("%+v", state)
	}
}

func TestReconnectToAnotherAddress(t *testing.T) {
	p, q := newProcess(t), newProcess(t)
	p.start(t)
	q.start(t)
	l := dialLasting(t, p.address+","+q.address)
	l.echo(t, "first")
	p.end(t, syscall.SIGKILL)
	l.echo(t, "second")
	if info := l.info(t); info.AddressIndex != 1 || q.done(t)["second"] != 1 || q.done(t)["first"] != 0 {
		t.Fatalf("%+v", info)
	}
}

func TestReconnectWaitsForTheFirstConnection(t *testing.T) {
	p := newProcess(t)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := copyrpc.Dial(ctx, p.address, lastingOptions()...)
	if !errors.Is(err, copyrpc.ErrRefused) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), p.address) {
		t.Fatal(err)
	}
	canceled, stop := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, stop)
	if _, err = copyrpc.Dial(canceled, p.address, lastingOptions()...); !errors.Is(err, copyrpc.ErrRefused) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { p.start(t) })
	dialLasting(t, p.address).echo(t, "first")
}

func TestReconnectOptions(t *testing.T) {
	for name, options := range map[string][]copyrpc.Option{
		"a negative pause":    {copyrpc.WithReconnect(-1, 0)},
		"a longest below":     {copyrpc.WithReconnect(time.Second, time.Millisecond)},
		"more than an hour":   {copyrpc.WithReconnect(0, 2*time.Hour)},
		"a lane":              {copyrpc.WithReconnect(0, 0), copyrpc.WithLane()},
		"one that only serve": {copyrpc.WithReconnect(0, 0), copyrpc.WithServeOnly()},
	} {
		if _, err := copyrpc.Dial(limited(t), host()+":1", options...); !errors.Is(err, copyrpc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := copyrpc.Dial(limited(t), host()+":1,"+host()+":2"); !errors.Is(err, copyrpc.ErrInvalid) {
		t.Error(err)
	}
}

// ---- Calls that were sent -----------------------------------------------------------------------

// Each way to call, of an endpoint and a request that the server holds.
var waysToCall = map[string]func(t *testing.T, l *lasting, call copyrpc.Call) ([]byte, error){
	"Do": func(t *testing.T, l *lasting, call copyrpc.Call) ([]byte, error) { return l.Do(limited(t), call) },
	"DoBatch": func(t *testing.T, l *lasting, call copyrpc.Call) ([]byte, error) {
		results, err := l.DoBatch(limited(t), []copyrpc.Call{call})
		if err != nil {
			return nil, err
		}
		return results[0].Reply, results[0].Err
	},
	"Reserve": func(t *testing.T, l *lasting, call copyrpc.Call) ([]byte, error) {
		payload := call.Request
		call.Request = nil
		room, err := l.Reserve(call, len(payload))
		if err != nil {
			return nil, err
		}
		copy(room.Bytes(), payload)
		if err = room.Commit(len(payload)); err != nil {
			return nil, err
		}
		return room.Wait(limited(t))
	},
}

func TestReconnectSendsAgainWhatIsIdempotent(t *testing.T) {
	for name, way := range waysToCall {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			p.start(t)
			l := dialLasting(t, p.address)
			made := func(payload string, idempotent bool) <-chan copyrpc.Result {
				result := make(chan copyrpc.Result, 1)
				go func() {
					reply, err := way(t, l, copyrpc.Call{Method: methodHold, Request: []byte(payload), Idempotent: idempotent})
					result <- copyrpc.Result{Reply: reply, Err: err}
				}()
				p.waitFor(t, payload, 1)
				return result
			}
			once, again := made("once", false), made("again", true)
			p.end(t, syscall.SIGKILL)
			if result := came(t, once, "the call that may have been done"); !errors.Is(result.Err, copyrpc.ErrDisconnected) {
				t.Fatalf("%+v", result)
			}
			check(t, l.Err())
			p.start(t)
			p.waitFor(t, "again", 2)
			l.echo(t, "next")
			p.end(t, syscall.SIGTERM) // which answers what it has
			if result := came(t, again, "the call that is idempotent"); result.Err != nil || string(result.Reply) != "again" {
				t.Fatalf("%+v", result)
			}
			if done := p.done(t); done["once"] != 1 || done["again"] != 2 {
				t.Fatal(done)
			}
		})
	}
}

func TestReconnectFromARegion(t *testing.T) {
	p := newProcess(t)
	p.start(t)
	l := dialLasting(t, p.address)
	regions := openContext(t)
	endpoint, err := regions.Dial(limited(t), p.address, lastingOptions()...)
	check(t, err)
	defer endpoint.Close()
	l.Endpoint = endpoint
	region, err := regions.NewRegion(4096, 0)
	check(t, err)
	copy(region.Bytes(), "onceagain")
	once := l.going(t, copyrpc.Call{Method: methodHold, From: copyrpc.Buffer{Region: region, Length: 4}})
	again := l.going(t, copyrpc.Call{Method: methodHold, From: copyrpc.Buffer{Region: region, Offset: 4, Length: 5}, Idempotent: true})
	p.waitFor(t, "once", 1)
	p.waitFor(t, "again", 1)
	p.end(t, syscall.SIGKILL)
	if result := came(t, once, "the call that may have been done"); !errors.Is(result.Err, copyrpc.ErrDisconnected) {
		t.Fatalf("%+v", result)
	}
	p.start(t)
	p.waitFor(t, "again", 2)
	p.end(t, syscall.SIGTERM)
	if result := came(t, again, "the call that is idempotent"); string(result.Reply) != "again" {
		t.Fatalf("%+v", result)
	}
}

func TestReconnectInterceptorsSeeWhatIsIdempotent(t *testing.T) {
	p := newProcess(t)
	p.start(t)
	l := dialLasting(t, p.address, copyrpc.WithCallInterceptor(func(next copyrpc.CallFunc) copyrpc.CallFunc {
		return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
			call.Idempotent = call.Method == methodHold
			return next(ctx, call)
		}
	}))
	again := l.going(t, copyrpc.Call{Method: methodHold, Request: []byte("again")})
	p.waitFor(t, "again", 1)
	p.end(t, syscall.SIGKILL)
	p.start(t)
	p.waitFor(t, "again", 2)
	p.end(t, syscall.SIGTERM)
	if result := came(t, again, "the call"); result.Err != nil {
		t.Fatal(result.Err)
	}
}

// What a server that ends gracefully has not begun goes to the next one.
func TestReconnectAfterADrain(t *testing.T) {
	p := newProcess(t)
	p.start(t)
	l := dialLasting(t, p.address)
	held := l.going(t, copyrpc.Call{Method: methodHold, Request: []byte("held")})
	p.waitFor(t, "held", 1)
	check(t, p.command.Process.Signal(syscall.SIGTERM))
	var waiting []<-chan copyrpc.Result
	for i := 0; i < 50; i++ {
		waiting = append(waiting, l.going(t, copyrpc.Call{Request: []byte(fmt.Sprint(i))}))
	}
	if result := came(t, held, "what was begun"); result.Err != nil || string(result.Reply) != "held" {
		t.Fatalf("%+v", result)
	}
	p.command.Wait()
	p.start(t)
	for i, result := range waiting {
		if result := came(t, result, "what was not begun"); string(result.Reply) != fmt.Sprint(i) {
			t.Fatalf("%+v", result)
		}
		if p.done(t)[fmt.Sprint(i)] != 1 {
			t.Fatal(p.done(t))
		}
	}
}

func TestReconnectRaw(t *testing.T) {
	p := newProcess(t)
	p.start(t)
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{})
	check(t, err)
	defer raw.Close()
	endpoint, err := raw.Connect(p.address, 7, lastingOptions()...)
	check(t, err)
	kinds, responses := map[uint8]int{}, map[uint64]copyrpc.Status{}
	poll := func() {
		count, _ := raw.Poll()
		for _, done := range raw.Completions[:count] {
			kinds[done.Kind]++
			if done.Kind == copyrpc.CompletionResponse {
				responses[done.UserData] = copyrpc.Status(done.Status)
			}
		}
	}
	pollUntil := func(what string, condition func() bool) {
		t.Helper()
		until(t, what, func() bool { poll(); return condition() })
	}
	pollUntil("it connects", func() bool { return kinds[copyrpc.CompletionConnected] == 1 })
	for i, flags := range []uint8{0, copyrpc.OpIdempotent} {
		raw.Payload[i] = "oa"[i]
		raw.Ops[i] = copyrpc.Op{Opcode: copyrpc.OpCall, Flags: flags, Method: methodHold, Endpoint: endpoint, UserData: uint64(i),
			PayloadOffset: uint64(i), PayloadBytes: 1, ReplyBytesMax: 16}
	}
	if count, status := raw.Submit(2); count != 2 {
		t.Fatal(status)
	}
	pollUntil("it has both", func() bool { return len(p.done(t)) == 2 })
	p.end(t, syscall.SIGKILL)
	pollUntil("it is lost", func() bool { return kinds[copyrpc.CompletionReconnecting] > 0 && len(responses) == 1 })
	if responses[0] != copyrpc.ErrDisconnected || raw.EndpointError(endpoint) == nil {
		t.Fatal(responses)
	}
	p.start(t)
	pollUntil("it has one again", func() bool { return p.done(t)["a"] == 2 })
	check(t, p.command.Process.Signal(syscall.SIGTERM))
	pollUntil("it is answered", func() bool { return len(responses) == 2 })
	if responses[1] != copyrpc.OK || p.done(t)["o"] != 1 {
		t.Fatal(responses)
	}
}

// ---- Requests of the server ---------------------------------------------------------------------

// inside is a server in this process, which is lost and started again at its address.
type inside struct {
	context  *copyrpc.Context
	listener *copyrpc.Listener
}

func startInside(t *testing.T, address string) *inside {
	t.Helper()
	s := &inside{context: openContext(t)}
	var err error
	s.listener, err = s.context.Listen(address, patient()...)
	check(t, err)
	return s
}

func (s *inside) accept(t *testing.T) *copyrpc.Endpoint {
	t.Helper()
	endpoint, err := s.listener.Accept(limited(t))
	check(t, err)
	return endpoint
}

// connect gives both ends of a connection that comes back.
func (s *inside) connect(t *testing.T) (*lasting, *copyrpc.Endpoint) {
	t.Helper()
	accepted := make(chan *copyrpc.Endpoint, 1)
	go func() { accepted <- s.accept(t) }()
	l := dialLasting(t, s.listener.Address())
	return l, came(t, accepted, "the server's end")
}

func TestReconnectAClientThatServesGoesOn(t *testing.T) {
	s := startInside(t, host()+":0")
	address := s.listener.Address()
	l, server := s.connect(t)
	begun, ended, serving := make(chan struct{}), make(chan error, 3), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		serving <- l.Serve(ctx, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
			if string(request.Payload) != "first" {
				return request.Payload, nil
			}
			close(begun)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			ended <- request.Reply(nil)
			_, err := request.Reserve(0, 0)
			ended <- err
			return nil, nil
		})
	}()
	go server.Call(limited(t), []byte("first"))
	came(t, begun, "the handler")
	check(t, s.context.Close())
	l.until(t, "it is lost", away)
	for i := 0; i < 2; i++ {
		is(t, came(t, ended, "the end of its ctx"), copyrpc.ErrDisconnected)
	}
	if came(t, ended, "the reservation") == nil {
		t.Fatal("there is room for the answer to a request of a lost connection")
	}
	s = startInside(t, address)
	reply, err := s.accept(t).Call(limited(t), []byte("second"))
	if err != nil || string(reply) != "second" {
		t.Fatal(reply, err)
	}
	stop()
	check(t, came(t, serving, "Serve"))
}

func TestReconnectForgetsRequestsThatNobodyHasTaken(t *testing.T) {
	s := startInside(t, host()+":0")
	address := s.listener.Address()
	l, server := s.connect(t)
	for i := 0; i < 3; i++ {
		go server.Call(limited(t), []byte("first"))
	}
	until(t, "they came", func() bool { return l.info(t).RequestsOpen == 3 })
	request, err := l.Receive(limited(t))
	check(t, err)
	check(t, s.context.Close())
	l.until(t, "it is lost", away)
	is(t, request.Reply(nil), copyrpc.ErrDisconnected)
	is(t, context.Cause(request.Context()).(*copyrpc.Error), copyrpc.ErrDisconnected)
	s = startInside(t, address)
	server = s.accept(t)
	go server.Call(limited(t), []byte("second"))
	request, err = l.Receive(limited(t))
	if err != nil || string(request.Payload) != "second" {
		t.Fatal(request, err)
	}
	check(t, request.Reply(nil))
}

// ---- The end ------------------------------------------------------------------------------------

func TestReconnectEnds(t *testing.T) {
	for name, end := range map[string]func(*lasting) error{
		"Close":    func(l *lasting) error { return l.Close() },
		"Shutdown": func(l *lasting) error { return l.Shutdown(limited(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			p.start(t)
			l := dialLasting(t, p.address)
			l.echo(t, "first")
			p.end(t, syscall.SIGKILL)
			l.until(t, "it is lost", away)
			waiting := l.going(t, copyrpc.Call{Request: []byte("waiting")})
			until(t, "it waits", func() bool { return l.info(t).CallsWaiting == 1 })
			if room, err := l.Reserve(copyrpc.Call{}, 8); !errors.Is(err, copyrpc.ErrAgain) {
				t.Fatal(room, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			if _, err := l.Call(ctx, []byte("late")); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			check(t, end(l))
			if result := came(t, waiting, "what waited"); result.Err == nil {
				t.Fatalf("%+v", result)
			}
			<-l.Done()
			if state := l.until(t, "its end", func(state copyrpc.ConnectionState) bool { return state.Ended }); state.Err == nil {
				t.Fatalf("%+v", state)
			}
			if _, err := l.Call(limited(t), nil); err == nil {
				t.Fatal("a call after the end")
			}
		})
	}
}
