// call.go: calls, one or many, and what becomes of them.

package copyrpc

import (
	"context"
	"sync"
	"time"
)

// NoReplyBytes is the ReplyBytesMax of a call whose reply has no payload: nothing is set aside for it.
const NoReplyBytes = -1

// Call is one call in full; Endpoint.Call does for those that need only the payload.
type Call struct {
	Method        uint16 // any number; the peer's handler sees it
	Request       []byte
	ReplyBytesMax int // the longest reply that the peer may send; 0: the endpoint's default
}

// Result is what became of one call of a batch.
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

// pending is a caller that waits for one result or several.
type pending struct {
	done    chan struct{} // of capacity 1: it gets one value for each use
	single  [1]Result
	call    [1]Call
	results []Result
	left    int
	arena   []byte // of the replies of a batch, which live and die together
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

func (t *callTable) remove(index uint32) {
	p := t.entries[index].pending
	t.entries[index].pending = nil
	t.free = append(t.free, index)
	p.done <- struct{}{}
}

func (t *callTable) failAll(status Status) {
	for index := range t.entries {
		p := t.entries[index].pending
		if p == nil {
			continue
		}
		for i := range p.results {
			if !p.results[i].finished {
				p.results[i].finished, p.results[i].status = true, int32(status)
			}
		}
		t.remove(uint32(index))
	}
}

// complete hands one result to its caller. The view is copied: it ends with the next poll. The connection's mutex is held.
func (c *connection) complete(userData uint64, status int32, view []byte) {
	p, index := c.table.find(userData)
	if p == nil {
		return
	}
	result := &p.results[userData&(batchMax-1)]
	if result.finished {
		return
	}
	result.finished, result.status = true, status
	if status >= 0 {
		result.Reply = p.keep(view)
	}
	p.left--
	if p.left == 0 {
		c.table.remove(index)
	}
}

// keep copies a reply: of a single call to memory of its own, of a batch to memory shared with others of the batch.
func (p *pending) keep(view []byte) []byte {
	if len(p.results) == 1 {
		return append(make([]byte, 0, len(view)), view...)
	}
	if len(view) > cap(p.arena)-len(p.arena) {
		// For those that are left, if they are like this one; what is too small is left to those that it was for.
		p.arena = make([]byte, 0, len(view)*max(min(p.left, 4096/max(len(view), 1)), 1))
	}
	start := len(p.arena)
	p.arena = append(p.arena, view...)
	return p.arena[start:len(p.arena):len(p.arena)]
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

// ---- Calling ------------------------------------------------------------------------------------

// Call sends a request and waits for the reply, which is the caller's to keep. The deadline of ctx is the call's, and when
// ctx is canceled so is the call; whether the peer acted on it is then not known. Any number of goroutines may call.
func (endpoint *Endpoint) Call(ctx context.Context, request []byte) ([]byte, error) {
	return endpoint.Do(ctx, Call{Request: request})
}

// Do is Call with all that can be said about one.
func (endpoint *Endpoint) Do(ctx context.Context, call Call) ([]byte, error) {
	const op = "call"
	c, err := endpoint.valid(op)
	if err != nil {
		return nil, err
	}
	p := pendings.Get().(*pending)
	p.call[0] = call
	p.results, p.left = p.single[:], 1
	err = c.run(ctx, op, p, source{calls: p.call[:]})
	result := p.single[0]
	p.single[0], p.call[0] = Result{}, Call{} // the pool must not keep what is the caller's
	pendings.Put(p)
	if err != nil {
		return nil, err
	}
	if result.status != 0 {
		return nil, result.failure(ctx, op)
	}
	return result.Reply, nil
}

// CallBatch makes many calls at once and waits until each has its reply or its error. It fails as a whole, having sent
// nothing, only if what it was given is wrong, or ctx is done, or the connection is over.
func (endpoint *Endpoint) CallBatch(ctx context.Context, requests [][]byte) ([]Result, error) {
	return endpoint.batch(ctx, len(requests), source{requests: requests})
}

// DoBatch is CallBatch with all that can be said about each call.
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
	results := make([]Result, count)
	p := pendings.Get().(*pending)
	p.results, p.left = results, count
	err = c.run(ctx, op, p, from)
	p.results, p.arena = nil, nil
	pendings.Put(p)
	if err != nil {
		return nil, err
	}
	for i := range results {
		if results[i].status != 0 {
			results[i].Err = results[i].failure(ctx, op)
			results[i].Reply = nil
		}
	}
	return results, nil
}

// failure makes the error of a status that is not 0.
func (result *Result) failure(ctx context.Context, op string) error {
	if result.status > 0 {
		return &ReplyError{Status: result.status, Payload: result.Reply}
	}
	status := Status(result.status)
	if (status == ErrTimeout || status == ErrCanceled) && ctx.Err() != nil {
		return contextError(op, ctx)
	}
	e := newError(op, status)
	if status == ErrTimeout {
		e.cause = context.DeadlineExceeded // C's clock was ahead of the context's timer
	}
	return e
}

// run sends the calls of one caller and waits for all of them. An error: nothing was sent.
func (c *connection) run(ctx context.Context, op string, p *pending, from source) error {
	var timeout uint64
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			// The context's own timer may be a moment late to say so.
			return &Error{Op: op, Status: ErrTimeout, Message: ErrTimeout.Error(), cause: context.DeadlineExceeded}
		}
		timeout = uint64(left)
	}
	if ctx.Err() != nil {
		return contextError(op, ctx)
	}
	for i := range p.results {
		if err := c.check(op, from.at(i)); err != nil {
			return err
		}
	}
	userData, err := c.gatherCalls(op, p, from, timeout)
	if err != nil {
		return err
	}
	c.poller.kick()
	done := ctx.Done()
	if done == nil {
		<-p.done
		return nil
	}
	select {
	case <-p.done:
	case <-done:
		c.cancel(userData)
		<-p.done
	}
	return nil
}

