// message.go: what travels over channels: buffers, transfers, and how they gather for the poller.

package copyrpc

/*
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Buffer is a part of a [Region] with a tag. Messages are sent from buffers and received into them.
// A message goes into the first free buffer with its tag, of the oldest message that is not
// complete. A buffer must be left alone until its transfer is done. The zero Buffer is empty and
// has no memory. Queues use no tags.
type Buffer struct {
	Region *Region
	Offset int
	Length int
	Tag    uint32
}

// Slice returns the part of the region from `low` to `high`, as a slice expression of its Bytes
// would.
func (r *Region) Slice(low, high int) Buffer {
	return Buffer{Region: r, Offset: low, Length: high - low}
}

// Tagged returns the same buffer with a tag.
func (buffer Buffer) Tagged(tag uint32) Buffer {
	buffer.Tag = tag
	return buffer
}

// Bytes returns the memory of the buffer; nil after the region was closed.
func (buffer Buffer) Bytes() []byte {
	memory := buffer.Region.Bytes()
	if memory == nil {
		return nil
	}
	return memory[buffer.Offset : buffer.Offset+buffer.Length]
}

// op fills in what C wants to know of the buffer.
func (buffer Buffer) op(name string, p *poller, op *ChannelOp) (problem *Error) {
	op.Tag = buffer.Tag
	op.Region, op.Address, problem = buffer.place(name, p)
	op.Bytes = uint64(buffer.Length)
	return problem
}

// place tells where the buffer is; of an empty one without a Region, nowhere.
func (buffer Buffer) place(name string, p *poller) (RegionHandle, uint64, *Error) {
	if buffer.Length < 0 || buffer.Offset < 0 {
		return 0, 0, errorf(name, ErrInvalid, "a buffer of %d bytes at %d", buffer.Length, buffer.Offset)
	}
	if buffer.Region == nil || buffer.Region.region == nil {
		if buffer.Length > 0 {
			return 0, 0, errorf(name, ErrInvalid, "a buffer of %d bytes without a Region: make one with NewRegion", buffer.Length)
		}
		return 0, 0, nil
	}
	own := buffer.Region.region
	switch {
	case own.poller != p:
		return 0, 0, errorf(name, ErrInvalid, "the Region is one of another Context: make it with NewRegion of this one")
	case own.closed.Load():
		return 0, 0, errorf(name, ErrClosed, "the Region was closed")
	case buffer.Length > BufferBytesMax:
		return 0, 0, errorf(name, ErrTooBig, "a buffer of %d bytes; it has at most %d", buffer.Length, BufferBytesMax)
	case buffer.Offset > len(own.memory) || buffer.Length > len(own.memory)-buffer.Offset:
		return 0, 0, errorf(name, ErrInvalid, "the buffer ends at %d; its Region has %d bytes", buffer.Offset+buffer.Length, len(own.memory))
	}
	return own.handle, own.info.Address + uint64(buffer.Offset), nil
}

// TruncatedError is an [ErrTruncated]: a message was longer than the receive buffer. No part of it
// was sent, and both sides get this error.
type TruncatedError struct {
	Op    string
	Sizes []int // of each buffer: what the sender had
	Room  []int // of each buffer, at the receiving side; nil at the sending one, which is not told
}

func (e *TruncatedError) Error() string { return e.plain().Error() }

// Unwrap returns what errors.Is and errors.As examine.
func (e *TruncatedError) Unwrap() error { return e.plain() }

func (e *TruncatedError) plain() *Error {
	for i, room := range e.Room {
		if e.Sizes[i] > room {
			return errorf(e.Op, ErrTruncated, "a message of %d bytes was to go into a buffer of %d", e.Sizes[i], room)
		}
	}
	return errorf(e.Op, ErrTruncated, "the message of %d bytes is longer than the peer's buffer", e.Sizes[0])
}

// ---- Transfers ----------------------------------------------------------------------------------

// Transfer is a posted send or receive. All methods may be called from any goroutine.
type Transfer struct {
	channel *channel
	id      uint64 // of its ops: the user_data is id << groupShift | index
	op      string
	regions []*region     // of the buffers that have one
	room    []int         // of each buffer
	sizes   []int         // likewise, when it is done
	left    int           // ops without a completion
	status  Status        // of them, the worst
	reason  *Error        // of the channel's end, if that ended it
	over    atomic.Bool   // all is written that is above
	done    chan struct{} // closed after that
	staging *region       // to be given back when it is done and nobody waits any more; guarded by the channel's mutex
}

const groupShift = 3 // 1 << 3 is GroupMax

// Test returns whether the transfer is done, without waiting, and how it ended. Repeated tests let
// other goroutines run.
func (t *Transfer) Test() (done bool, err error) {
	if !t.over.Load() {
		runtime.Gosched()
		if !t.over.Load() {
			return false, nil
		}
	}
	return true, t.result()
}

// Done returns a Go channel that is closed when the transfer is done.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Wait waits until the transfer or ctx is done, and returns how the transfer ended. If ctx is done
// first, the transfer goes on, and its buffers stay in use.
func (t *Transfer) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.result()
	default:
	}
	select {
	case <-t.done:
		return t.result()
	case <-ctx.Done():
		return contextError(t.op, ctx)
	}
}

// Sizes returns exactly how many bytes each buffer got; nil until the transfer is done. With
// [ErrTruncated], it returns the lengths that the sender had.
func (t *Transfer) Sizes() []int {
	if !t.over.Load() {
		return nil
	}
	return t.sizes
}

// Cancel ends a send that still waits for its receive: it fails with ErrCanceled. A send under way
// finishes. A receive cannot be canceled, because the peer may be writing to its buffers: it ends
// with a message, or with the channel.
func (t *Transfer) Cancel() {
	if t.op != opSend || t.over.Load() {
		return
	}
	t.channel.cancel(t.id)
}

func (t *Transfer) result() error {
	switch {
	case t.status == OK:
		return nil
	case t.status == ErrTruncated && t.op == opSend:
		return &TruncatedError{Op: t.op, Sizes: t.sizes}
	case t.status == ErrTruncated:
		return &TruncatedError{Op: t.op, Sizes: t.sizes, Room: t.room}
	}
	if t.reason != nil {
		return t.reason
	}
	return newError(t.op, t.status)
}

// failAll ends what is left of it, with the channel. Its mutex is held, here and in the functions below.
func (t *Transfer) failAll(reason *Error) {
	t.left, t.reason = 1, reason.toOps(t.op)
	t.finishOne(0, t.reason.Status, t.sizes[0])
}

// finishOne writes down what became of one buffer; true if it was the last.
func (t *Transfer) finishOne(index int, status Status, bytes int) bool {
	t.sizes[index] = bytes
	if status != OK && (t.status == OK || t.status == ErrTruncated) {
		t.status = status
	}
	t.left--
	if t.left > 0 {
		return false
	}
	for _, own := range t.regions {
		own.users.Add(-1)
	}
	t.over.Store(true)
	close(t.done)
	return true
}

func (c *channel) completed(userData uint64, status Status, bytes int) {
	t := c.transfers[userData>>groupShift]
	if t != nil && t.finishOne(int(userData&(GroupMax-1)), status, bytes) {
		delete(c.transfers, t.id)
		if t.staging != nil && !c.keepStaging(t.staging) {
			go t.staging.close()
		}
	}
}

// ---- Posting ------------------------------------------------------------------------------------

const (
	opSend    = "send"
	opReceive = "receive"
)

// PostSend sends a buffer, and does not wait. The buffer is sent when the peer has posted a receive
// with its tag.
func (ch *Channel) PostSend(buffer Buffer) (*Transfer, error) {
	return ch.post(opSend, []Buffer{buffer}, 0)
}

// PostReceive posts 1 to 8 buffers for the next message, and does not wait. Each buffer takes what
// is sent with its tag. The message is sent when there is data for all of them.
func (ch *Channel) PostReceive(buffers ...Buffer) (*Transfer, error) {
	return ch.post(opReceive, buffers, 0)
}

// Send sends a buffer, and waits until the peer has it. If the peer receives it in a group, Send
// also waits for the rest of the group. The deadline of ctx limits how long the send may wait for
// its receive. Canceling ctx cancels a send that still waits; a send under way finishes. When Send
// returns, the buffer may be used again.
func (ch *Channel) Send(ctx context.Context, buffer Buffer) error {
	timeout, err := timeoutOf(ctx, opSend)
	if err != nil {
		return err
	}
	t, err := ch.post(opSend, []Buffer{buffer}, timeout)
	if err != nil {
		return err
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		t.Cancel()
		<-t.done
	}
	if t.status == ErrTimeout || t.status == ErrCanceled {
		return failure(ctx, opSend, int32(t.status), nil)
	}
	return t.result()
}

// Receive receives the next message into 1 to 8 buffers, waits for it, and returns exactly how many
// bytes each buffer got. A receive cannot be canceled: if ctx is done first, the buffers stay in
// use until a message has come or the channel has ended. To continue waiting after that, use
// PostReceive and Wait.
func (ch *Channel) Receive(ctx context.Context, buffers ...Buffer) ([]int, error) {
	if ctx.Err() != nil {
		return nil, contextError(opReceive, ctx)
	}
	t, err := ch.post(opReceive, buffers, 0)
	if err != nil {
		return nil, err
	}
	if err := t.Wait(ctx); err != nil {
		return nil, err
	}
	return t.sizes, nil
}

func (ch *Channel) post(name string, buffers []Buffer, timeout uint64) (*Transfer, error) {
	c, err := ch.valid(name)
	if err != nil {
		return nil, err
	}
	if len(buffers) == 0 {
		return nil, errorf(name, ErrInvalid, "a message needs a buffer, if only an empty one")
	}
	if len(buffers) > GroupMax {
		return nil, errorf(name, ErrTooBig, "%d buffers; a message has at most %d", len(buffers), GroupMax)
	}
	var ops [GroupMax]ChannelOp
	sizes := make([]int, 2*len(buffers))
	t := &Transfer{
		channel: c, op: name, left: len(buffers), done: make(chan struct{}),
		sizes: sizes[:len(buffers):len(buffers)], room: sizes[len(buffers):],
	}
	for i, buffer := range buffers {
		if problem := buffer.op(name, c.poller, &ops[i]); problem != nil {
			return nil, problem
		}
		t.room[i] = buffer.Length
		if ops[i].Region != 0 {
			t.regions = append(t.regions, buffer.Region.region)
		}
		ops[i].Channel = ChannelHandle(c.handle)
		if name == opSend {
			ops[i].Opcode, ops[i].TimeoutNs = ChannelSend, timeout
			continue
		}
		ops[i].Opcode = ChannelReceive
		if i < len(buffers)-1 {
			ops[i].Flags = ChannelMore
		}
	}
	return t, c.gather(t, ops[:len(buffers)])
}

// gather hands the ops of a transfer to the poller.
func (c *channel) gather(t *Transfer, ops []ChannelOp) error {
	c.mutex.Lock()
	if c.over || c.shut {
		defer c.mutex.Unlock()
		if !c.over {
			return newError(t.op, ErrClosing)
		}
		return c.reason.toOps(t.op)
	}
	for _, own := range t.regions {
		own.users.Add(1)
	}
	c.lastID++
	t.id = c.lastID
	c.transfers[t.id] = t
	queue := &c.sends
	if t.op == opReceive {
		queue = &c.receives
	}
	for i := range ops {
		ops[i].UserData = t.id<<groupShift | uint64(i)
		queue.open.add(&ops[i])
	}
	c.enlist()
	c.mutex.Unlock()
	c.poller.kick()
	return nil
}

// ---- The poller's side --------------------------------------------------------------------------

// opQueue is what gathers of one kind: `open` takes what comes, while `sending` goes to C, perhaps in several attempts. Receives and
// sends have one each, because either may wait for room, and the peer's room for the one may depend on the other.
type opQueue struct {
	open    opArray // guarded by the channel's mutex
	sending opArray // guarded by the poller's mutex, with the fields below
	sent    int     // ops of `sending` that are done with
	blocked bool    // CRPC_E_AGAIN; CompletionRoom will tell
}

// opArray is ops in C memory.
type opArray struct {
	ops   []ChannelOp // its length is the room
	count int
}

func (a *opArray) add(op *ChannelOp) {
	if a.count == len(a.ops) {
		a.ops = grown(a.ops, max(2*a.count, 16))
	}
	a.ops[a.count] = *op
	a.count++
}

func (q *opQueue) free() {
	C.free(unsafe.Pointer(unsafe.SliceData(q.open.ops)))
	C.free(unsafe.Pointer(unsafe.SliceData(q.sending.ops)))
	*q = opQueue{}
}

// send gives C what the channel has gathered.
func (c *channel) send() {
	c.mutex.Lock()
	c.queued = false
	if c.over {
		c.mutex.Unlock()
		return
	}
	c.carryOutCancels()
	c.mutex.Unlock()
	c.submit(&c.receives)
	c.submit(&c.sends)
	if c.leaving && !c.sends.blocked {
		c.leave()
	}
}

// submit sends all of a queue that there is room for.
func (c *channel) submit(q *opQueue) {
	for !q.blocked && c.take(q) {
		left := q.sending.ops[q.sent:q.sending.count]
		taken, reason := c.poller.raw.submitChannel(&left[0], len(left))
		q.sent += taken
		if reason == ErrAgain {
			q.blocked = true
		} else if reason != OK {
			q.sent += c.refused(left[taken:], reason)
		}
	}
}

// take makes what is open the array being sent, unless there is one; false if there is neither.
func (c *channel) take(q *opQueue) bool {
	if q.sent == q.sending.count {
		q.sending.count, q.sent = 0, 0
		c.mutex.Lock()
		q.open, q.sending = q.sending, q.open
		c.mutex.Unlock()
	}
	return q.sending.count > 0
}

// refused ends the transfer of the first op, and tells how many ops it has.
func (c *channel) refused(ops []ChannelOp, reason Status) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	id := ops[0].UserData >> groupShift
	count := 0
	for count < len(ops) && ops[count].UserData>>groupShift == id {
		c.completed(ops[count].UserData, reason, 0)
		count++
	}
	return count
}

// carryOutCancels ends the sends that C does not have yet, and tells C of the others. Both mutexes are held.
func (c *channel) carryOutCancels() {
	cancels := c.cancels
	c.cancels = nil
	for i, id := range cancels {
		if c.transfers[id] == nil {
			continue // it is done
		}
		userData := id << groupShift
		if c.sends.open.remove(0, userData) || c.sends.sending.remove(c.sends.sent, userData) {
			c.completed(userData, ErrCanceled, 0)
			continue
		}
		op := &c.poller.raw.ChannelOps[0]
		*op = ChannelOp{Opcode: ChannelCancel, Channel: ChannelHandle(c.handle), Token: userData}
		if _, reason := c.poller.raw.submitChannel(op, 1); reason == ErrAgain { // until the next poll
			c.cancels = append(c.cancels, cancels[i:]...)
			c.enlist()
			return
		}
	}
}

// remove takes an op out that was not submitted, of those from `first`.
func (a *opArray) remove(first int, userData uint64) bool {
	for i := first; i < a.count; i++ {
		if a.ops[i].UserData == userData {
			copy(a.ops[i:a.count], a.ops[i+1:a.count])
			a.count--
			return true
		}
	}
	return false
}
