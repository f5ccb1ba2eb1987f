// link.go: what connections and channels have in common: being made, being over, and those who wait for either.

package copyrpc

import (
	"context"
	"sync"
	"sync/atomic"
)

type link struct {
	poller    *poller
	id        uint64        // the user_data of its endpoint or channel
	op        string        // of how it is being made, for errors
	connected chan struct{} // closed when it is, or can't be
	gone      chan struct{} // closed when it is over
	release   func()        // tells a shared context that it has a user less; nil: it is no shared one
	closed    atomic.Bool   // by this side

	mutex  sync.Mutex // guards what follows
	queued bool       // in the poller's queue
	over   bool
	reason *Error // why it is over
}

func (l *link) init(p *poller, op string, release func()) {
	l.poller, l.op, l.release = p, op, release
	l.connected, l.gone = make(chan struct{}), make(chan struct{})
}

// established waits until it is connected, or over; `end` gives it up if ctx is done before that.
func (l *link) established(ctx context.Context, end func(*Error)) error {
	select {
	case <-l.connected:
	case <-l.gone:
	case <-ctx.Done():
		end(newError(l.op, ErrCanceled))
		return contextError(l.op, ctx)
	}
	select {
	case <-l.connected:
		return nil
	default: // over before it was connected
	}
	if l.reason.Status == ErrTimeout && ctx.Err() != nil {
		return contextError(l.op, ctx)
	}
	return l.reason
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

// overWith notes why it is over; false if it was already. Its mutex is held.
func (l *link) overWith(reason *Error) bool {
	if l.over {
		return false
	}
	l.over, l.reason = true, reason
	return true
}

// why gives the reason of what is over, for what was attempted now.
func (l *link) why(op string) error {
	<-l.gone
	return l.reasonFor(op)
}

func (l *link) reasonFor(op string) error {
	e := *l.reason
	e.Op = op
	return &e
}
