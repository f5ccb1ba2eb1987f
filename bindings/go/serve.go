// serve.go: requests of the peer, and answering them.

package copyrpc

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Request is one request of the peer. It must be answered once, with Reply or Drop; Serve does that
// for its handler.
type Request struct {
	Method        uint16
	Payload       []byte // a copy: it may be kept; of a request that is Placed, the memory where it has landed
	ReplyBytesMax int    // the longest reply that its caller accepts

	connection     *connection
	token          uint64
	answered       answerState
	trace          atomic.Pointer[Trace] // nil: nobody has asked C; &untraced: there is none
	place          uint64                // where the Payload is in the arena; 0 = it is a copy
	arena          *region               // of that
	kept, released atomic.Bool
	deadline       time.Time       // when its caller waits no more; zero: it has not said
	handlers       context.Context // of those that Serve runs; nil: it is Receive's
	left           atomic.Int32    // why its caller waits no more, or OK: a Status; stored under the connection's mutex
	made           atomic.Pointer[made]
	open, handled  bool // it is in serving.open, and has a handler; guarded by the connection's mutex, with the two below
	next, previous *Request
}

// Handler answers a request. It runs in a goroutine of its own. Its result is the reply. An error
// becomes a reply with StatusUnknown and the error's text. One of [Errorf], or any *ReplyError, also one that is
// wrapped, becomes a reply with its status and payload, and so does a bare status above 0. A panic becomes a
// reply with StatusUnknown, and Warn reports it. ctx is done when the caller of the request waits no more, as [Request.Context] says,
// when the connection has ended, or when Serve has ended and the handler has had its grace ([WithGrace]); context.Cause tells which. It has
// the values of Serve's ctx. A handler is not run for a request whose caller has gone before.
type Handler func(ctx context.Context, request *Request) ([]byte, error)

// DefaultGrace is how long handlers may go on when Serve has ended, unless [WithGrace] says
// otherwise.
const DefaultGrace = 5 * time.Second

// canceledGrace is how long Serve waits for handlers that were canceled, before it answers for them.
const canceledGrace = time.Second

// serving is the part of a connection that is about requests. Guarded by the connection's mutex.
type serving struct {
	handler   Handler
	ctx       context.Context
	cancel    context.CancelCauseFunc
	running   *sync.WaitGroup
	admission *admission    // not changed after `begun`
	open      *Request      // the first of those that nobody has answered
	refuses   bool          // Serve has ended: nobody will take a request that comes now
	receivers int           // that wait in Receive
	backlog   []*Request    // that nobody has taken
	arrived   chan struct{} // made by the first who waits; of capacity 1

	receivedOnce sync.Once // what the contexts of requests end with that are Receive's:
	receivedCtx  context.Context
	endReceived  context.CancelCauseFunc
}

// received ends when the connection has. No mutex is needed.
func (s *serving) received() context.Context {
	s.receivedOnce.Do(func() { s.receivedCtx, s.endReceived = context.WithCancelCause(context.Background()) })
	return s.receivedCtx
}

// stop tells the handlers that the connection is over, and why.
func (s *serving) stop(reason *Error) {
	if s.cancel != nil {
		s.cancel(reason.during("serve"))
	}
	s.received()
	s.endReceived(reason.during("receive"))
}

// list notes a request that has come. The connection's mutex is held, here and in the two below.
func (s *serving) list(request *Request) {
	request.open, request.next, s.open = true, s.open, request
	if request.next != nil {
		request.next.previous = request
	}
}

// handle begins to handle a request; false if that would be one too many.
func (s *serving) handle(request *Request) bool {
	if !s.admission.enter() {
		return false
	}
	request.handled, request.handlers = true, s.ctx
	s.running.Add(1)
	go request.handle(s.handler, s.running, s.admission)
	return true
}

