// listen.go: listeners, and those who want to connect.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Listener waits for peers that connect. All methods may be called from any goroutine.
type Listener struct {
	acceptor *acceptor
}

// acceptor is what a Listener is to the poller.
type acceptor struct {
	poller   *poller
	id       uint64
	handle   ListenerHandle
	address  string
	channels bool     // it takes channels, not endpoints
	options  []Option // what Listen was told holds for those that it accepts
	release  func()
	closed   atomic.Bool
	gone     chan struct{}

	mutex   sync.Mutex
	reason  Status
	waiting []*ConnectRequest
	arrived chan struct{} // of capacity 1: has a value when `waiting` may have something
}

// ConnectRequest is a peer that wants to connect: accept or reject it.
type ConnectRequest struct {
	Info     EndpointInfo // PeerAddress and Token are the peer's
	acceptor *acceptor
	endpoint EndpointHandle // or the bits of a ChannelHandle
	channel  ChannelInfo    // of a listener for channels, instead of Info
	answered atomic.Bool
}

// Listen listens on "192.0.2.1:port", "[::]:port", "name:port" or "*:port"; port 0 is any free one. The options also hold for
// the endpoints that it accepts. Contexts are shared as by [Dial].
func Listen(address string, options ...Option) (*Listener, error) {
	op := "listen " + address
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
	}
	a, err := listen(op, address, s, options)
	if err != nil {
		return nil, err
	}
	listener := &Listener{acceptor: a}
	warnIfLost(listener, a.open, "a Listener", "listen "+a.address)
	return listener, nil
}

