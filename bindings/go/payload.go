// payload.go: payloads of calls and replies that the device reads from a region.

package copyrpc

// origin is where an op's payload is, if the device reads it from a region: then `own` is not nil.
type origin struct {
	own    *region
	offset uint64
	bytes  int
}

// originOf checks a part of a region from which a payload is to be sent.
func (c *connection) originOf(op string, from Buffer) (origin, error) {
	_, address, problem := from.place(op, c.poller)
	if problem != nil {
		return origin{}, problem
	}
	own := from.Region.region
	return origin{own: own, offset: address - own.info.Address, bytes: from.Length}, nil
}

// originOf of a call; without From, the payload is the Request.
func (call *Call) origin(op string, c *connection) (origin, error) {
	switch {
	case call.From.Region == nil:
		return origin{bytes: len(call.Request)}, nil
	case len(call.Request) > 0:
		return origin{}, errorf(op, ErrInvalid, "a call has a Request, or a part of a region (From), and not both")
	case call.After:
		return origin{}, errorf(op, ErrInvalid, "a call From a region cannot follow the ops of a lane")
	}
	return c.originOf(op, call.From)
}

// use names the payload in an op that is being filled. The region stays until unuse.
func (from origin) use(op *Op) {
	op.Flags |= OpRegion
	op.Region, op.PayloadOffset, op.PayloadBytes = from.own.handle, from.offset, uint32(from.bytes)
	from.own.users.Add(1)
}

// unuse: the op has ended.
func (from origin) unuse() {
	if from.own != nil {
		from.own.users.Add(-1)
	}
}

// ReplyBuffer answers the request with a part of a region, which the device reads there: nothing is copied. (Less than 2 KiB is
// copied all the same.) The caller sees the status, 0 or above, as with ReplyStatus. ReplyBuffer returns when the device has the
// payload; then the memory may change.
func (request *Request) ReplyBuffer(status Status, from Buffer) error {
	const op = "reply"
	if status < 0 {
		return errorf(op, ErrInvalid, "the status is %d; those below 0 are the library's", status)
	}
	if request.connection != nil && from.Region != nil && from.Length > request.ReplyBytesMax {
		return errorf(op, ErrTooBig, "the reply has %d bytes; the caller accepts at most %d", from.Length, request.ReplyBytesMax)
	}
	c := request.connection
	if c == nil {
		return errorf(op, ErrStale, "this Request was answered already, or is none")
	}
	if from.Region == nil {
		return errorf(op, ErrInvalid, "a reply from a Buffer needs a Region: Reply has other payloads")
	}
	where, err := c.originOf(op, from)
	if err != nil {
		return err
	}
	if !request.answered.set(status) {
		return errorf(op, ErrStale, "this Request was answered already, or is none")
	}
	p := pendings.Get().(*pending)
	c.mutex.Lock()
	c.serving.answered(request)
	if request.lost() {
		c.mutex.Unlock()
		pendings.Put(p)
		return whyLost(op)
	}
	userData, err := c.admit(op, p)
	if err != nil {
		c.mutex.Unlock()
		pendings.Put(p)
		return err
	}
	place, _ := c.opened(&c.answers).next(nil)
	*place = Op{Opcode: OpReply, Status: int32(status), Endpoint: EndpointHandle(c.handle), UserData: userData, Token: request.token}
	where.use(place)
	c.enlist()
	c.mutex.Unlock()
	c.poller.kick()
	<-p.done
	where.unuse()
	ended := Status(p.status)
	pendings.Put(p)
	if ended != OK {
		return newError(op, ended)
	}
	return nil
}

// replied tells who waits that its reply has ended.
func (c *connection) replied(done *Completion) {
	c.mutex.Lock()
	p, index := c.table.find(done.UserData)
	if p != nil {
		c.table.remove(index)
	}
	c.mutex.Unlock()
	if p != nil {
		p.finish(0, done.Status, nil)
		p.reply = nil
		p.wake()
	}
}
