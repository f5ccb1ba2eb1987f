// serve.go: requests of the peer, and answering them.

package copyrpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Request is one request of the peer. It must be answered once, with Reply or Drop; Serve does that
// for its handler.
type Request struct {
	Method        uint16
	Payload       []byte // a copy: it may be kept
	ReplyBytesMax int    // the longest reply that its caller accepts

	connection *connection
	token      uint64
	answered   atomic.Bool
}

// Handler answers a request. It runs in a goroutine of its own. Its result is the reply. An error
// becomes a reply with StatusHandlerFailed and the error's text; a *ReplyError, also one that is
// wrapped, becomes a reply with its status and payload. A panic also becomes such a reply, and Warn reports it. ctx is done when
// Serve's ctx is done, or when the connection has ended.
type Handler func(ctx context.Context, request *Request) ([]byte, error)

// serving is the part of a connection that is about requests. Guarded by the connection's mutex.
type serving struct {
	handler Handler
	ctx     context.Context
	cancel  context.CancelFunc
	running *sync.WaitGroup
	backlog []*Request    // that nobody has taken
	arrived chan struct{} // made by the first who waits; of capacity 1
}

// stop tells the handlers that the connection is over.
func (s *serving) stop() {
	if s.cancel != nil {
		s.cancel()
	}
}

// request is what the poller calls for a CompletionRequest.
func (c *connection) request(completion *Completion) {
	request := &Request{
		Method: completion.Method, Payload: append([]byte{}, completion.View()...),
		ReplyBytesMax: int(completion.ReplyBytesMax), connection: c, token: completion.Token,
	}
	c.mutex.Lock()
	s := &c.serving
	if s.handler == nil {
		s.backlog = append(s.backlog, request)
		if s.arrived != nil {
			signal(s.arrived)
		}
		c.mutex.Unlock()
		return
	}
	s.running.Add(1)
	go request.handle(s.ctx, s.handler, s.running)
	c.mutex.Unlock()
}

// Serve answers the peer's requests with `handler`, including those that came before. It returns
// nil when ctx is done and all running handlers have ended. Otherwise it returns why the connection
// has ended.
func (endpoint *Endpoint) Serve(ctx context.Context, handler Handler) error {
	const op = "serve"
	c, err := endpoint.valid(op)
	if err != nil {
		return err
	}
	if handler == nil {
		return errorf(op, ErrInvalid, "the handler is nil")
	}
	handlerCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	c.mutex.Lock()
	if c.serving.handler != nil {
		c.mutex.Unlock()
		return errorf(op, ErrBusy, "this Endpoint is being served already")
	}
	if !c.over {
		s := &c.serving
		s.handler, s.ctx, s.cancel, s.running = handler, handlerCtx, cancel, &running
		for _, request := range s.backlog {
			running.Add(1)
			go request.handle(handlerCtx, handler, &running)
		}
		s.backlog = nil
	}
	c.mutex.Unlock()
	select {
	case <-ctx.Done():
		err = nil
	case <-c.gone:
		err = c.why(op)
	}
	c.mutex.Lock()
	c.serving.handler = nil
	c.mutex.Unlock()
	running.Wait()
	return err
}

// Receive waits for a request of the peer. It is an alternative to Serve, without a handler.
func (endpoint *Endpoint) Receive(ctx context.Context) (*Request, error) {
	const op = "receive"
	c, err := endpoint.valid(op)
	if err != nil {
		return nil, err
	}
	for {
		c.mutex.Lock()
		s := &c.serving
		if s.arrived == nil {
			s.arrived = make(chan struct{}, 1)
		}
		if len(s.backlog) > 0 {
			request := s.backlog[0]
			s.backlog = s.backlog[1:]
			if len(s.backlog) > 0 {
				signal(s.arrived)
			}
			c.mutex.Unlock()
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
func (request *Request) ReplyStatus(status int32, payload []byte) error {
	const op = "reply"
	if status < 0 {
		return errorf(op, ErrInvalid, "the status is %d; those below 0 are the library's", status)
	}
	if len(payload) > request.ReplyBytesMax {
		return errorf(op, ErrTooBig, "the reply has %d bytes; the caller accepts at most %d", len(payload), request.ReplyBytesMax)
	}
	return request.answer(op, Op{Opcode: OpReply, Flags: OpQuiet, Status: status}, payload)
}

// Drop drops the request without an answer. Its caller gets ErrDropped.
func (request *Request) Drop() error {
	return request.answer("drop", Op{Opcode: OpDrop, Flags: OpQuiet}, nil)
}

func (request *Request) answer(op string, answer Op, payload []byte) error {
	c := request.connection
	if c == nil || request.answered.Swap(true) {
		return errorf(op, ErrStale, "this Request was answered already, or is none")
	}
	c.mutex.Lock()
	if c.over {
		c.mutex.Unlock()
		return c.reason.during(op)
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

// handle runs the handler and sends what it returned.
func (request *Request) handle(ctx context.Context, handler Handler, running *sync.WaitGroup) {
	defer running.Done()
	reply, err := request.call(ctx, handler)
	if request.answered.Load() {
		return // the handler did it by itself
	}
	if err == nil && len(reply) <= request.ReplyBytesMax {
		request.Reply(reply)
		return
	}
	status := int32(StatusHandlerFailed)
	var own *ReplyError
	if err == nil {
		err = fmt.Errorf("the reply has %d bytes; the caller accepts at most %d", len(reply), request.ReplyBytesMax)
		reply = []byte(err.Error())
	} else if errors.As(err, &own) && own != nil && own.Status > 0 {
		status, reply = own.Status, own.Payload
	} else {
		reply = []byte(err.Error())
	}
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
			request.ReplyStatus(StatusHandlerFailed, shortened("the handler ended its goroutine", request.ReplyBytesMax))
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
