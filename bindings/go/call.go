// call.go: calls, one or many, and what becomes of them.

package copyrpc

import (
	"context"
	"sync"
	"time"
)

// NoReplyBytes is the ReplyBytesMax of a call whose reply has no payload. It reserves no room for
// the reply.
const NoReplyBytes = -1

// Call is one call with all its parameters. Endpoint.Call is enough for calls that only have a
// payload.
type Call struct {
	Method        uint16 // any number; the peer's handler sees it
	Request       []byte
	ReplyBytesMax int // the longest reply that the peer may send; 0: the endpoint's default
	// It is sent when all ops of the lane that were posted before it have completed: the peer then finds what
	// writes have written. What is called later is sent behind it. If one of these ops fails while it waits, the
	// connection ends; one that has failed before is for the caller to see. docs/lanes.md.
	After bool
	// To do it twice is as to do it once. An endpoint with [WithReconnect] sends it again, if its connection has ended and nobody knows
	// whether it was done. Otherwise such a call fails with [ErrDisconnected].
	Idempotent bool
	// A part of a region, which is sent instead of the Request. The device reads it there: nothing is copied. It must not change
	// until the call has ended.
	From Buffer
	// Whose call it is, which the peer's handler can ask for ([Request.Trace]); nil: nobody is told. A peer of an older version is not told, and
	// so it is where the request and this together do not fit its ring. Not with [Endpoint.Reserve].
	Trace *Trace

	connection *connection // that an interceptor's call is made over
}

// PeerAddress is the address of the peer to which an interceptor's call is made: "" if it was connected by a [Blob], and of calls that are
// no interceptor's.
func (call *Call) PeerAddress() string { return call.connection.peerAddress() }

// Result is the result of one call of a batch.
type Result struct {
	Reply []byte
	Err   error // nil, *ReplyError or *Error

	status   int32
	finished bool
}

// A call is known to C by its user_data: the place in the table, the number within a batch, and a generation, by which a
// cancel that comes too late finds nothing.
const (
	indexShift      = 20
	generationShift = 40
	batchMax        = 1 << indexShift
	generationMask  = 1<<24 - 1
)

// pending is a caller that waits. It is one cache line, because a thousand of them are in use at once: what a call costs is
// mostly the memory that it touches and that has left the cache since the call before.
type pending struct {
	done   chan struct{} // of capacity 1: it gets one value for each use
	many   *many         // of a batch; nil: one call, and this is what became of it:
	status int32
	reply  []byte
	_      [64 - 48]byte
}

// many is what a batch adds to its caller's pending.
type many struct {
	results []Result
	left    int
	arena   []byte // of the replies, which live and die together
}

var pendings = sync.Pool{New: func() any { return &pending{done: make(chan struct{}, 1)} }}

type tableEntry struct {
	pending    *pending
	generation uint64
}

// callTable finds the caller of a user_data. Guarded by the connection's mutex.
type callTable struct {
	entries []tableEntry
	free    []uint32
}

// add gives the user_data of the first of the caller's calls.
func (t *callTable) add(p *pending) (uint64, bool) {
	if len(t.free) == 0 {
		if len(t.entries) == 1<<indexShift {
			return 0, false
		}
		t.entries = append(t.entries, tableEntry{})
		t.free = append(t.free, uint32(len(t.entries)-1))
	}
	index := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	entry := &t.entries[index]
	entry.pending = p
	entry.generation = (entry.generation + 1) & generationMask
	return entry.generation<<generationShift | uint64(index)<<indexShift, true
}

func (t *callTable) find(userData uint64) (*pending, uint32) {
	index := uint32(userData >> indexShift & (1<<indexShift - 1))
	if int(index) >= len(t.entries) || t.entries[index].generation != userData>>generationShift {
		return nil, 0
	}
	return t.entries[index].pending, index
}

// remove takes the caller out; whoever does has to tell it.
func (t *callTable) remove(index uint32) {
	t.entries[index].pending = nil
	t.free = append(t.free, index)
}

func (p *pending) wake() { p.done <- struct{}{} }

func (t *callTable) failAll(status Status) {
	for index := range t.entries {
		p := t.entries[index].pending
		if p == nil {
			continue
		}
		p.status = int32(status)
		if p.many != nil {
			p.many.fail(status)
		}
		t.remove(uint32(index))
		p.wake()
	}
}

func (m *many) fail(status Status) {
	for i := range m.results {
		if !m.results[i].finished {
			m.results[i].finished, m.results[i].status = true, int32(status)
		}
	}
}