// answered forgets a request whose answer is known.
func (s *serving) answered(request *Request) {
	if !request.open {
		return
	}
	if request.previous != nil {
		request.previous.next = request.next
	} else {
		s.open = request.next
	}
	if request.next != nil {
		request.next.previous = request.previous
	}
	request.open, request.handled, request.next, request.previous = false, false, nil, nil
}

// request is what the poller calls for a CompletionRequest.
func (c *connection) request(completion *Completion) {
	request := &Request{
		Method: completion.Method, ReplyBytesMax: int(completion.ReplyBytesMax), connection: c, token: completion.Token,
	}
	if completion.Flags&CompletionPlaced != 0 {
		request.placed(completion, c)
	} else {
		request.Payload = append([]byte{}, completion.View()...)
	}
	if completion.UserData != 0 {
		request.deadline = time.Now().Add(time.Duration(completion.UserData))
	}
	if c.wantsTraces.Load() {
		request.trace.Store(c.poller.raw.traceOf(EndpointHandle(c.handle), request.token))
	}
	c.mutex.Lock()
	s := &c.serving
	s.list(request)
	refuses, overload := s.refuses, false
	switch {
	case s.handler != nil:
		overload = !s.handle(request)
	case !refuses:
		s.backlog = append(s.backlog, request)
		if s.arrived != nil {
			signal(s.arrived)
		}
	}
	c.mutex.Unlock()
	if refuses {
		request.unplaced()
		request.DropNotStarted()
	} else if overload {
		request.unplaced()
		request.overload()
	}
}

// fail answers a request for which there is no handler's result.
func (request *Request) fail(status Status, why string) {
	request.ReplyStatus(status, shortened(why, request.ReplyBytesMax))
}

// Serve answers the peer's requests with `handler`, including those that came before, until ctx is
// done or the connection has ended; in the latter case it returns why.
//
// When ctx is done, requests that come later are refused: their callers get
// ErrNotStarted, until Serve or Receive is called again. Handlers that are running may finish
// for as long as [WithGrace] says. Then their ctx is canceled. The callers of those that do not end
// within a second after that get StatusUnknown. Serve returns nil if all handlers have ended,
// and else ErrBusy: it has no means to end those.
func (endpoint *Endpoint) Serve(ctx context.Context, handler Handler) error {
	return endpoint.serve(ctx, nil, handler)
}

func (endpoint *Endpoint) serve(ctx context.Context, d *drain, handler Handler) error {
	const op = "serve"
	c, err := endpoint.valid(op)
	if err != nil {
		return err
	}
	if handler == nil {
		return errorf(op, ErrInvalid, "the handler is nil")
	}
	handlers, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var running sync.WaitGroup
	var overload []*Request
	c.mutex.Lock()
	if c.serving.handler != nil {
		c.mutex.Unlock()
		return errorf(op, ErrBusy, "this Endpoint is being served already")
	}
	if !c.over {
		s := &c.serving
		s.handler, s.ctx, s.cancel, s.running, s.refuses = handler, handlers, cancel, &running, false
		for _, request := range s.backlog {
			if !s.handle(request) {
				overload = append(overload, request)
			}
		}
		s.backlog = nil
	}
	c.mutex.Unlock()
	for _, request := range overload {
		request.Release()
		request.overload()
	}
	select {
	case <-ctx.Done():
		err = nil
		if d != nil { // the service ends, and with it the connection
			c.takeLeave()
		}
	case <-c.gone:
		err = c.why(op)
	}
	c.mutex.Lock()
	c.serving.handler, c.serving.refuses = nil, c.serving.receivers == 0
	c.mutex.Unlock()
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	if err != nil { // the handlers know that the connection is over
		select {
		case <-done:
			return err
		case <-ctx.Done():
		}
	}
	if busy := c.endHandlers(op, d, done, cancel); err == nil {
		err = busy
	}
	return err
}

