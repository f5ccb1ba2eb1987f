package copyrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// came waits for what must come.
func came[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(60 * time.Second):
		t.Fatalf("%s: nothing came of it", what)
		panic("unreachable")
	}
}

// served is a listener that serves, and a client of it.
type served struct {
	listener *copyrpc.Listener
	client   *copyrpc.Endpoint
	stop     context.CancelFunc
	ended    chan error
}

func serveOne(t *testing.T, handler copyrpc.Handler, options ...copyrpc.Option) *served {
	t.Helper()
	listener, err := openContext(t).Listen(host()+":0", patient(options...)...)
	check(t, err)
	serving, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	s := &served{listener: listener, stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- listener.Serve(serving, handler) }()
	s.client, err = openContext(t).Dial(limited(t), listener.Address())
	check(t, err)
	t.Cleanup(func() { s.client.Close() })
	return s
}

// call is a call under way; what became of it comes from the channel.
func (s *served) call(t *testing.T, request string) <-chan string {
	answer := make(chan string, 1)
	ctx := limited(t)
	go func() {
		reply, err := s.client.Call(ctx, []byte(request))
		answer <- fmt.Sprint(string(reply), err)
	}()
	return answer
}

// untilItsEnd is a handler that waits for the end of its ctx, and answers with the name of the cause.
func untilItsEnd(begun chan struct{}) copyrpc.Handler {
	return func(ctx context.Context, _ *copyrpc.Request) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		var cause *copyrpc.Error
		if !errors.As(context.Cause(ctx), &cause) {
			return nil, fmt.Errorf("no cause: %v", context.Cause(ctx))
		}
		return []byte(cause.Status.Name()), nil
	}
}

func TestHandlersFinishWithinTheirGrace(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := serveOne(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		if string(request.Payload) == "late" {
			return request.Payload, nil
		}
		close(begun)
		<-goOn
		return []byte("finished"), ctx.Err() // that Serve's ctx is done is not the handler's business yet
	}, copyrpc.WithGrace(copyrpc.Forever))
	underWay := s.call(t, "early")
	came(t, begun, "the first request")
	s.stop()
	// Soon the server takes no more requests, and says so.
	for {
		reply, err := s.client.Call(limited(t), []byte("late"))
		if err == nil && string(reply) == "late" {
			continue // Serve has not heard yet
		}
		if !errors.Is(err, copyrpc.ErrClosing) { // the client has not heard yet, either
			is(t, err, copyrpc.ErrNotStarted)
		}
		break
	}
	close(goOn)
	if got := came(t, underWay, "the request under way"); got != "finished<nil>" {
		t.Fatalf("the request under way: %s", got)
	}
	check(t, came(t, s.ended, "Serve"))
	came(t, s.client.Done(), "the connection's end")
}

func TestAfterTheirGraceHandlersAreCanceledWithACause(t *testing.T) {
	begun := make(chan struct{})
	s := serveOne(t, untilItsEnd(begun), copyrpc.WithGrace(20*time.Millisecond))
	underWay := s.call(t, "?")
	came(t, begun, "the request")
	s.stop()
	if got := came(t, underWay, "the request under way"); got != "CRPC_E_CANCELED<nil>" {
		t.Fatalf("the request under way: %s", got)
	}
	check(t, came(t, s.ended, "Serve"))
}

func TestTheCallerOfAHandlerThatDoesNotEndIsAnswered(t *testing.T) {
	begun, goOn, tooLate := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s := serveOne(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		close(begun)
		<-goOn
		tooLate <- request.Reply(nil)
		return nil, nil
	}, copyrpc.WithGrace(0))
	underWay := make(chan error, 1)
	ctx := limited(t)
	go func() {
		_, err := s.client.Call(ctx, []byte("?"))
		underWay <- err
	}()
	came(t, begun, "the request")
	s.stop()
	var refused *copyrpc.ReplyError
	if err := came(t, underWay, "the request under way"); !errors.As(err, &refused) || refused.Status != copyrpc.StatusUnknown {
		t.Fatalf("the request under way: %v", err)
	}
	is(t, came(t, s.ended, "Serve"), copyrpc.ErrBusy)
	came(t, s.client.Done(), "the connection's end")
	close(goOn)
	is(t, came(t, tooLate, "the handler's end"), copyrpc.ErrStale)
}