// fail hands one result without a reply to its caller. The connection's mutex is held.
func (c *connection) fail(userData uint64, status Status) {
	if p, index := c.table.find(userData); p != nil && p.finish(userData, int32(status), nil) {
		c.table.remove(index)
		p.wake()
	}
}

// finish writes down one result; true if it was the caller's last. The view is copied: it ends with the next poll.
func (p *pending) finish(userData uint64, status int32, view []byte) bool {
	m := p.many
	if m == nil {
		p.status = status
		if status >= 0 {
			p.reply = append(make([]byte, 0, len(view)), view...)
		}
		return true
	}
	result := &m.results[userData&(batchMax-1)]
	if result.finished {
		return false
	}
	result.finished, result.status = true, status
	if status >= 0 {
		result.Reply = m.keep(view)
	}
	m.left--
	return m.left == 0
}

// keep copies a reply to memory that it shares with others of the batch.
func (m *many) keep(view []byte) []byte {
	if len(view) > cap(m.arena)-len(m.arena) {
		// For those that are left, if they are like this one; what is too small is left to those that it was for.
		m.arena = make([]byte, 0, len(view)*max(min(m.left, 4096/max(len(view), 1)), 1))
	}
	start := len(m.arena)
	m.arena = append(m.arena, view...)
	return m.arena[start:len(m.arena):len(m.arena)]
}

// ---- Calling ------------------------------------------------------------------------------------

// Call sends a request and waits for the reply, which belongs to the caller. The deadline of ctx is
// the deadline of the call. Canceling ctx cancels the call; the peer may or may not have acted
// then. Any number of goroutines may call at once.
func (endpoint *Endpoint) Call(ctx context.Context, request []byte) ([]byte, error) {
	if around := endpoint.around(); around != nil {
		return around(ctx, &Call{Request: request, connection: endpoint.connection})
	}
	return endpoint.one(ctx, 0, request, 0, 0, origin{bytes: len(request)}, nil)
}

// Do does the same as Call, with all parameters of a call.
func (endpoint *Endpoint) Do(ctx context.Context, call Call) ([]byte, error) {
	if around := endpoint.around(); around != nil {
		own := call // not call itself, which would leave the stack also where there are no interceptors
		own.connection = endpoint.connection
		return around(ctx, &own)
	}
	return endpoint.do(ctx, &call)
}

func (endpoint *Endpoint) do(ctx context.Context, call *Call) ([]byte, error) {
	from := origin{bytes: len(call.Request)}
	if call.From.Region != nil {
		c, err := endpoint.valid(opCall)
		if err != nil {
			return nil, err
		}
		if from, err = call.origin(opCall, c); err != nil {
			return nil, err
		}
	}
	flags, err := endpoint.flagsOf(ctx, opCall, call)
	if err != nil {
		return nil, err
	}
	return endpoint.one(ctx, call.Method, call.Request, call.ReplyBytesMax, flags, from, call.Trace)
}

const opCall = "call"

// flagsOf gives C's flags of a call. If it is to follow ops of the lane, C has these afterwards.
func (endpoint *Endpoint) flagsOf(ctx context.Context, op string, call *Call) (uint8, error) {
	if !call.After {
		return call.flags(), nil
	}
	c, err := endpoint.valid(op)
	if err != nil {
		return 0, err
	}
	return call.flags(), c.afterLane(ctx, op)
}

func (call *Call) flags() (flags uint8) {
	if call.After {
		flags = OpAfter
	}
	if call.Idempotent {
		flags |= OpIdempotent
	}
	return flags
}

func (endpoint *Endpoint) one(ctx context.Context, method uint16, request []byte, replyBytesMax int, flags uint8, from origin,
	trace *Trace) ([]byte, error) {
	if endpoint == nil || endpoint.connection == nil || endpoint.connection.closed.Load() {
		_, err := endpoint.valid(opCall)
		return nil, err
	}
	c := endpoint.connection
	timeout, err := timeoutOf(ctx, opCall)
	if err != nil {
		return nil, err
	}
	if !c.fits(from, replyBytesMax) {
		return nil, c.misfit(opCall, from, replyBytesMax)
	}
	p := pendings.Get().(*pending)
	c.mutex.Lock()
	userData, err := c.admit(opCall, p)
	if err != nil {
		c.mutex.Unlock()
		pendings.Put(p)
		return nil, err
	}
	c.gatherCall(userData, method, request, replyBytesMax, timeout, flags, from, trace)
	c.enlist()
	c.mutex.Unlock()
	c.poller.kick()
	reply, err := c.answerOf(ctx, p, userData)
	from.unuse()
	return reply, err
}

