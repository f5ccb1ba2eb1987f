// lasting.go: endpoints that connect again when their connection is lost. C does all of it; here is what becomes of the requests that came by
// a connection that has ended, and who is told.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"errors"
	"sync"
	"time"
)

// CompletionReconnecting is the kind of a [Completion] that says that the connection of an endpoint with [WithReconnect] has ended, or that
// an attempt to connect has failed. Its Status tells why; OK: the peer has taken leave. [RawContext.EndpointError] tells more.
const CompletionReconnecting = 16

// OpIdempotent is a flag of OpCall: see [Call.Idempotent].
const OpIdempotent = 8

var (
	_ = [1]struct{}{}[CompletionReconnecting-C.CRPC_COMPLETION_RECONNECTING]
	_ = [1]struct{}{}[OpIdempotent-C.CRPC_OP_IDEMPOTENT]
)

// WithReconnect has an endpoint connect again when its connection is lost, until it is closed. The address of Dial may then be several, with
// commas between them: it tries one after the other, and then pauses. `pause` is the first pause, and `pauseMax` the longest; 0 means 10 ms, and
// 5 s. Each is twice the one before, less up to a half at random. Dial waits for the first connection until its ctx is done, and then
// tells why the last attempt has failed.
//
// Calls that were not sent wait for the next connection, within their ctx. What was sent and not answered when a connection ends is sent again
// if it is [Call.Idempotent]; otherwise it fails with [ErrDisconnected]: nobody knows whether it was done. The endpoint goes on after that. The ctx
// of handlers is done when the connection has ended that their requests came by. An arena is to be lent again for each connection. For
// Dial and Connect; not with WithLane and WithServeOnly. docs/services.md.
func WithReconnect(pause, pauseMax time.Duration) Option {
	return func(s *settings) {
		s.endpoint.flags |= C.CRPC_ENDPOINT_RECONNECT
		s.endpoint.reconnect_pause_ns = s.time("the pause", pause)
		s.endpoint.reconnect_pause_max_ns = s.time("the longest pause", pauseMax)
	}
}

// ConnectionState is what has become of the connection of an endpoint with [WithReconnect].
type ConnectionState struct {
	Connected bool
	Ended     bool  // the endpoint is over: this is the last that is told
	Err       error // why there is no connection; nil if there is one
}

// WithConnectionState has `hear` told of each change of an endpoint with [WithReconnect]: that it is connected, that its connection has ended,
// that an attempt to connect has failed, and that it is over. It is called for one after the other, by a goroutine that holds nothing up.
func WithConnectionState(hear func(ConnectionState)) Option {
	return func(s *settings) { s.hear = hear }
}

// lasting is what a connection knows if it comes back.
type lasting struct {
	hear func(ConnectionState) // or nil

	// Guarded by the connection's mutex.
	was  bool         // connected
	why  *Error       // it is not connected now; nil: it is, or the first attempt is under way
	info EndpointInfo // as it was last

	mutex   sync.Mutex // comes after all others
	untold  []ConnectionState
	telling bool
}

func newLasting(s *settings) *lasting {
	if s.endpoint.flags&C.CRPC_ENDPOINT_RECONNECT == 0 {
		return nil
	}
	return &lasting{hear: s.hear}
}

// tell never waits.
func (l *lasting) tell(state ConnectionState) {
	if l.hear == nil {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.untold = append(l.untold, state)
	if !l.telling {
		l.telling = true
		go l.tellAll()
	}
}

func (l *lasting) tellAll() {
	for {
		l.mutex.Lock()
		states := l.untold
		l.untold, l.telling = nil, len(states) > 0
		l.mutex.Unlock()
		if len(states) == 0 {
			return
		}
		for _, state := range states {
			l.hear(state)
		}
	}
}

// note keeps how the endpoint is, for when it is over. The poller's mutex is held, here and below.
func (l *lasting) note(c *connection) {
	info, err := c.poller.raw.EndpointInfo(EndpointHandle(c.handle))
	if err != nil {
		return
	}
	info.State = StateDisconnected
	c.mutex.Lock()
	l.info = info
	c.mutex.Unlock()
}

// back is what the poller calls when there is a connection. It tells whether there was one before.
func (l *lasting) back(c *connection) bool {
	l.note(c)
	c.mutex.Lock()
	was := l.was
	l.was, l.why = true, nil
	c.mutex.Unlock()
	l.tell(ConnectionState{Connected: true})
	return was
}

// over: it does not come back.
func (l *lasting) over(c *connection, reason *Error) {
	l.note(c)
	l.tell(ConnectionState{Ended: true, Err: reason.during("endpoint")})
}

// reconnecting is what the poller calls for a CompletionReconnecting.
func (c *connection) reconnecting(status Status) {
	why := c.whyNot("endpoint", status)
	if why.Status == OK {
		why = errorf("endpoint", ErrDisconnected, "the peer has taken leave")
	}
	var ended []*made
	c.mutex.Lock()
	c.lasting.why = why
	s := &c.serving
	for request := s.open; request != nil; request = request.next {
		request.left.Store(int32(ErrDisconnected))
		if done := request.made.Load(); done != nil {
			ended = append(ended, done)
		}
	}
	forgotten := s.backlog
	s.backlog = nil
	for _, request := range forgotten {
		request.answered.set(ErrDropped)
		s.answered(request)
	}
	c.mutex.Unlock()
	for _, request := range forgotten {
		request.unplaced()
	}
	c.arena = nil
	for _, done := range ended {
		done.cancel(whyAbandoned(ErrDisconnected))
	}
	c.lasting.tell(ConnectionState{Err: why})
}

// lost tells whether the connection that the request came by has ended, and its endpoint has gone on.
func (request *Request) lost() bool { return Status(request.left.Load()) == ErrDisconnected }

func whyLost(op string) *Error {
	return errorf(op, ErrDisconnected, "the connection that the request came by has ended")
}

// whyNotYet is what Dial tells if ctx was done before there was a connection: why the last attempt has failed, if one has.
func (c *connection) whyNotYet(err error) error {
	var given *Error
	if c.lasting == nil || !errors.As(err, &given) || len(given.causes) == 0 {
		return err
	}
	c.mutex.Lock()
	why := c.lasting.why
	c.mutex.Unlock()
	if why == nil {
		return err
	}
	told := why.during(given.Op)
	told.causes = given.causes
	return told
}

// requestBytesMax is the longest request that may fit. That of the next connection is not known: then C says what did not fit.
func (c *connection) requestBytesMax() int {
	if c.lasting != nil {
		return ringBytesMax
	}
	return c.limits.RequestBytesMax
}

// ringBytesMax: no ring is larger.
const ringBytesMax = 1 << 30

// takeLeave begins to disconnect, so that the peer knows that what is dropped from now on is for another server.
func (c *connection) takeLeave() {
	_ = c.poller.control("shutdown", func() error {
		if c.over {
			return nil
		}
		return c.poller.raw.Disconnect(EndpointHandle(c.handle), Forever)
	})
}

// attemptWithin is `within`, for what does not connect again: how long each attempt may take does not depend on how long Dial waits.
func (s *settings) attemptWithin(ctx context.Context) {
	if s.endpoint.flags&C.CRPC_ENDPOINT_RECONNECT == 0 {
		s.within(ctx)
	}
}
