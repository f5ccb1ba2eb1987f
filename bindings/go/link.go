// link.go: what endpoints, channels and queues have in common: being made, being over, and those who wait for either.

package copyrpc

import (
	"context"
	"sync"
	"sync/atomic"
)

// link is the part of a connection, a channel or a queue that does not depend on what travels over it.
type link struct {
	self      service
	kind      linkKind
	poller    *poller
	handle    uint64        // of its endpoint, channel or queue
	id        uint64        // the user_data of that
	op        string        // of how it is being made, for errors
	connected chan struct{} // closed when it is
	gone      chan struct{} // closed when it is over
	release   func()        // tells a shared context that it has a user less; nil: it is no shared one
	closed    atomic.Bool   // by this side

	mutex   sync.Mutex // guards what follows, of callers and poller
	queued  bool       // in the poller's queue
	over    bool       // the poller's mutex is held, too, when it is set: either is enough to read it
	reason  *Error     // why it is over
	cancels []uint64   // of calls or transfers, for C to hear of
}

// service is what a connection, a channel and a queue each do in a way of their own. The poller's mutex is held in all of it.
type service interface {
	begun(s *settings)    // C has made it: now the poller must know it
	readLimits()          // it is connected: now C knows what was agreed on
	finish(reason *Error) // closes it and ends all that waits for it
	send()                // gives C what has gathered
}

// ---- Being made ---------------------------------------------------------------------------------

func (l *link) init(p *poller, op string, release func()) {
	l.poller, l.op, l.release = p, op, release
	l.connected, l.gone = make(chan struct{}), make(chan struct{})
}

// start makes it in the context that the settings name. `talk` tells C, and sets the handle.
func (l *link) start(op string, s *settings, talk func() error) error {
	p, release, err := takeContext(op, s, l.kind)
	if err != nil {
		return err
	}
	l.init(p, op, release)
	if err = l.begin(op, s, talk); err != nil {
		letGo(release)
	}
	return err
}

func (l *link) begin(op string, s *settings, talk func() error) error {
	return l.poller.control(op, func() error {
		l.id = l.poller.newID()
		if err := talk(); err != nil {
			return err
		}
		l.self.begun(s)
		return nil
	})
}

// dial connects to "host:port", and waits until that is done, refused, or ctx is done.
func (l *link) dial(ctx context.Context, op, address string, options []Option) error {
	s, err := settingsOf(op, options)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return contextError(op, ctx)
	}
	err = l.start(op, s, func() (err error) {
		s.attemptWithin(ctx)
		l.handle, err = l.poller.raw.connect(l.kind, op, address, l.id, s)
		return err
	})
	if err != nil {
		return err
	}
	if err = l.established(ctx); err != nil {
		letGo(l.release)
	}
	return err
}

// established waits until it is connected, or over; if ctx is done before that, it is given up.
func (l *link) established(ctx context.Context) error {
	select {
	case <-l.connected:
	case <-l.gone:
	case <-ctx.Done():
		l.end(newError(l.op, ErrCanceled))
		return contextError(l.op, ctx)
	}
	select {
	case <-l.connected:
		return nil
	default: // over before it was connected
	}
	if l.reason.Status == ErrTimeout && ended(ctx) {
		return contextError(l.op, ctx)
	}
	return l.reason
}

// shown gives callers what they have of a link that is connected, unless `err` says why it is not.
func shown[T any](l *link, object *T, name string, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	warnIfLost(object, l.open, name, l.op)
	return object, nil
}

// ---- What the poller hears ----------------------------------------------------------------------

func (l *link) connectedWith(status Status) {
	if status != OK {
		l.self.finish(l.whyNot(l.op, status))
		return
	}
	l.self.readLimits()
	close(l.connected)
}

func (l *link) disconnected(status Status) {
	if status == OK {
		l.self.finish(errorf("", ErrDisconnected, "both sides have taken leave"))
		return
	}
	l.self.finish(l.whyNot("", status))
}

func (l *link) whyNot(op string, status Status) *Error {
	if e := l.poller.raw.failure(l.kind, op, l.handle); e != nil {
		return e
	}
	return newError(op, status)
}

// ---- Being over ---------------------------------------------------------------------------------

// overWith notes why it is over; false if it was already. Both mutexes are held.
func (l *link) overWith(reason *Error) bool {
	if l.over {
		return false
	}
	l.over, l.reason = true, reason
	return true
}

// shutdown has `leave` begin to take leave, unless there is nobody left to take leave of, and waits until it is over or ctx is done.
func (l *link) shutdown(ctx context.Context, op string, leave func() error) error {
	err := l.poller.control(op, func() error {
		if l.over {
			return nil
		}
		return leave()
	})
	if err != nil {
		return err
	}
	select {
	case <-l.gone:
		return nil
	case <-ctx.Done():
		return contextError(op, ctx)
	}
}

// end is finish from outside of the poller; nothing happens if it is over.
func (l *link) end(reason *Error) {
	l.poller.control("close", func() error {
		if !l.over {
			l.self.finish(reason)
		}
		return nil
	})
}

// close is Close. Only the first one counts.
func (l *link) close(why string) {
	if !l.closed.Swap(true) {
		l.letGo(why)
	}
}

// letGo ends it by this side, and tells a shared context.
func (l *link) letGo(why string) {
	l.end(&Error{Status: ErrClosed, Message: why})
	letGo(l.release)
}

// open tells whether it still holds something of the machine: what is over does not, unless the context that it shares waits for its
// Close.
func (l *link) open() bool {
	if l.closed.Load() || l.poller.closed.Load() {
		return false
	}
	select {
	case <-l.gone:
		return l.release != nil
	default:
		return true
	}
}

// alreadyOver is the Done of what was never connected.
var alreadyOver = closedChannel()

func closedChannel() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}

// err is Err: why it is over, nil while it is not.
func (l *link) err(op string) error {
	select {
	case <-l.gone:
		return l.why(op)
	default:
		return nil
	}
}

// why gives the reason of what is over, for what was attempted now.
func (l *link) why(op string) error {
	<-l.gone
	return l.reason.during(op)
}

// ---- Asking -------------------------------------------------------------------------------------

// infoOf asks C about a link that is not over. Of one that is, `limits` tell how it was.
func infoOf[H ~uint64, T any](l *link, limits T, ask func(*RawContext, H) (T, error)) (info T, err error) {
	info = limits
	l.poller.control("info", func() error {
		if !l.over {
			info, err = ask(l.poller.raw, H(l.handle))
		}
		return nil
	})
	return info, err
}

// countersOf reads the counters of a link; of one that is over, the last.
func countersOf[H ~uint64, T any](l *link, op string, last *T, ask func(*RawContext, H) (T, error)) (counters T, err error) {
	err = l.poller.control(op, func() (err error) {
		if l.over {
			counters = *last
			return nil
		}
		counters, err = ask(l.poller.raw, H(l.handle))
		return err
	})
	return counters, err
}

// ---- What gathers -------------------------------------------------------------------------------

// enlist has the poller visit; if it sleeps, it must be kicked too. The link's mutex is held.
func (l *link) enlist() {
	if !l.queued && !l.over {
		l.queued = true
		l.poller.enlist(l.self)
	}
}

func (l *link) enlistLocking() {
	l.mutex.Lock()
	l.enlist()
	l.mutex.Unlock()
}

// cancel has the poller end the calls of a caller, or a transfer; each still gets its result.
func (l *link) cancel(id uint64) {
	l.mutex.Lock()
	l.cancels = append(l.cancels, id)
	l.enlist()
	l.mutex.Unlock()
	l.poller.kick()
}