// answerOf waits for the reply to one call.
func (c *connection) answerOf(ctx context.Context, p *pending, userData uint64) ([]byte, error) {
	if done := ctx.Done(); done == nil {
		<-p.done
	} else {
		c.await(done, p, userData)
	}
	reply, status := p.reply, p.status
	p.reply = nil // the pool must not keep what is the caller's
	pendings.Put(p)
	if status != 0 {
		return nil, failure(ctx, opCall, status, reply)
	}
	return reply, nil
}

// CallBatch makes many calls at once, and waits until each has its reply or its error. It returns
// an error, and sends nothing, only if its arguments are wrong, ctx is done or the connection is
// over.
func (endpoint *Endpoint) CallBatch(ctx context.Context, requests [][]byte) ([]Result, error) {
	return endpoint.batch(ctx, len(requests), source{requests: requests})
}

// DoBatch does the same as CallBatch, with all parameters of each call.
func (endpoint *Endpoint) DoBatch(ctx context.Context, calls []Call) ([]Result, error) {
	return endpoint.batch(ctx, len(calls), source{calls: calls})
}

func (endpoint *Endpoint) batch(ctx context.Context, count int, from source) ([]Result, error) {
	const op = "call batch"
	c, err := endpoint.valid(op)
	if err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, nil
	}
	if count > batchMax {
		return nil, errorf(op, ErrTooBig, "%d calls; a batch has at most %d", count, batchMax)
	}
	if c.around != nil {
		return c.interceptedBatch(ctx, count, from), nil
	}
	timeout, err := timeoutOf(ctx, op)
	if err != nil {
		return nil, err
	}
	after := Call{}
	for i := 0; i < count; i++ {
		call := from.at(i)
		origin, err := call.origin(op, c)
		if err != nil {
			return nil, err
		}
		if !c.fits(origin, call.ReplyBytesMax) {
			return nil, c.misfit(op, origin, call.ReplyBytesMax)
		}
		after.After = after.After || call.After
	}
	if _, err := endpoint.flagsOf(ctx, op, &after); err != nil {
		return nil, err
	}
	results := make([]Result, count)
	p := pendings.Get().(*pending)
	p.many = &many{results: results, left: count}
	err = c.runMany(ctx, op, p, from, timeout)
	p.many = nil
	pendings.Put(p)
	if err != nil {
		return nil, err
	}
	for i := range results {
		if results[i].status != 0 {
			results[i].Err = failure(ctx, op, results[i].status, results[i].Reply)
			results[i].Reply = nil
		}
	}
	return results, nil
}

// runMany sends the calls of a batch and waits for all of them. An error: nothing was sent.
func (c *connection) runMany(ctx context.Context, op string, p *pending, from source, timeout uint64) error {
	c.mutex.Lock()
	userData, err := c.admit(op, p)
	if err != nil {
		c.mutex.Unlock()
		return err
	}
	var used []origin
	for i := range p.many.results {
		call := from.at(i)
		origin, _ := call.origin(op, c) // as before: what has been closed since is C's to refuse
		c.gatherCall(userData|uint64(i), call.Method, call.Request, call.ReplyBytesMax, timeout, call.flags(), origin, call.Trace)
		if origin.own != nil {
			used = append(used, origin)
		}
	}
	c.enlist()
	c.mutex.Unlock()
	c.poller.kick()
	c.await(ctx.Done(), p, userData)
	for _, origin := range used {
		origin.unuse()
	}
	return nil
}

// source is where the calls of one caller come from: one of the two.
type source struct {
	calls    []Call
	requests [][]byte
}

func (from source) at(i int) Call {
	if from.calls != nil {
		return from.calls[i]
	}
	return Call{Request: from.requests[i]}
}

// failure makes the error of a status that is not 0.
func failure(ctx context.Context, op string, number int32, reply []byte) error {
	if number > 0 {
		return &ReplyError{Status: Status(number), Payload: reply}
	}
	status := Status(number)
	if status == ErrTimeout {
		return deadlineError(op, ctx)
	}
	if status == ErrCanceled && ctx.Err() != nil {
		return contextError(op, ctx)
	}
	return newError(op, status)
}

// timeoutOf gives C's timeout for what is done within ctx, or why it is over already.
func timeoutOf(ctx context.Context, op string) (timeout uint64, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return 0, deadlineError(op, ctx)
		}
		timeout = uint64(left)
	}
	if ctx.Err() != nil {
		return 0, contextError(op, ctx)
	}
	return timeout, nil
}

