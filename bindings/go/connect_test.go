package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// What a newcomer writes: no contexts, no options.
func TestDialAndListenShareAContext(t *testing.T) {
	listener, err := copyrpc.Listen(host()+":0", patient()...)
	check(t, err)
	ctx, cancel := context.WithCancel(limited(t))
	served := make(chan error, 1)
	go func() { served <- listener.Serve(ctx, echo) }()
	client, err := copyrpc.Dial(ctx, listener.Address())
	check(t, err)
	reply, err := client.Call(ctx, []byte("hello"))
	check(t, err)
	if string(reply) != "hello" {
		t.Fatalf("%q", reply)
	}
	check(t, client.Shutdown(ctx))
	cancel()
	check(t, <-served)
	check(t, listener.Close())
}

func TestServeTakesLeaveWhenItsContextIsDone(t *testing.T) {
	c := openContext(t)
	listener, err := c.Listen(host()+":0", patient()...)
	check(t, err)
	serving, stop := context.WithCancel(context.Background())
	begun, goOn := make(chan struct{}), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- listener.Serve(serving, func(context.Context, *copyrpc.Request) ([]byte, error) {
			close(begun)
			<-goOn
			return []byte("finished"), nil
		})
	}()
	client, err := openContext(t).Dial(limited(t), listener.Address())
	check(t, err)
	defer client.Close()
	answer := make(chan string, 1)
	go func() {
		reply, err := client.Call(limited(t), nil)
		answer <- fmt.Sprint(string(reply), err)
	}()
	<-begun
	stop()
	time.Sleep(20 * time.Millisecond)
	close(goOn)
	if got := <-answer; got != "finished<nil>" {
		t.Fatalf("the request under way: %s", got)
	}
	check(t, <-served)
	select {
	case <-client.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("the client was not told")
	}
	is(t, client.Err(), copyrpc.ErrDisconnected)
	_, err = client.Call(limited(t), nil)
	is(t, err, copyrpc.ErrDisconnected)
}

func TestNobodyListens(t *testing.T) {
	listener, err := copyrpc.Listen(host() + ":0")
	check(t, err)
	address := listener.Address()
	listener.Close()
	_, err = copyrpc.Dial(limited(t), address)
	is(t, err, copyrpc.ErrRefused)
}

func TestDialIsGivenUp(t *testing.T) {
	c := openContext(t)
	listener, err := c.Listen(host() + ":0") // and does not accept
	check(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = openContext(t).Dial(ctx, listener.Address())
	is(t, err, copyrpc.ErrTimeout)
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = openContext(t).Dial(ctx, listener.Address())
	is(t, err, copyrpc.ErrCanceled)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestRejectAndToken(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	go func() {
		for {
			request, err := p.listener.AcceptRequest(ctx)
			if err != nil {
				return
			}
			if string(request.Info.Token) == "let me in" {
				request.Accept(ctx)
				continue
			}
			if err := request.Reject(42); err != nil {
				t.Error(err)
			}
			if !errors.Is(request.Reject(42), copyrpc.ErrStale) {
				t.Error("rejected twice")
			}
		}
	}()
	_, err := p.clientContext.Dial(ctx, p.listener.Address(), copyrpc.WithToken([]byte("me too")))
	is(t, err, copyrpc.ErrRefused)
	client, err := p.clientContext.Dial(ctx, p.listener.Address(), copyrpc.WithToken([]byte("let me in")))
	check(t, err)
	check(t, client.Close())
	stats, err := p.listener.Stats()
	check(t, err)
	if stats.Requests < 3 { // a client that is not heard for half a second asks again
		t.Fatalf("%d wanted to connect", stats.Requests)
	}
	p.listener.Close()
}

// What is wrong with accepting does not become the peers' wait, nor the listener's endpoints.
func TestPeersThatCannotBeAcceptedLeaveNothing(t *testing.T) {
	server, client := openContext(t), openContext(t)
	listener, err := server.Listen(host()+":0", patient()...)
	check(t, err)
	// The first is refused by the library, and the second by this package already.
	for i, wrong := range []copyrpc.Option{copyrpc.WithRingBytes(5000), copyrpc.WithCallsMax(-1)} {
		for peer := 0; peer < 8; peer++ {
			ctx, cancel := context.WithTimeout(limited(t), 10*time.Second)
			dialed := make(chan error, 1)
			go func() {
				endpoint, err := client.Dial(ctx, listener.Address())
				if err == nil {
					endpoint.Close()
				}
				dialed <- err
			}()
			_, err := listener.Accept(ctx, wrong)
			is(t, err, copyrpc.ErrInvalid)
			if err := <-dialed; !errors.Is(err, copyrpc.ErrRefused) {
				t.Fatalf("options %d: Dial: %v, not REFUSED", i, err)
			}
			cancel()
		}
	}
	info, err := server.Info()
	check(t, err)
	if info.Endpoints != 0 {
		t.Fatalf("endpoints: %d != 0", info.Endpoints)
	}
	// A request whose options were wrong is still there for whoever holds it.
	dialed := make(chan error, 1)
	go func() {
		_, err := client.Dial(limited(t), listener.Address())
		dialed <- err
	}()
	request, err := listener.AcceptRequest(limited(t))
	check(t, err)
	_, err = request.Accept(limited(t), copyrpc.WithCallsMax(-1))
	is(t, err, copyrpc.ErrInvalid)
	check(t, request.Reject(7))
	is(t, <-dialed, copyrpc.ErrRefused)
}

func TestManyEndpointsOfOneContext(t *testing.T) {
	server, client := openContext(t), openContext(t)
	listener, err := server.Listen(host()+":0", patient(copyrpc.WithRingBytes(16384))...)
	check(t, err)
	ctx, cancel := context.WithCancel(limited(t))
	served := make(chan error, 1)
	go func() { served <- listener.Serve(ctx, echo) }()
	var all sync.WaitGroup
	for i := 0; i < 40; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			endpoint, err := client.Dial(ctx, listener.Address(), copyrpc.WithRingBytes(16384))
			if err != nil {
				t.Error(err)
				return
			}
			defer endpoint.Close()
			for n := 0; n < 20; n++ {
				request := fmt.Sprint(i, n)
				if reply, err := endpoint.Call(ctx, []byte(request)); err != nil || string(reply) != request {
					t.Errorf("endpoint %d: %q, %v", i, reply, err)
				}
			}
			if err := endpoint.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}(i)
	}
	all.Wait()
	cancel()
	check(t, <-served)
}

