// listen.go: listeners, and those who want to connect.

package copyrpc

import (
	"context"
	"errors"
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
	poller    *poller
	id        uint64
	handle    ListenerHandle
	address   string
	kind      linkKind  // of what it accepts
	options   []Option  // what Listen was told holds for those that it accepts
	spread    []*poller // where they are made, in turn; none: here
	turn      atomic.Uint32
	admission *admission // of all that it accepts
	release   func()
	closed    atomic.Bool
	gone      chan struct{}

	mutex   sync.Mutex
	reason  Status
	drains  map[*drain]struct{} // a Serve each
	stopped bool                // by Shutdown: a Serve that comes later ends as those that were there
	waiting []*ConnectRequest
	arrived chan struct{} // of capacity 1: has a value when `waiting` may have something
}

// ConnectRequest is a peer that wants to connect. Accept or reject it.
type ConnectRequest struct {
	Info     EndpointInfo // PeerAddress and Token are the peer's
	acceptor *acceptor
	endpoint EndpointHandle // or the bits of a ChannelHandle or a QueueHandle
	channel  ChannelInfo    // of a listener for channels, instead of Info
	queue    QueueInfo      // of a listener for queues, likewise
	answered atomic.Bool
}

// Listen listens on "192.0.2.1:port", "[::]:port", "name:port" or "*:port". Port 0 takes any free
// port. The options also apply to the endpoints that it accepts. Contexts are shared as by [Dial].
func Listen(address string, options ...Option) (*Listener, error) {
	a, err := listen(endpoints, "listen "+address, address, options)
	if err != nil {
		return nil, err
	}
	listener := &Listener{acceptor: a}
	warnIfLost(listener, a.open, "a Listener", "listen "+a.address)
	return listener, nil
}