func (c *connection) check(op string, call Call) error {
	if len(call.Request) > c.limits.RequestBytesMax {
		return errorf(op, ErrTooBig, "the request has %d bytes; this peer's ring takes at most %d: give it a larger one with WithRingBytes",
			len(call.Request), c.limits.RequestBytesMax)
	}
	if call.ReplyBytesMax > c.limits.ReplyBytesMax {
		return errorf(op, ErrTooBig, "ReplyBytesMax is %d; this endpoint's ring takes at most %d: give it a larger one with WithRingBytes",
			call.ReplyBytesMax, c.limits.ReplyBytesMax)
	}
	if call.ReplyBytesMax < NoReplyBytes {
		return errorf(op, ErrInvalid, "ReplyBytesMax is %d; a number of bytes cannot be negative", call.ReplyBytesMax)
	}
	return nil
}

func (c *connection) replyBytesOf(call Call) uint32 {
	switch call.ReplyBytesMax {
	case NoReplyBytes:
		return 0
	case 0:
		return uint32(min(c.replyBytes, c.limits.ReplyBytesMax))
	}
	return uint32(call.ReplyBytesMax)
}

func (c *connection) gatherCalls(op string, p *pending, from source, timeout uint64) (uint64, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.over {
		e := *c.reason
		e.Op = op
		return 0, &e
	}
	userData, ok := c.table.add(p)
	if !ok {
		return 0, errorf(op, ErrAgain, "%d callers wait on this endpoint already", len(c.table.entries))
	}
	b := c.opened(&c.calls)
	for i := range p.results {
		this := from.at(i)
		place, offset := b.next(this.Request)
		*place = Op{
			Opcode: OpCall, Method: this.Method, Endpoint: c.handle, UserData: userData | uint64(i),
			PayloadOffset: offset, PayloadBytes: uint32(len(this.Request)),
			ReplyBytesMax: c.replyBytesOf(this), TimeoutNs: timeout,
		}
	}
	c.enlist()
	return userData, nil
}

// opened gives the batch to add to; the connection's mutex is held, here and in enlist.
func (c *connection) opened(g *gather) *batch {
	if g.open == nil {
		g.open = c.poller.takeBatch()
	}
	return g.open
}

// enlist has the poller visit; if it sleeps, it must be kicked too.
func (c *connection) enlist() {
	if !c.queued && !c.over {
		c.queued = true
		c.poller.enlist(c)
	}
}

// ---- Canceling ----------------------------------------------------------------------------------

// cancel has the poller end the calls of a caller; each still gets its result.
func (c *connection) cancel(userData uint64) {
	c.mutex.Lock()
	c.cancels = append(c.cancels, userData)
	c.enlist()
	c.mutex.Unlock()
	c.poller.kick()
}

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
					c.complete(own, int32(ErrCanceled), nil)
				} else {
					i++
				}
			}
		}
		if p, _ = c.table.find(userData); p == nil {
			continue
		}
		for i := range p.results {
			if !p.results[i].finished {
				place, _ := c.opened(&c.answers).next(nil)
				*place = Op{Opcode: OpCancel, Endpoint: c.handle, Token: userData | uint64(i)}
			}
		}
	}
	c.cancels = c.cancels[:0]
}