func TestPeerClosesWhileCallsArePending(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	go func() {
		p.server.Receive(ctx)
		p.server.Close()
	}()
	_, err := p.client.Call(ctx, []byte("?"))
	is(t, err, copyrpc.ErrDisconnected)
	<-p.client.Done()
	is(t, p.client.Err(), copyrpc.ErrDisconnected)
	stats, err := p.client.Stats() // the last ones
	check(t, err)
	if stats.Calls != 1 || stats.CallsFailed != 1 {
		t.Fatalf("%+v", stats)
	}
	// The same context goes on.
	again, _ := p.connect(t, ctx)
	if err := again.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestShutdownOfBothSides(t *testing.T) {
	p := newPair(t)
	ctx := limited(t)
	errs := make(chan error, 2)
	go func() { errs <- p.client.Shutdown(ctx) }()
	go func() { errs <- p.server.Shutdown(ctx) }()
	for i := 0; i < 2; i++ {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.client.Call(ctx, nil)
	is(t, err, copyrpc.ErrClosed)
}

func TestAsking(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(copyrpc.Version()) {
		t.Fatal(copyrpc.Version())
	}
	devices, err := copyrpc.Devices()
	check(t, err)
	if len(devices) == 0 || devices[0].Name == "" || !devices[0].Active {
		t.Fatalf("%+v", devices)
	}
	if info, err := openContext(t, copyrpc.WithDriver("verbs")).Info(); err != nil || info.Driver != "verbs" {
		t.Fatalf("%+v, %v", info, err)
	}
	if strings.HasPrefix(devices[0].Name, "mlx5") {
		compressing := openContext(t, copyrpc.WithDriver("mlx5"), copyrpc.WithCompressedCompletions())
		if info, err := compressing.Info(); err != nil || !info.CQECompression || !info.BlueFlame {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	p := newPair(t)
	info, err := p.clientContext.Info()
	check(t, err)
	if info.Device == "" || info.Driver == "" || info.Endpoints != 1 || info.EndpointsMax != 256 {
		t.Fatalf("%+v", info)
	}
	mine, err := p.client.Info()
	check(t, err)
	if mine.PeerAddress != p.listener.Address() || mine.CallsMax != 1024 || mine.QueuePairNumber == 0 {
		t.Fatalf("%+v", mine)
	}
	if copyrpc.ErrTimeout.Name() != "CRPC_E_TIMEOUT" || copyrpc.ErrTimeout.Error() == "" {
		t.Fatal("a status without name or text")
	}
}
