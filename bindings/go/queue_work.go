// queue_work.go: the ops of queues, and who waits for them.

package copyrpc

/*
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// Remote is a place in a peer's memory: an address, and the key of the region that contains it. The
// peer tells both, in a message of whatever kind.
type Remote struct {
	Address uint64
	Key     uint32
}

// At returns the place that is `offset` bytes further on.
func (remote Remote) At(offset int) Remote {
	remote.Address += uint64(offset)
	return remote
}

// Remote returns the place where the region begins, for peers of the queues of its context.
func (info RegionInfo) Remote() Remote { return Remote{Address: info.Address, Key: info.RemoteKey} }

// Received tells of a message.
type Received struct {
	Bytes          int // how much of the buffer was filled: 0 if a WriteImmediate took the receive
	Immediate      uint32
	HasImmediate   bool        // it came with one
	Invalidated    uint32      // the remote key that the peer has invalidated
	HasInvalidated bool        // it has
	Queue          QueueHandle // over which it came: of SharedReceives, which of their Queues
	Written        int         // how much the WriteImmediate that took the receive wrote elsewhere
	Unexpected     bool        // of TaggedReceives: it has a tag, and nothing matched. Its header is in the buffer
	completion     Completion  // of a datagram, for TargetOf; of a message to a DCT, for Source
}

// Source returns the number of the queue pair that has sent it, of a message to Datagrams; and of one to a DCT, or 0
// where the device does not say it.
func (r Received) Source() uint32 { return r.completion.Source() }

// Work is a posted op. All methods may be called from any goroutine.
type Work struct {
	op       string
	region   *region // of its buffer; nil: it has none
	userData uint64  // the caller's
	place    uint64  // in the table of the queue
	result   Completion
	reason   *Error         // of the queue's end, if that ended it
	inline   unsafe.Pointer // C memory with a copy of its payload; nil: none
	many     *batchWork     // of a QueueBatch; nil: this is of one op, and the result above is its
	over     atomic.Bool    // all is written that is above
	done     chan struct{}

	// Of TaggedReceives; see tag.go.
	tagged    *queue // nil: it is of another queue
	removes   *Work  // what a removal concerns
	unseen    int    // unexpected messages that nobody has asked for. Guarded by the queue's mutex
	abandoned bool   // nobody will ask for them. Likewise
}

// Done returns a Go channel that is closed when the op has completed.
func (w *Work) Done() <-chan struct{} { return w.done }

// Test returns whether the op has completed, without waiting, and how.
func (w *Work) Test() (done bool, err error) {
	if !w.over.Load() {
		return false, nil
	}
	return true, w.asked()
}

// Wait waits until the op or ctx is done, and returns the op's completion, with the UserData that it
// was posted with. If ctx is done first, the op goes on, and its buffer stays in use.
func (w *Work) Wait(ctx context.Context) (Completion, error) {
	select {
	case <-w.done:
		return w.result, w.asked()
	default:
	}
	select {
	case <-w.done:
		return w.result, w.asked()
	case <-ctx.Done():
		return Completion{}, contextError(w.op, ctx)
	}
}

// asked is err, for a program that asks.
func (w *Work) asked() error {
	if w.tagged != nil {
		w.look()
	}
	return w.err()
}

func (w *Work) err() error {
	if w.result.Status == 0 {
		return nil
	}
	if w.reason != nil {
		return w.reason
	}
	return workError(w.op, &w.result)
}

// workError is the error of a completion of an op that has failed.
func workError(op string, done *Completion) *Error {
	e := newError(op, Status(done.Status))
	e.VendorSyndrome = done.ReplyBytesMax
	return e
}

// completed notes what C says of it, and tells whether that was all. The queue's mutex is held, here and in failed.
func (w *Work) completed(done *Completion) bool {
	if w.many != nil {
		if !w.many.completed(done) {
			return false
		}
	} else {
		w.result = *done
		w.result.UserData = w.userData
	}
	w.end()
	return true
}

// failed ends all of it that is open.
func (w *Work) failed(reason *Error) {
	w.reason = reason.toOps(w.op)
	if w.many != nil {
		w.many.failed(0, len(w.many.ops), w.reason.Status)
	} else {
		w.result = Completion{Kind: CompletionWork, Status: int32(w.reason.Status), UserData: w.userData}
	}
	w.end()
}

func (w *Work) end() {
	if w.many != nil {
		w.many.batch.ended()
	}
	if w.region != nil {
		w.region.users.Add(-1)
	}
	if w.inline != nil {
		C.free(w.inline)
	}
	w.over.Store(true)
	close(w.done)
}

// workTable is the open ops of a queue, and its batches. Guarded by the queue's mutex.
type workTable struct {
	works []*Work // by place
	free  []uint64
}

// reserve gives it a place, at which it is not found yet.
func (table *workTable) reserve(w *Work) bool {
	if last := len(table.free) - 1; last >= 0 {
		w.place = table.free[last]
		table.free = table.free[:last]
		return true
	}
	if len(table.works) == 1<<placeBits {
		return false
	}
	w.place = uint64(len(table.works))
	table.works = append(table.works, nil)
	return true
}

func (table *workTable) remove(w *Work) {
	table.works[w.place] = nil
	table.free = append(table.free, w.place)
}

func (table *workTable) failAll(reason *Error) {
	for _, w := range table.works {
		if w != nil {
			w.failed(reason)
		}
	}
	*table = workTable{}
}

const placeMask = 1<<placeBits - 1

// completed spreads completions of ops of this queue. The poller's mutex is held.
func (q *queue) completed(completions []Completion) {
	q.mutex.Lock()
	for i := range completions {
		q.completedOne(&completions[i])
	}
	q.mutex.Unlock()
}

func (q *queue) completedOne(done *Completion) {
	place := done.UserData >> placeBits & placeMask
	if place >= uint64(len(q.works.works)) || q.works.works[place] == nil {
		return
	}
	w := q.works.works[place]
	if q.tags != nil {
		q.noteUnseen(w, done)
	}
	if w.completed(done) {
		q.works.remove(w)
	}
}

// ---- Posting ------------------------------------------------------------------------------------

// Post submits an op, and does not wait. Its local memory is the buffer; an op without any takes the
// zero Buffer. The fields Region, Address (but for QueueCompareSwap) and Bytes must be zero. For ops
// with the flags QueueInline and QueuePieces, use a [QueueBatch]. What there is no room for waits in
// the package, in the order of the posts; sends and receives do not wait for each other.
func (qp *Queue) Post(op QueueOp, buffer Buffer) (*Work, error) {
	const name = "post"
	q, err := qp.valid(name)
	if err != nil {
		return nil, err
	}
	if op.Flags&(QueueInline|QueuePieces) != 0 || op.Region != 0 || op.Bytes != 0 || op.Opcode != QueueCompareSwap && op.Address != 0 {
		return nil, errorf(name, ErrInvalid, "the memory of a posted op is a Buffer: use a QueueBatch for inline payloads and pieces")
	}
	return q.post(name, &op, buffer)
}

// PostReceive gives a buffer for one message of the peer, and does not wait.
func (qp *Queue) PostReceive(buffer Buffer) (*Work, error) {
	q, err := qp.valid(opReceive)
	if err != nil {
		return nil, err
	}
	return q.post(opReceive, &QueueOp{Opcode: QueueReceive}, buffer)
}

// PostReceive gives a buffer for one message to any of the Queues, and does not wait.
func (shared *SharedReceives) PostReceive(buffer Buffer) (*Work, error) {
	q, err := shared.valid(opReceive)
	if err != nil {
		return nil, err
	}
	return q.post(opReceive, &QueueOp{Opcode: QueueReceive}, buffer)
}

// do posts an op and waits for it.
func (qp *Queue) do(ctx context.Context, name string, op QueueOp, buffer Buffer) (Completion, error) {
	q, err := qp.valid(name)
	if err != nil {
		return Completion{}, err
	}
	return q.do(ctx, name, &op, buffer)
}

func (q *queue) do(ctx context.Context, name string, op *QueueOp, buffer Buffer) (Completion, error) {
	if ctx.Err() != nil {
		return Completion{}, contextError(name, ctx)
	}
	w, err := q.post(name, op, buffer)
	if err != nil {
		return Completion{}, err
	}
	if q.tags != nil {
		defer q.abandon(w)
	}
	return w.Wait(ctx)
}

// Send sends a buffer as one message, which takes a receive of the peer, and waits until the peer has
// it. An op cannot be canceled once it is posted, here and below: if ctx is done first, the op goes
// on, and its buffer stays in use until it has completed, or the queue has ended. A Region with such a
// buffer cannot be closed before that ([ErrBusy]).
func (qp *Queue) Send(ctx context.Context, buffer Buffer) error {
	_, err := qp.do(ctx, opSend, QueueOp{Opcode: QueueSend}, buffer)
	return err
}

// SendImmediate does the same as Send, with a number that the peer's receive shows.
func (qp *Queue) SendImmediate(ctx context.Context, buffer Buffer, immediate uint32) error {
	_, err := qp.do(ctx, opSend, QueueOp{Opcode: QueueSendImmediate, Immediate: immediate}, buffer)
	return err
}

// SendBytes sends a copy of a Go slice, of at most as many bytes as QueueOptions.InlineBytes says, as one
// message. The slice may change as soon as SendBytes has returned, whatever became of the op.
func (qp *Queue) SendBytes(ctx context.Context, data []byte) error {
	return qp.doBytes(ctx, opSend, QueueOp{Opcode: QueueSend}, data)
}

// WriteBytes writes a copy of a Go slice to the peer's memory. The rest is as with SendBytes.
func (qp *Queue) WriteBytes(ctx context.Context, data []byte, remote Remote) error {
	return qp.doBytes(ctx, "write", QueueOp{Opcode: QueueWrite, RemoteAddress: remote.Address, RemoteKey: remote.Key}, data)
}

// Write writes a buffer to the peer's memory, and waits until it is there. The peer is not told.
func (qp *Queue) Write(ctx context.Context, buffer Buffer, remote Remote) error {
	_, err := qp.do(ctx, "write", QueueOp{Opcode: QueueWrite, RemoteAddress: remote.Address, RemoteKey: remote.Key}, buffer)
	return err
}

// WriteImmediate does the same as Write, and then takes a receive of the peer, which shows the number.
func (qp *Queue) WriteImmediate(ctx context.Context, buffer Buffer, remote Remote, immediate uint32) error {
	_, err := qp.do(ctx, "write", QueueOp{Opcode: QueueWriteImmediate, RemoteAddress: remote.Address, RemoteKey: remote.Key,
		Immediate: immediate}, buffer)
	return err
}

// Read fills a buffer, whose Region needs LocalWrite, with what is in the peer's memory.
func (qp *Queue) Read(ctx context.Context, buffer Buffer, remote Remote) error {
	_, err := qp.do(ctx, "read", QueueOp{Opcode: QueueRead, RemoteAddress: remote.Address, RemoteKey: remote.Key}, buffer)
	return err
}

// CompareSwap replaces 8 bytes of the peer's memory by `swap` if they are equal to `compare`, and
// returns what was there before. The address must be a multiple of 8. If ctx is done first, the peer's
// memory may or may not have changed, and may change yet.
func (qp *Queue) CompareSwap(ctx context.Context, remote Remote, compare, swap uint64) (before uint64, err error) {
	done, err := qp.do(ctx, "compare and swap", QueueOp{Opcode: QueueCompareSwap, RemoteAddress: remote.Address, RemoteKey: remote.Key,
		Address: compare, Operand: swap}, Buffer{})
	return done.Token, err
}

// FetchAdd adds to 8 bytes of the peer's memory, and returns what was there before. The rest is as with
// CompareSwap.
func (qp *Queue) FetchAdd(ctx context.Context, remote Remote, add uint64) (before uint64, err error) {
	done, err := qp.do(ctx, "fetch and add", QueueOp{Opcode: QueueFetchAdd, RemoteAddress: remote.Address, RemoteKey: remote.Key,
		Operand: add}, Buffer{})
	return done.Token, err
}

// Receive gives a buffer, whose Region needs LocalWrite, for one message of the peer, and waits for the
// message. If ctx is done first, the buffer stays in use, and the message that comes into it is lost:
// to wait on after that, use PostReceive. Receives are filled in the order in which they are posted.
func (qp *Queue) Receive(ctx context.Context, buffer Buffer) (Received, error) {
	done, err := qp.do(ctx, opReceive, QueueOp{Opcode: QueueReceive}, buffer)
	return received(&done), err
}

// Receive does the same as [Queue.Receive], for a message of any of the Queues.
func (shared *SharedReceives) Receive(ctx context.Context, buffer Buffer) (Received, error) {
	q, err := shared.valid(opReceive)
	if err != nil {
		return Received{}, err
	}
	done, err := q.do(ctx, opReceive, &QueueOp{Opcode: QueueReceive}, buffer)
	return received(&done), err
}

// Received returns what the completion of a receive tells of the message.
func (completion *Completion) Received() Received { return received(completion) }

func received(done *Completion) Received {
	immediate, has := done.Immediate()
	r := Received{Bytes: int(done.PayloadBytes), Immediate: immediate, HasImmediate: has, Queue: done.Queue(),
		Unexpected: done.Flags&CompletionSync != 0}
	if done.Flags&CompletionInvalidated != 0 {
		r.Invalidated, r.HasInvalidated = done.ReplyBytesMax, true
	}
	if done.Flags&CompletionOfDCT != 0 {
		r.Written, r.completion = int(done.Token>>32), *done
	} else if done.PayloadBytes == 0 {
		r.Written = int(done.Token)
	} else if done.Token != 0 { // a datagram, whose header counts: the token says who has sent it
		r.completion = *done
	}
	return r
}

// SetBuffer has the op name a buffer as its local memory: Region, Address and Bytes.
func (op *QueueOp) SetBuffer(buffer Buffer) error {
	var p *poller
	if buffer.Region != nil && buffer.Region.region != nil {
		p = buffer.Region.region.poller
	}
	handle, address, problem := buffer.place("set buffer", p)
	if problem != nil {
		return problem
	}
	op.Region, op.Address, op.Bytes = handle, address, uint32(buffer.Length)
	return nil
}

// SetBuffer has the piece name a buffer.
func (piece *Piece) SetBuffer(buffer Buffer) error {
	var op QueueOp
	err := op.SetBuffer(buffer)
	if err == nil {
		*piece = Piece{Region: op.Region, Address: op.Address, Bytes: op.Bytes}
	}
	return err
}

// SetRemote has the op name a place in the peer's memory: RemoteAddress and RemoteKey.
func (op *QueueOp) SetRemote(remote Remote) {
	op.RemoteAddress, op.RemoteKey = remote.Address, remote.Key
}

func (q *queue) post(name string, op *QueueOp, buffer Buffer) (*Work, error) {
	handle, address, problem := buffer.place(name, q.poller)
	if problem != nil {
		return nil, problem
	}
	w := &Work{op: name, userData: op.UserData, done: make(chan struct{})}
	if q.tags != nil {
		w.tagged = q
	}
	if handle != 0 {
		op.Region, op.Address, op.Bytes = handle, address, uint32(buffer.Length)
		w.region = buffer.Region.region
	}
	if err := q.gather(w, op); err != nil {
		return nil, err
	}
	return w, nil
}

// doBytes is do with a payload that is copied: Go's memory is never what C keeps.
func (qp *Queue) doBytes(ctx context.Context, name string, op QueueOp, data []byte) error {
	q, err := qp.valid(name)
	if err != nil {
		return err
	}
	return q.doCopy(ctx, name, data, func(at unsafe.Pointer) *QueueOp {
		if at != nil {
			op.Flags, op.Address, op.Bytes = QueueInline, uint64(uintptr(at)), uint32(len(data))
		}
		return &op
	})
}

// doCopy posts the op that `fill` makes of a copy of the payload, in C memory, which is nil if there is nothing to copy.
func (q *queue) doCopy(ctx context.Context, name string, data []byte, fill func(unsafe.Pointer) *QueueOp) error {
	if len(data) > QueueInlineBytesMax {
		return errorf(name, ErrTooBig, "%d bytes; for more than %d use a Region", len(data), QueueInlineBytesMax)
	}
	if ctx.Err() != nil {
		return contextError(name, ctx)
	}
	w := &Work{op: name, done: make(chan struct{})}
	if len(data) > 0 {
		w.inline = C.CBytes(data)
	}
	if err := q.gather(w, fill(w.inline)); err != nil {
		C.free(w.inline)
		return err
	}
	_, err := w.Wait(ctx)
	return err
}

// gather hands an op to the poller.
func (q *queue) gather(w *Work, op *QueueOp) error {
	q.mutex.Lock()
	err := q.gatherLocked(w, op)
	q.mutex.Unlock()
	if err == nil {
		q.poller.kick()
	}
	return err
}

// gatherLocked is gather, with the queue's mutex held, for those who kick the poller.
func (q *queue) gatherLocked(w *Work, op *QueueOp) error {
	if err := q.admit(w); err != nil {
		return err
	}
	q.works.works[w.place] = w
	if w.region != nil {
		w.region.users.Add(1)
	}
	line := q.lineOf(op.Opcode)
	run := line.last()
	if run == nil {
		run = q.takeRun()
		line.open = append(line.open, run)
	}
	run.add(op).UserData = q.userData(w)
	q.enlist()
	return nil
}

// admit gives an op or a batch its place. The queue's mutex is held, here and in the functions below.
func (q *queue) admit(w *Work) error {
	switch {
	case q.over:
		return q.reason.toOps(w.op)
	case q.shut:
		return newError(w.op, ErrClosing)
	case !q.works.reserve(w):
		return errorf(w.op, ErrAgain, "%d ops are open on this queue already", len(q.works.works))
	}
	return nil
}

// userData is what C calls the op, or the first of a batch.
func (q *queue) userData(w *Work) uint64 { return q.number<<(2*placeBits) | w.place<<placeBits }