// await waits for the caller's results, and if `canceled` comes first, sees to it that they come soon.
func (c *connection) await(canceled <-chan struct{}, p *pending, userData uint64) {
	select {
	case <-p.done:
	case <-canceled:
		c.cancel(userData)
		<-p.done
	}
}

// fits: whether a request from a region does, only C knows, which has heard of the peer's arena or has not.
func (c *connection) fits(request origin, replyBytesMax int) bool {
	return (request.own != nil || request.bytes <= c.requestBytesMax()) && replyBytesMax <= c.limits.ReplyBytesMax && replyBytesMax >= NoReplyBytes
}

// misfit tells what does not fit.
func (c *connection) misfit(op string, request origin, replyBytesMax int) error {
	if request.own == nil && request.bytes > c.requestBytesMax() {
		return errorf(op, ErrTooBig, "the request has %d bytes; this peer's ring takes at most %d: give it a larger one with WithRingBytes",
			request.bytes, c.requestBytesMax())
	}
	if replyBytesMax > c.limits.ReplyBytesMax {
		return errorf(op, ErrTooBig, "ReplyBytesMax is %d; this endpoint's ring takes at most %d: give it a larger one with WithRingBytes",
			replyBytesMax, c.limits.ReplyBytesMax)
	}
	return errorf(op, ErrInvalid, "ReplyBytesMax is %d; a number of bytes cannot be negative", replyBytesMax)
}

// admit gives a caller its user_data. The connection's mutex is held, here and in gatherCall.
func (c *connection) admit(op string, p *pending) (uint64, error) {
	if c.over {
		return 0, c.reason.toOps(op)
	}
	userData, ok := c.table.add(p)
	if !ok {
		return 0, errorf(op, ErrAgain, "%d callers wait on this endpoint already", len(c.table.entries))
	}
	return userData, nil
}

func (c *connection) gatherCall(userData uint64, method uint16, request []byte, replyBytesMax int, timeout uint64, flags uint8, from origin,
	trace *Trace) {
	replyBytes := c.replyBytesOf(replyBytesMax)
	place, offset := c.opened(&c.calls).next(request)
	*place = Op{
		Opcode: OpCall, Flags: flags, Method: method, Endpoint: EndpointHandle(c.handle), UserData: userData, PayloadOffset: offset,
		PayloadBytes: uint32(len(request)), ReplyBytesMax: replyBytes, TimeoutNs: timeout,
	}
	if from.own != nil {
		from.use(place)
	}
	if trace != nil {
		c.calls.open.trace(place, trace)
	}
}

// replyBytesOf is C's, of a Call's ReplyBytesMax.
func (c *connection) replyBytesOf(replyBytesMax int) uint32 {
	switch replyBytesMax {
	case NoReplyBytes:
		return 0
	case 0:
		return uint32(min(c.replyBytes, c.limits.ReplyBytesMax))
	}
	return uint32(replyBytesMax)
}

// opened gives the batch to add to; the connection's mutex is held, here and in enlist.
func (c *connection) opened(g *gather) *batch {
	if g.open == nil {
		g.open = c.poller.takeBatch()
	}
	return g.open
}

// ---- Canceling ----------------------------------------------------------------------------------

// carryOutCancels ends the calls that C does not have yet, and tells C of the others. Both mutexes are held.
func (c *connection) carryOutCancels() {
	for _, userData := range c.cancels {
		p, _ := c.table.find(userData)
		if p == nil {
			continue // it has its results
		}
		first := 0
		for _, g := range []struct {
			batch *batch
			first *int
		}{{c.calls.sending, &c.calls.sent}, {c.calls.open, &first}} {
			for i := *g.first; g.batch != nil && i < g.batch.count; {
				if own := g.batch.ops[i].UserData; own&^(batchMax-1) == userData {
					g.batch.remove(i)
					c.fail(own, ErrCanceled)
				} else {
					i++
				}
			}
		}
		if p, _ = c.table.find(userData); p == nil {
			continue
		}
		if p.many == nil {
			c.gatherCancel(userData)
			continue
		}
		for i := range p.many.results {
			if !p.many.results[i].finished {
				c.gatherCancel(userData | uint64(i))
			}
		}
	}
	c.cancels = c.cancels[:0]
}

func (c *connection) gatherCancel(userData uint64) {
	place, _ := c.opened(&c.answers).next(nil)
	*place = Op{Opcode: OpCancel, Endpoint: EndpointHandle(c.handle), Token: userData}
}