// endHandlers gives the handlers time to finish, cancels those that take longer, and answers for those that do not end. `done` is
// closed when all have ended.
func (c *connection) endHandlers(op string, d *drain, done <-chan struct{}, cancel context.CancelCauseFunc) error {
	begun := time.Now()
	if d.within(done, c.grace) {
		return nil
	}
	cancel(errorf(op, ErrCanceled, "Serve ended %v ago, and the handler has not", time.Since(begun).Round(time.Millisecond)))
	if within(done, canceledGrace) {
		return nil
	}
	var left []*Request
	c.mutex.Lock()
	for request := c.serving.open; request != nil; request = request.next {
		if request.handled {
			left = append(left, request)
		}
	}
	c.mutex.Unlock()
	for _, request := range left {
		request.fail(StatusUnknown, "the handler does not end, although it was canceled")
	}
	return errorf(op, ErrBusy, "not all handlers have ended, although they were canceled %v ago: they must watch their ctx", canceledGrace)
}

// Receive waits for a request of the peer. It is an alternative to Serve, without a handler. If Serve
// has ended before, requests are no longer refused. What nobody waits for any more it skips.
func (endpoint *Endpoint) Receive(ctx context.Context) (*Request, error) {
	const op = "receive"
	c, err := endpoint.valid(op)
	if err != nil {
		return nil, err
	}
	s := &c.serving
	c.mutex.Lock()
	s.refuses = false
	s.receivers++
	if s.arrived == nil {
		s.arrived = make(chan struct{}, 1)
	}
	c.mutex.Unlock()
	defer func() {
		c.mutex.Lock()
		s.receivers--
		c.mutex.Unlock()
	}()
	for {
		c.mutex.Lock()
		if len(s.backlog) > 0 {
			request := s.backlog[0]
			s.backlog = s.backlog[1:]
			if len(s.backlog) > 0 {
				signal(s.arrived)
			}
			c.mutex.Unlock()
			if request.useless() {
				request.Release()
				request.DropNotStarted()
				continue
			}
			return request, nil
		}
		c.mutex.Unlock()
		select {
		case <-s.arrived:
		case <-c.gone:
			return nil, c.why(op)
		case <-ctx.Done():
			return nil, contextError(op, ctx)
		}
	}
}

// ---- Answering ----------------------------------------------------------------------------------

// Reply answers the request. The payload may be reused at once. Reply returns ErrTooBig if the
// caller does not accept such a long reply; the request then stays unanswered. It returns ErrStale
// if the request was answered before.
func (request *Request) Reply(payload []byte) error { return request.ReplyStatus(0, payload) }

// ReplyStatus does the same as Reply, with a status of the application, 0 or above. The caller sees
// it as a *ReplyError.
func (request *Request) ReplyStatus(status Status, payload []byte) error {
	const op = "reply"
	if status < 0 {
		return errorf(op, ErrInvalid, "the status is %d; those below 0 are the library's", status)
	}
	return request.reply(op, Op{Opcode: OpReply, Flags: OpQuiet, Status: int32(status)}, payload)
}

func (request *Request) reply(op string, answer Op, payload []byte) error {
	if len(payload) > request.ReplyBytesMax {
		return errorf(op, ErrTooBig, "the reply has %d bytes; the caller accepts at most %d", len(payload), request.ReplyBytesMax)
	}
	return request.answer(op, answer, payload)
}

// ReplyAfter does the same as Reply, but the answer is sent when all ops of the lane that were posted before it
// have completed: see [Call].
func (request *Request) ReplyAfter(ctx context.Context, payload []byte) error {
	const op = "reply"
	if request.connection != nil {
		if err := request.connection.afterLane(ctx, op); err != nil {
			return err
		}
	}
	return request.reply(op, Op{Opcode: OpReply, Flags: OpQuiet | OpAfter}, payload)
}

// Drop drops the request without an answer. Its caller gets ErrDropped.
func (request *Request) Drop() error {
	return request.answer("drop", Op{Opcode: OpDrop, Flags: OpQuiet}, nil)
}