// The connection's end cancels the handlers at once, and they can ask why.
func TestHandlersAreToldWhyTheConnectionEnded(t *testing.T) {
	p := newPair(t)
	begun, cause := make(chan struct{}), make(chan error, 1)
	p.serve(t, func(ctx context.Context, _ *copyrpc.Request) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, nil
	})
	go p.client.Call(limited(t), nil)
	came(t, begun, "the request")
	check(t, p.client.Close())
	is(t, came(t, cause, "the handler's cause"), copyrpc.ErrDisconnected)
}

func TestAnEndpointThatIsServedNoLongerRefusesRequests(t *testing.T) {
	p := newPair(t)
	serve := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.server.Serve(ctx, echo) }()
		return func() {
			cancel()
			check(t, came(t, done, "Serve"))
		}
	}
	stop := serve()
	_, err := p.client.Call(limited(t), nil)
	check(t, err)
	stop()
	ctx, cancel := context.WithTimeout(limited(t), 10*time.Second)
	defer cancel()
	_, err = p.client.Call(ctx, nil)
	is(t, err, copyrpc.ErrNotStarted)
	// Served again, it takes them again, as soon as Serve has begun; and so it does if somebody receives.
	stop = serve()
	for patience := limited(t); ; {
		if _, err = p.client.Call(patience, nil); !errors.Is(err, copyrpc.ErrNotStarted) {
			break
		}
	}
	check(t, err)
	stop()
	over, ended := context.WithCancel(context.Background())
	ended()
	_, err = p.server.Receive(over) // from now on, they wait
	is(t, err, copyrpc.ErrCanceled)
	answer := make(chan error, 1)
	go func() {
		_, err := p.client.Call(limited(t), nil)
		answer <- err
	}()
	request, err := p.server.Receive(limited(t))
	check(t, err)
	check(t, request.Reply(nil))
	check(t, came(t, answer, "the request that was received"))
}

func TestClosingTheListenerEndsServe(t *testing.T) {
	s := serveOne(t, echo)
	_, err := s.client.Call(limited(t), nil)
	check(t, err)
	check(t, s.listener.Close())
	came(t, s.client.Done(), "the end of an idle connection")
	is(t, s.client.Err(), copyrpc.ErrDisconnected)
	is(t, came(t, s.ended, "Serve"), copyrpc.ErrClosed)
}

// Many requests are under way when Serve ends: each gets one answer, whichever it is.
func TestEveryRequestIsAnsweredWhenServeEnds(t *testing.T) {
	const callers = 100
	waiting := make(chan struct{}, callers)
	s := serveOne(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		if len(request.Payload)%2 == 1 {
			waiting <- struct{}{}
			<-ctx.Done()
		}
		return request.Payload, nil
	}, copyrpc.WithGrace(50*time.Millisecond))
	var all sync.WaitGroup
	failed := make(chan error, callers)
	var answers [callers]int
	for i := 0; i < callers; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for {
				_, err := s.client.Call(limited(t), make([]byte, i))
				if errors.Is(err, copyrpc.ErrNotStarted) || errors.Is(err, copyrpc.ErrDisconnected) || errors.Is(err, copyrpc.ErrClosing) {
					return
				} else if err != nil {
					failed <- err
					return
				}
				answers[i]++
			}
		}(i)
	}
	for i := 0; i < callers/2; i++ {
		came(t, waiting, "a request that waits")
	}
	s.stop()
	all.Wait()
	check(t, came(t, s.ended, "Serve"))
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	for i := 1; i < callers; i += 2 { // those that waited were under way
		if answers[i] == 0 {
			t.Errorf("the request under way of caller %d was lost", i)
		}
	}
}