func listen(op, address string, s *settings, options []Option) (*acceptor, error) {
	c, release, err := takeContext(op, s)
	if err != nil {
		return nil, err
	}
	p := c.poller
	a := &acceptor{
		poller: p, channels: s.listener&C.CRPC_LISTENER_CHANNELS != 0, options: options, release: release,
		gone: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
	err = p.control(op, func() error {
		a.id = p.newID()
		var err error
		if a.handle, err = p.raw.listen(op, address, a.id, s); err != nil {
			return err
		}
		p.listeners[a.id] = a
		a.address, err = p.raw.ListenerAddress(a.handle)
		return err
	})
	if err != nil {
		letGo(release)
		return nil, err
	}
	return a, nil
}

func (a *acceptor) open() bool { return !a.closed.Load() && !a.poller.closed.Load() }

// Listen is [Listen] on this context.
func (c *Context) Listen(address string, options ...Option) (*Listener, error) {
	if _, err := c.valid("listen " + address); err != nil {
		return nil, err
	}
	return Listen(address, append(options[:len(options):len(options)], WithContext(c))...)
}

func (listener *Listener) valid(op string) (*acceptor, error) {
	if listener == nil || listener.acceptor == nil {
		return nil, errorf(op, ErrClosed, "this Listener was never opened: make it with Listen")
	}
	if listener.acceptor.closed.Load() {
		return nil, errorf(op, ErrClosed, "the Listener was closed")
	}
	return listener.acceptor, nil
}

// Address tells where it listens, e.g. "192.0.2.1:47110".
func (listener *Listener) Address() string {
	if listener == nil || listener.acceptor == nil {
		return ""
	}
	return listener.acceptor.address
}

// ListenerStats counts those who wanted to connect.
type ListenerStats struct {
	Requests uint64 // seen
	Refused  uint64 // of these, by the library
}

// Stats reads the listener's counters.
func (listener *Listener) Stats() (ListenerStats, error) {
	const op = "listener stats"
	a, err := listener.valid(op)
	if err != nil {
		return ListenerStats{}, err
	}
	var info ListenerInfo
	err = a.poller.control(op, func() error {
		var err error
		info, err = a.poller.raw.ListenerInfo(a.handle)
		return err
	})
	return info.ListenerStats, err
}

// Close stops listening. Connections made stay; peers that were not accepted yet are rejected. Closing twice is allowed.
func (listener *Listener) Close() error {
	if listener == nil || listener.acceptor == nil || listener.acceptor.closed.Swap(true) {
		return nil
	}
	a := listener.acceptor
	a.poller.control("close", func() error {
		if a.poller.listeners[a.id] == a {
			a.finish(ErrClosed)
		}
		return nil
	})
	letGo(a.release)
	return nil
}

// finish stops listening. The poller's mutex is held.
func (a *acceptor) finish(reason Status) {
	delete(a.poller.listeners, a.id)
	a.poller.raw.CloseListener(a.handle)
	a.mutex.Lock()
	a.reason, a.waiting = reason, nil
	a.mutex.Unlock()
	close(a.gone)
}

// requested is what the poller calls for a CompletionConnectRequest.
func (a *acceptor) requested(done *Completion) {
	request := &ConnectRequest{acceptor: a, endpoint: done.Endpoint}
	if a.channels {
		request.channel, _ = a.poller.raw.ChannelInfo(done.Channel())
	} else {
		request.Info, _ = a.poller.raw.EndpointInfo(done.Endpoint)
	}
	a.mutex.Lock()
	a.waiting = append(a.waiting, request)
	a.mutex.Unlock()
	signal(a.arrived)
}

func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// AcceptRequest waits for a peer that wants to connect, for those who choose whom to accept.
func (listener *Listener) AcceptRequest(ctx context.Context) (*ConnectRequest, error) {
	const op = "accept"
	a, err := listener.valid(op)
	if err != nil {
		return nil, err
	}
	for {
		a.mutex.Lock()
		if len(a.waiting) > 0 {
			request := a.waiting[0]
			a.waiting = a.waiting[1:]
			if len(a.waiting) > 0 {
				signal(a.arrived) // for another that waits
			}
			a.mutex.Unlock()
			return request, nil
		}
		reason := a.reason
		a.mutex.Unlock()
		if reason != OK {
			return nil, newError(op, reason)
		}
		select {
		case <-a.arrived:
		case <-a.gone:
		case <-ctx.Done():
			return nil, contextError(op, ctx)
		}
	}
}

// Accept waits for a peer and connects with it. What goes wrong with one peer is returned as an *Error whose status is not
// ErrClosed, and the next may be accepted.
func (listener *Listener) Accept(ctx context.Context, options ...Option) (*Endpoint, error) {
	request, err := listener.AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	return request.Accept(ctx, options...)
}

// Accept connects with the peer.
func (request *ConnectRequest) Accept(ctx context.Context, options ...Option) (*Endpoint, error) {
	op := "accept " + request.Info.PeerAddress
	a := request.acceptor
	if a == nil || request.answered.Swap(true) {
		return nil, errorf(op, ErrStale, "this ConnectRequest was answered already, or is none")
	}
	s, problem := settingsOf(op, append(a.options[:len(a.options):len(a.options)], options...))
	if problem != nil {
		request.answered.Store(false)
		return nil, problem
	}
	s.endpoint.token_bytes = 0 // it is for the connecting side
	p := a.poller
	c := newConnection(p, op, s, nil)
	err := p.control(op, func() error {
		c.id, c.handle = p.newID(), request.endpoint
		s.endpoint.user_data = C.uint64_t(c.id)
		if err := p.raw.accept(op, c.handle, s); err != nil {
			p.raw.CloseEndpoint(c.handle)
			return err
		}
		p.connections[c.id] = c
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// Reject refuses the peer: its Dial fails with ErrRefused and shows `reason`, any number.
func (request *ConnectRequest) Reject(reason uint32) error {
	const op = "reject"
	if request.acceptor == nil || request.answered.Swap(true) {
		return errorf(op, ErrStale, "this ConnectRequest was answered already, or is none")
	}
	p := request.acceptor.poller
	return p.control(op, func() error { return p.raw.Reject(request.endpoint, reason) })
}

// shutdownGrace is how long Listener.Serve waits for clients to take leave.
const shutdownGrace = time.Second

// Serve accepts whoever connects and answers their requests with `handler`, until ctx is done: then it stops listening, takes
// leave of its clients, and returns nil. It returns an error if the listener is closed, by somebody else or by failure.
func (listener *Listener) Serve(ctx context.Context, handler Handler) error {
	const op = "serve"
	if _, err := listener.valid(op); err != nil {
		return err
	}
	if handler == nil {
		return errorf(op, ErrInvalid, "the handler is nil")
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		request, err := listener.AcceptRequest(ctx)
		if err != nil {
			listener.Close()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		clients.Add(1)
		go func() {
			defer clients.Done()
			serveClient(ctx, request, handler)
		}()
	}
}

func serveClient(ctx context.Context, request *ConnectRequest, handler Handler) {
	endpoint, err := request.Accept(ctx)
	if err != nil {
		if ctx.Err() == nil {
			Warn(err.Error())
		}
		return
	}
	defer endpoint.Close()
	if endpoint.Serve(ctx, handler) == nil { // ctx is done
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		endpoint.Shutdown(grace)
	}
}
