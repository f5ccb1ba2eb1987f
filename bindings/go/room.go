// room.go: payloads of calls and replies that are written in place, in the ring that the NIC sends from.

package copyrpc

import "context"

// Reservation is room in an endpoint's send ring for one payload: see [Endpoint.Reserve]. One goroutine at a time uses it.
type Reservation struct {
	connection *connection
	request    *Request // that it answers; nil: it is for a call
	status     Status   // with which
	pending    *pending // of a call
	userData   uint64
	memory     []byte
	sent       bool // a call, for whose reply nobody has waited
}

const opReserve = "reserve"

// Reserve reserves `bytes` of room for the request of a call, to be written to Bytes; nothing is copied then. The call has neither
// a Request nor a From, no After and no Trace. Commit sends it, and Abort gives the room up: one of them must follow. Until then the
// endpoint sends nothing: what others call and reply meanwhile waits. So it has one reservation at most, and another one gives
// ErrBusy. Reserve does not wait: ErrAgain means that there is no room now, which Call and Do would wait for.
func (endpoint *Endpoint) Reserve(call Call, bytes int) (*Reservation, error) {
	c, err := endpoint.valid(opReserve)
	if err != nil {
		return nil, err
	}
	if len(call.Request) > 0 || call.From.Region != nil || call.After || call.Trace != nil {
		return nil, errorf(opReserve, ErrInvalid, "the payload of a reserved call is written to its room, follows no ops of the lane, and has no Trace")
	}
	if from := (origin{bytes: bytes}); bytes < 0 || !c.fits(from, call.ReplyBytesMax) {
		return nil, c.misfit(opReserve, from, call.ReplyBytesMax)
	}
	r := &Reservation{connection: c, pending: pendings.Get().(*pending)}
	c.mutex.Lock()
	r.userData, err = c.admit(opReserve, r.pending)
	replyBytes := c.replyBytesOf(call.ReplyBytesMax)
	c.mutex.Unlock()
	if err != nil {
		pendings.Put(r.pending)
		return nil, err
	}
	err = r.begin(Op{Opcode: OpCall, Flags: call.flags(), Method: call.Method, UserData: r.userData, PayloadBytes: uint32(bytes), ReplyBytesMax: replyBytes})
	if err != nil {
		r.forget()
		return nil, err
	}
	return r, nil
}

// Reserve reserves `bytes` of room for the reply to the request, as [Endpoint.Reserve] does for a call. The request is answered by
// Commit. After Abort it is unanswered. Handlers run side by side: after ErrBusy, which means that another one has the room, and after
// ErrAgain, answer with a reply that is copied, as by returning it.
func (request *Request) Reserve(status Status, bytes int) (*Reservation, error) {
	c := request.connection
	switch {
	case c == nil || request.answered.isSet():
		return nil, errorf(opReserve, ErrStale, "this Request was answered already, or is none")
	case request.lost():
		return nil, whyLost(opReserve)
	case status < 0 || bytes < 0:
		return nil, errorf(opReserve, ErrInvalid, "the status is %d, and the reply has %d bytes; neither is below 0", status, bytes)
	case bytes > request.ReplyBytesMax:
		return nil, errorf(opReserve, ErrTooBig, "the reply has %d bytes; the caller accepts at most %d", bytes, request.ReplyBytesMax)
	}
	r := &Reservation{connection: c, request: request, status: status}
	err := r.begin(Op{Opcode: OpReply, Flags: OpQuiet, Status: int32(status), Token: request.token, PayloadBytes: uint32(bytes)})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// begin sends what has gathered, which goes first, and asks C.
func (r *Reservation) begin(op Op) error {
	c := r.connection
	p := c.poller
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if c.closed.Load() || p.closed.Load() {
		return newError(opReserve, ErrClosed)
	}
	if c.room != nil {
		return errorf(opReserve, ErrBusy, "room is reserved on this endpoint already: Commit or Abort comes first")
	}
	c.send()
	if c.over {
		return c.reason.toOps(opReserve)
	}
	if c.blocked || c.calls.sending != nil || c.answers.sending != nil {
		return newError(opReserve, ErrAgain)
	}
	op.Endpoint = EndpointHandle(c.handle)
	memory, status := p.raw.Reserve(op)
	if status != OK {
		return newError(opReserve, status)
	}
	r.memory, c.room = memory, r
	return nil
}

// Bytes is the room, in C memory; nil after Commit and Abort, after which nobody may use it. Closing the endpoint or the context ends
// it, too; that the peer has gone does not.
func (r *Reservation) Bytes() []byte { return r.memory }

// end lets the endpoint send again, or lets C have it, if the connection has ended meanwhile. The poller's mutex is held.
func (r *Reservation) end() {
	c := r.connection
	r.memory, c.room = nil, nil
	if c.over {
		c.poller.raw.CloseEndpoint(EndpointHandle(c.handle))
		return
	}
	c.enlistLocking()
}

// Commit sends the first `bytes` of the room. If this is a call, Wait must follow. ErrTooBig means that it is more than was reserved:
// the room then stays. Otherwise the room is gone, whatever comes of it; after another error, there is nothing to wait for.
func (r *Reservation) Commit(bytes int) error {
	const op = "commit"
	c := r.connection
	p := c.poller
	p.mutex.Lock()
	if p.closed.Load() || c.room != r {
		closed := r.memory != nil // by the application, and with it the room
		p.mutex.Unlock()
		if !closed {
			return errorf(op, ErrState, "the reservation was committed or given up before")
		}
		r.memory = nil
		r.forget()
		return newError(op, ErrClosed)
	}
	status := p.raw.Commit(EndpointHandle(c.handle), bytes)
	if status == ErrTooBig || status == ErrInvalid {
		p.mutex.Unlock()
		return newError(op, status)
	}
	over := c.over
	r.end()
	p.mutex.Unlock()
	p.kick()
	switch {
	case r.request != nil && status == OK:
		r.request.answered.set(r.status)
		c.mutex.Lock()
		c.serving.answered(r.request)
		c.mutex.Unlock()
	case status != OK:
		r.forget()
		if over {
			return c.reason.toOps(op)
		}
		return newError(op, status)
	default:
		r.sent = true
	}
	return nil
}

// Wait waits for the reply to a call that was committed, as Do does: until ctx is done, which cancels the call. It is called once.
func (r *Reservation) Wait(ctx context.Context) ([]byte, error) {
	if !r.sent {
		return nil, errorf("wait", ErrState, "no call was committed, or its reply was waited for before")
	}
	pending := r.pending
	r.pending, r.sent = nil, false
	return r.connection.answerOf(ctx, pending, r.userData)
}

// Abort gives the room up, as if it had never been reserved. After Commit, it does nothing.
func (r *Reservation) Abort() error {
	c := r.connection
	p := c.poller
	p.mutex.Lock()
	if p.closed.Load() || c.room != r {
		p.mutex.Unlock()
		r.memory = nil
		r.forget()
		return nil
	}
	p.raw.Abort(EndpointHandle(c.handle))
	r.end()
	p.mutex.Unlock()
	p.kick()
	r.forget()
	return nil
}

// forget takes a call that was not sent out of the table, unless the end of the connection has.
func (r *Reservation) forget() {
	if r.pending == nil || r.sent {
		return
	}
	c := r.connection
	c.mutex.Lock()
	found, index := c.table.find(r.userData)
	if found == r.pending {
		c.table.remove(index)
	}
	c.mutex.Unlock()
	if found != r.pending {
		<-r.pending.done
	}
	pendings.Put(r.pending)
	r.pending = nil
}