// listen is Listen, ListenChannels or ListenQueues.
func listen(kind linkKind, op, address string, options []Option) (*acceptor, error) {
	s, err := settingsOf(op, options)
	if err != nil {
		return nil, err
	}
	p, release, err := takeContext(op, s, kind)
	if err != nil {
		return nil, err
	}
	a := &acceptor{
		poller: p, kind: kind, options: options, release: release, gone: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
	a.admission = s.admission
	for _, c := range s.spread {
		a.spread = append(a.spread, c.poller)
	}
	err = p.control(op, func() error {
		a.id = p.newID()
		var err error
		if a.handle, err = p.raw.listen(kind, op, address, a.id, s); err != nil {
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

// Listen does the same as [Listen], on this context.
func (c *Context) Listen(address string, options ...Option) (*Listener, error) {
	return Listen(address, c.among(options)...)
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

// Address returns the address of the listener, e.g. "192.0.2.1:47110".
func (listener *Listener) Address() string {
	if listener == nil || listener.acceptor == nil {
		return ""
	}
	return listener.acceptor.address
}

// ListenerStats counts the peers that wanted to connect, and what came of them that was too much.
type ListenerStats struct {
	Requests uint64 // seen
	Refused  uint64 // of these, by the library

	Overloaded uint64 // requests of those that it has accepted, beyond WithRequestsMax
}

// Stats reads the counters of the listener.
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
	info.Overloaded = a.admission.overloaded()
	return info.ListenerStats, err
}

// Close stops listening. Accepted connections stay; peers that still wait are rejected. Closing
// twice is allowed.
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
	switch a.kind {
	case queues:
		request.queue, _ = a.poller.raw.QueueInfo(done.Queue())
	case channels:
		request.channel, _ = a.poller.raw.ChannelInfo(done.Channel())
	default:
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

// AcceptRequest waits for a peer that wants to connect, and lets the caller decide whether to
// accept it.
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

// Accept waits for a peer and connects with it. If connecting to one peer fails, Accept returns an
// *Error whose status is not ErrClosed, and may be called again.
func (listener *Listener) Accept(ctx context.Context, options ...Option) (*Endpoint, error) {
	request, err := listener.AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	endpoint, err := request.Accept(ctx, options...)
	request.rejectUnanswered()
	return endpoint, err
}

// rejectUnanswered refuses a peer that nobody else can answer any more: the options of Accept were wrong.
func (request *ConnectRequest) rejectUnanswered() {
	if !request.answered.Load() {
		request.reject("reject", "ConnectRequest", 0)
	}
}

// Accept connects with the peer. If it fails, the peer is refused; only options with values out of
// range leave the request as it was.
func (request *ConnectRequest) Accept(ctx context.Context, options ...Option) (*Endpoint, error) {
	c := newConnection()
	return c.shown(request.accept(ctx, "accept "+request.Info.PeerAddress, "ConnectRequest", &c.link, options))
}

// accept makes a link with the peer. `name` is what the request is called by callers.
func (request *ConnectRequest) accept(ctx context.Context, op, name string, l *link, options []Option) error {
	if err := request.answer(op, name); err != nil {
		return err
	}
	a := request.acceptor
	s, err := settingsOf(op, append(append(a.options[:len(a.options):len(a.options)], sharedAdmission(a.admission)), options...))
	if err != nil {
		request.answered.Store(false)
		return err
	}
	s.endpoint.token_bytes = 0 // it is for the connecting side
	p, handle, err := request.place(ctx, op)
	if err != nil {
		return err
	}
	l.init(p, op, nil)
	err = l.begin(op, s, func() error {
		l.handle = handle
		err := p.raw.accept(l.kind, op, l.handle, l.id, s)
		if err != nil {
			p.raw.close(l.kind, op, l.handle)
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.established(ctx)
}

// answer notes that it is being answered, which happens once.
func (request *ConnectRequest) answer(op, name string) error {
	if request == nil || request.acceptor == nil || request.answered.Swap(true) {
		return errorf(op, ErrStale, "this %s was answered already, or is none", name)
	}
	return nil
}

// Reject refuses the peer. The peer's Dial fails with ErrRefused and shows `reason`, which may be
// any number.
func (request *ConnectRequest) Reject(reason uint32) error {
	return request.reject("reject", "ConnectRequest", reason)
}

func (request *ConnectRequest) reject(op, name string, reason uint32) error {
	if err := request.answer(op, name); err != nil {
		return err
	}
	a := request.acceptor
	return a.poller.control(op, func() error { return a.poller.raw.reject(a.kind, op, uint64(request.endpoint), reason) })
}

// shutdownGrace is how long Listener.Serve waits for clients to take leave.
const shutdownGrace = time.Second

// drain is how a Serve ends.
type drain struct {
	begin func()      // ends it, as its ctx does
	asked atomic.Bool // by Shutdown: handlers have no grace, but until this is closed:
	limit chan struct{}
	ended chan struct{} // closed when Serve returns
	err   error         // what it returns; read after that
}

// within waits until `done`, and tells whether that came in time.
func (d *drain) within(done <-chan struct{}, grace time.Duration) bool {
	if d == nil || !d.asked.Load() {
		return within(done, grace)
	}
	select {
	case <-done:
		return true
	case <-d.limit:
		return false
	}
}

// Shutdown ends Serve gracefully: it stops listening, takes leave of the clients, and lets the handlers finish; then the connections end.
// What comes meanwhile is not begun: its callers get ErrNotStarted, or ErrClosing once they know, and may send it again elsewhere. If ctx is done before, the
// handlers' ctx is canceled, and the callers of those that do not end within a second are answered for them. So nothing
// that came is left without an answer. Shutdown returns when Serve does: nil, or ErrBusy if not all handlers have ended. A
// Listener that nobody serves is closed, and a Serve that comes later returns nil at once.
func (listener *Listener) Shutdown(ctx context.Context) error {
	const op = "shutdown"
	a, err := listener.valid(op)
	if err != nil {
		return err
	}
	a.mutex.Lock()
	a.stopped = true
	var drains []*drain
	for d := range a.drains {
		drains = append(drains, d)
	}
	a.mutex.Unlock()
	if len(drains) == 0 {
		return listener.Close()
	}
	for _, d := range drains {
		if !d.asked.Swap(true) {
			go func(d *drain) {
				select {
				case <-ctx.Done():
				case <-d.ended:
				}
				close(d.limit)
			}(d)
			d.begin()
		}
	}
	for _, d := range drains {
		<-d.ended
		if err == nil && d.err != nil {
			err = d.err
		}
	}
	return err
}

// isStopped tells whether Shutdown was called. `a` may be nil.
func (a *acceptor) isStopped() bool {
	if a == nil {
		return false
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.stopped
}

// Serve accepts all peers, and answers their requests with `handler` until ctx is done, or
// [Listener.Shutdown] is called. Then it stops listening, takes leave of its clients, lets the handlers finish as [Endpoint.Serve] does,
// and returns nil. It does the same, and returns an error, if the listener was closed by
// somebody else or by a failure. ErrBusy means that not all handlers have ended.
func (listener *Listener) Serve(ctx context.Context, handler Handler) error {
	const op = "serve"
	if handler == nil {
		return errorf(op, ErrInvalid, "the handler is nil")
	}
	a, err := listener.valid(op)
	if err != nil {
		if listener != nil && listener.acceptor.isStopped() {
			return nil
		}
		return err
	}
	serving, end := context.WithCancelCause(ctx)
	defer end(nil)
	d := &drain{begin: func() { end(nil) }, limit: make(chan struct{}), ended: make(chan struct{})}
	a.mutex.Lock()
	if a.stopped {
		a.mutex.Unlock()
		return nil
	}
	if a.drains == nil {
		a.drains = map[*drain]struct{}{}
	}
	a.drains[d] = struct{}{}
	a.mutex.Unlock()
	letGo := keep(a.poller) // its clients take leave when the listener is closed
	d.err = listener.serve(serving, end, d, handler)
	letGo()
	a.mutex.Lock()
	delete(a.drains, d)
	a.mutex.Unlock()
	close(d.ended)
	return d.err
}

// serve is Serve. `serving` is what Serve's ctx or Shutdown ends, and `end` is told why it has ended otherwise.
func (listener *Listener) serve(serving context.Context, end context.CancelCauseFunc, d *drain, handler Handler) error {
	var clients sync.WaitGroup
	busy := make(chan error, 1) // of the first client whose handlers do not end
	for {
		request, err := listener.AcceptRequest(serving)
		if err != nil {
			listener.Close()
			if serving.Err() != nil {
				err = nil
			}
			end(err)
			clients.Wait()
			select {
			case unended := <-busy:
				if err == nil {
					err = unended
				}
			default:
			}
			return err
		}
		clients.Add(1)
		go func() {
			defer clients.Done()
			if err := serveClient(serving, d, request, handler); err != nil {
				select {
				case busy <- err:
				default:
				}
			}
		}()
	}
}

// serveClient serves one client until ctx is done or the connection has ended. The error: some of its handlers have not ended.
func serveClient(ctx context.Context, d *drain, request *ConnectRequest, handler Handler) error {
	endpoint, err := request.Accept(ctx)
	if err != nil {
		if ctx.Err() == nil {
			Warn(err.Error())
		}
		return nil
	}
	defer endpoint.Close()
	err = endpoint.serve(ctx, d, handler)
	if ctx.Err() != nil {
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		endpoint.Shutdown(grace)
	}
	if errors.Is(err, ErrBusy) {
		return err
	}
	return nil
}