// DropNotStarted says that nothing was done of the request, as this side is about to stop, or has too much to do. Its caller gets
// ErrNotStarted, and may send it again, here or elsewhere.
func (request *Request) DropNotStarted() error {
	return request.answer("drop", Op{Opcode: OpDrop, Flags: OpQuiet, Status: int32(ErrNotStarted)}, nil)
}

func (request *Request) answer(op string, answer Op, payload []byte) error {
	c := request.connection
	if c == nil || !request.answered.set(answer.tells()) {
		return errorf(op, ErrStale, "this Request was answered already, or is none")
	}
	c.mutex.Lock()
	c.serving.answered(request)
	if c.over {
		c.mutex.Unlock()
		return c.reason.toOps(op)
	}
	if request.lost() {
		c.mutex.Unlock()
		return whyLost(op)
	}
	place, offset := c.opened(&c.answers).next(payload)
	if len(payload) > 0 {
		answer.PayloadOffset, answer.PayloadBytes = offset, uint32(len(payload))
	}
	answer.Endpoint, answer.Token = EndpointHandle(c.handle), request.token
	*place = answer
	c.enlist()
	c.mutex.Unlock()
	c.poller.kick()
	return nil
}

// Answered tells whether the request was answered, and with what: OK or a status of the application, as the caller sees it, or ErrDropped or
// ErrNotStarted. Serve answers when the handler has returned, so an interceptor sees what a handler has answered by itself.
func (request *Request) Answered() (Status, bool) { return request.answered.get() }

// PeerAddress is the address of the peer that sent the request; "" if it was connected by a [Blob].
func (request *Request) PeerAddress() string { return request.connection.peerAddress() }

// answerState is the status that a request was answered with, once it was.
type answerState struct{ value atomic.Uint64 } // 0: it was not; otherwise 1, and then the 32 bits of the status

// set is false if there was an answer before.
func (a *answerState) set(status Status) bool {
	return a.value.CompareAndSwap(0, 1<<32|uint64(uint32(status)))
}

func (a *answerState) get() (Status, bool) {
	value := a.value.Load()
	return Status(uint32(value)), value != 0
}

func (a *answerState) isSet() bool { return a.value.Load() != 0 }

// tells is the status of an answer.
func (op *Op) tells() Status {
	if op.Opcode == OpDrop && op.Status == 0 {
		return ErrDropped
	}
	return Status(op.Status)
}

// handle runs the handler and sends what it returned.
func (request *Request) handle(handler Handler, running *sync.WaitGroup, admission *admission) {
	defer running.Done()
	defer admission.leave()
	defer func() {
		if !request.kept.Load() {
			request.Release()
		}
	}()
	defer request.endContext()
	if request.useless() {
		request.DropNotStarted() // which nobody hears
		return
	}
	reply, err := request.call(request.Context(), handler)
	if request.answered.isSet() {
		return // the handler did it by itself
	}
	if err == nil && len(reply) <= request.ReplyBytesMax {
		request.Reply(reply)
		return
	}
	if err == nil {
		err = fmt.Errorf("the reply has %d bytes; the caller accepts at most %d", len(reply), request.ReplyBytesMax)
	}
	status, reply := answerOf(err)
	request.ReplyStatus(status, reply[:min(len(reply), request.ReplyBytesMax)])
}

// call runs the handler and makes an error of its panic, or of its goroutine's end.
func (request *Request) call(ctx context.Context, handler Handler) (reply []byte, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		why := recover()
		if why == nil { // runtime.Goexit: nothing after this runs but deferred functions
			request.fail(StatusUnknown, "the handler ended its goroutine")
			return
		}
		Warn(fmt.Sprintf("a handler panicked: %v\n%s", why, debug.Stack()))
		reply, err = nil, fmt.Errorf("the handler panicked: %v", why)
	}()
	reply, err = handler(ctx, request)
	returned = true
	return reply, err
}

func shortened(text string, bytes int) []byte { return []byte(text)[:min(len(text), bytes)] }