// A program starts Serve in a goroutine, which may come to it only when the program is told to stop.
func TestShutdownBeforeServe(t *testing.T) {
	listener, err := openContext(t).Listen(host() + ":0")
	check(t, err)
	check(t, listener.Shutdown(limited(t)))
	for i := 0; i < 2; i++ {
		check(t, listener.Serve(limited(t), func(context.Context, *copyrpc.Request) ([]byte, error) { return nil, nil }))
	}
	closed, err := openContext(t).Listen(host() + ":0")
	check(t, err)
	check(t, closed.Close())
	err = closed.Serve(limited(t), func(context.Context, *copyrpc.Request) ([]byte, error) { return nil, nil })
	if !errors.Is(err, copyrpc.ErrClosed) {
		t.Errorf("Serve of a listener that was closed gives %v", err)
	}
}

// Everybody's calls are under way when the server is told to stop. Each is answered by its handler, or was not begun.
func TestADrainLosesNothing(t *testing.T) {
	const clients, callers = 3, 4
	for drains := 0; drains < 10; drains++ {
		var acted atomic.Int64
		s := serveOne(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
			acted.Add(1)
			if request.Payload[0]%8 == 0 {
				time.Sleep(time.Millisecond)
			}
			return request.Payload, nil
		})
		var answered, notStarted atomic.Int64
		var all sync.WaitGroup
		failed := make(chan error, clients*callers)
		under := make(chan struct{}, clients*callers)
		for i := 0; i < clients; i++ {
			client, err := openContext(t).Dial(limited(t), s.listener.Address())
			check(t, err)
			defer client.Close()
			for j := 0; j < callers; j++ {
				all.Add(1)
				go func() {
					defer all.Done()
					for n := 0; ; n++ {
						if n == 5 {
							under <- struct{}{}
						}
						switch _, err := client.Call(limited(t), []byte{byte(n)}); {
						case err == nil:
							answered.Add(1)
						case errors.Is(err, copyrpc.ErrNotStarted):
							notStarted.Add(1)
						case errors.Is(err, copyrpc.ErrClosing) || errors.Is(err, copyrpc.ErrDisconnected):
							return // it was not sent, or acted on and not answered: the counts tell
						default:
							failed <- err
							return
						}
					}
				}()
			}
		}
		for i := 0; i < clients*callers; i++ {
			came(t, under, "calls under way")
		}
		check(t, s.listener.Shutdown(limited(t)))
		check(t, came(t, s.ended, "Serve"))
		all.Wait()
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		if acted.Load() != answered.Load() {
			t.Fatalf("of %d calls that were acted on, %d were answered (%d were not begun)", acted.Load(), answered.Load(), notStarted.Load())
		}
		came(t, s.client.Done(), "the connection's end")
	}
}

func TestShutdownEndsHandlersWhenItsTimeIsUp(t *testing.T) {
	begun := make(chan struct{})
	s := serveOne(t, untilItsEnd(begun), copyrpc.WithGrace(copyrpc.Forever))
	underWay := s.call(t, "?")
	came(t, begun, "the request")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	check(t, s.listener.Shutdown(ctx))
	if got := came(t, underWay, "the request under way"); got != "CRPC_E_CANCELED<nil>" {
		t.Fatalf("the request under way: %s", got)
	}
	check(t, came(t, s.ended, "Serve"))
	is(t, s.listener.Shutdown(ctx), copyrpc.ErrClosed)
}

func TestShutdownOfAListenerThatNobodyServes(t *testing.T) {
	listener, err := openContext(t).Listen(host() + ":0")
	check(t, err)
	check(t, listener.Shutdown(limited(t)))
	_, err = listener.Accept(limited(t))
	is(t, err, copyrpc.ErrClosed)
}

// A context that Listen shares ends with its last user: a listener that stops must not end what it has accepted.
func TestServeInASharedContextLetsHandlersFinish(t *testing.T) {
	listener, err := copyrpc.Listen(host()+":0", patient(copyrpc.WithEndpointsMax(19))...) // which no other test shares
	check(t, err)
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- listener.Serve(serving, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
			close(begun)
			<-serving.Done()
			time.Sleep(50 * time.Millisecond)
			return request.Payload, nil
		})
	}()
	client, err := openContext(t).Dial(limited(t), listener.Address())
	check(t, err)
	defer client.Close()
	s := &served{client: client}
	answer := s.call(t, "begun")
	came(t, begun, "the request")
	stop()
	if got := came(t, answer, "the answer"); got != "begun<nil>" {
		t.Fatal(got)
	}
	check(t, came(t, ended, "Serve"))
}
