// waiting.go: how long the callers of requests wait, and those who wait no more.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"time"
)

// CompletionAbandoned is the kind of a [Completion] that says that the caller of a request waits no more. Its Token is the
// request's, and its Status ErrCanceled or ErrTimeout.
const CompletionAbandoned = 15

var _ = [1]struct{}{}[CompletionAbandoned-C.CRPC_COMPLETION_ABANDONED]

// waiting is the context of a request. It ends with the handler's, and when the caller of the request waits no more. Most
// requests are answered before that, and few handlers look: so what makes a context costly is made when it is asked for.
type waiting Request

// made is what a context needs if somebody waits for its end.
type made struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // ends what its caller waits for
	stop   context.CancelFunc      // of the deadline's timer
}

func (w *waiting) Deadline() (time.Time, bool) {
	if w.deadline.IsZero() {
		return time.Time{}, false // Serve's has none: its end is not the handler's
	}
	return w.deadline, true
}

func (w *waiting) Done() <-chan struct{} { return w.make().ctx.Done() }

func (w *waiting) Err() error { return w.make().ctx.Err() }

func (w *waiting) Value(key any) any {
	if done := w.made.Load(); done != nil {
		return done.ctx.Value(key)
	}
	if w.left.Load() != int32(OK) {
		return w.make().ctx.Value(key)
	}
	return (*Request)(w).above().Value(key)
}

// above is the context that the request's is one of.
func (request *Request) above() context.Context {
	if request.handlers != nil {
		return request.handlers
	}
	return request.connection.serving.received()
}

// make makes what is missing, once.
func (w *waiting) make() *made {
	if done := w.made.Load(); done != nil {
		return done
	}
	above := (*Request)(w).above()
	c := w.connection
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if done := w.made.Load(); done != nil {
		return done
	}
	done := &made{stop: func() {}}
	done.ctx, done.cancel = context.WithCancelCause(above)
	if !w.deadline.IsZero() {
		done.ctx, done.stop = context.WithDeadlineCause(done.ctx, w.deadline, whyAbandoned(ErrTimeout))
	}
	if left := Status(w.left.Load()); left != OK {
		done.cancel(whyAbandoned(left))
	}
	w.made.Store(done)
	return done
}

func whyAbandoned(status Status) error {
	if status == ErrTimeout {
		return errorf("serve", ErrTimeout, "the caller's deadline has passed: it waits for the answer no more")
	}
	if status == ErrDisconnected {
		return whyLost("serve")
	}
	return errorf("serve", ErrCanceled, "the caller has canceled its call: it waits for the answer no more")
}

// Context ends when the caller of the request waits for the answer no more: it has canceled its call, or its deadline has passed, which the
// Deadline of the context tells; and when the connection has ended. [context.Cause] tells which: an [Error] with ErrCanceled,
// ErrTimeout or another status. It is what Serve gives a handler as ctx, and ends with that, too. With a peer that does not tell such
// things, only the connection's end does.
func (request *Request) Context() context.Context { return (*waiting)(request) }

// abandoned is what the poller calls for a CompletionAbandoned.
func (c *connection) abandoned(completion *Completion) {
	c.mutex.Lock()
	request := c.serving.open
	for request != nil && request.token != completion.Token {
		request = request.next
	}
	var done *made
	if request != nil {
		request.left.Store(completion.Status)
		done = request.made.Load()
	}
	c.mutex.Unlock()
	if done != nil {
		done.cancel(whyAbandoned(Status(completion.Status)))
	}
}

// useless tells whether nobody waits for the answer any more.
func (request *Request) useless() bool {
	return request.left.Load() != int32(OK) || (!request.deadline.IsZero() && !time.Now().Before(request.deadline))
}

// endContext ends the context of a request that was answered.
func (request *Request) endContext() {
	if done := request.made.Load(); done != nil {
		done.cancel(nil)
		done.stop()
	}
}
