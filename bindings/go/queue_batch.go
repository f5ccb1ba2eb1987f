// queue_batch.go: many ops of a queue at once, in C memory.

package copyrpc

/*
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"unsafe"
)

// QueueBatchOpsMax is how many ops a QueueBatch has at most.
const QueueBatchOpsMax = 1 << placeBits

// QueueBatch is an array of ops in C memory, and of their completions. All of its ops go to C in one
// call, as far as there is room, and cost no Go object each. It is used again and again, by one
// goroutine at a time.
type QueueBatch struct {
	batch *queueBatch
}

// queueBatch is what a QueueBatch is to the poller, guarded by the queue's mutex.
type queueBatch struct {
	queue  *queue
	ops    []QueueOp    // C memory
	done   []Completion // likewise
	pieces []Piece      // likewise
	work   *Work        // what was submitted last
	busy   bool         // it is under way, so the memory is in use
	closed bool
}

// batchWork is what a batch adds to its Work. Guarded by the queue's mutex until it has ended.
type batchWork struct {
	batch *queueBatch
	ops   []QueueOp
	done  []Completion
	left  int // ops without a completion
	first int // the first op that has failed; len(ops): none
}

// Batch makes a batch of `count` ops, which are zero.
func (qp *Queue) Batch(count int) (*QueueBatch, error) { return qp.BatchWithPieces(count, 0) }

// BatchWithPieces makes a batch of `count` ops, with memory for `pieces` Pieces, at most 4096, which
// ops with the flag QueuePieces name.
func (qp *Queue) BatchWithPieces(count, pieces int) (*QueueBatch, error) {
	q, err := qp.valid(opBatch)
	if err != nil {
		return nil, err
	}
	return q.newBatch(count, pieces)
}

// Batch makes a batch of `count` receives.
func (shared *SharedReceives) Batch(count int) (*QueueBatch, error) {
	q, err := shared.valid(opBatch)
	if err != nil {
		return nil, err
	}
	return q.newBatch(count, 0)
}

const opBatch = "batch of ops"

func (q *queue) newBatch(count, pieces int) (*QueueBatch, error) {
	if count <= 0 || count > QueueBatchOpsMax || pieces < 0 || pieces > SubmitPiecesMax {
		return nil, errorf(opBatch, ErrInvalid, "a batch of %d ops with %d pieces; it has 1 to %d ops, and at most %d pieces", count, pieces,
			QueueBatchOpsMax, SubmitPiecesMax)
	}
	own := &queueBatch{queue: q, ops: cleared[QueueOp](count), done: cleared[Completion](count)}
	if pieces > 0 {
		own.pieces = cleared[Piece](pieces)
	}
	b := &QueueBatch{batch: own}
	name := "a QueueBatch"
	if q.isLane {
		name = "a LaneBatch"
	}
	warnIfLost(b, func() bool {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		return !own.closed
	}, name, opBatch)
	return b, nil
}

// Ops returns the ops, to be filled before Do. capi/copyrpc.h says which fields each opcode uses; the
// others must be zero. Their memory is that of regions: see [QueueOp.SetBuffer] and
// [QueueOp.SetRemote]. A Region must not be closed while a batch with its memory is under way: the
// device would refuse the op, and the queue would fail. UserData comes back with the completion. While
// the batch is under way, the ops must be left alone. They are C memory, which Close frees.
func (b *QueueBatch) Ops() []QueueOp {
	if b == nil || b.batch == nil || b.batch.isClosed() {
		return nil
	}
	return b.batch.ops
}

// Pieces returns the pieces, under the same terms as Ops.
func (b *QueueBatch) Pieces() []Piece {
	if b == nil || b.batch == nil || b.batch.isClosed() {
		return nil
	}
	return b.batch.pieces
}

func (b *queueBatch) isClosed() bool {
	b.queue.mutex.Lock()
	defer b.queue.mutex.Unlock()
	return b.closed
}

// Do submits all ops and waits for them. See Submit and Wait.
func (b *QueueBatch) Do(ctx context.Context) ([]Completion, error) {
	if b == nil || b.batch == nil {
		return nil, errorf(opBatch, ErrClosed, "this QueueBatch was never made: make it with Queue.Batch")
	}
	return b.DoFirst(ctx, len(b.Ops()))
}

// DoFirst does the same as Do, for the first `count` ops.
func (b *QueueBatch) DoFirst(ctx context.Context, count int) ([]Completion, error) {
	if ctx.Err() != nil {
		return nil, contextError(opBatch, ctx)
	}
	if err := b.Submit(count); err != nil {
		return nil, err
	}
	return b.Wait(ctx)
}

// Submit submits the first `count` ops, and does not wait. What there is no room for waits in the
// package. If an op is refused, those after it are not submitted, since they may depend on it: they end
// with ErrCanceled. ErrBusy means that the batch is under way.
func (b *QueueBatch) Submit(count int) error {
	if b == nil || b.batch == nil {
		return errorf(opBatch, ErrClosed, "this QueueBatch was never made: make it with Queue.Batch")
	}
	own := b.batch
	if own.isClosed() {
		return errorf(opBatch, ErrClosed, "the QueueBatch was closed")
	}
	if count < 0 || count > len(own.ops) {
		return errorf(opBatch, ErrInvalid, "%d ops; the batch has %d", count, len(own.ops))
	}
	q := own.queue
	w := &Work{op: opBatch, done: make(chan struct{})}
	if q.tags != nil {
		w.tagged = q
	}
	if err := own.begin(w, count); err != nil || count == 0 {
		return err
	}
	line := own.prepare(w)
	q.mutex.Lock()
	defer q.poller.kick()
	defer q.mutex.Unlock()
	if q.over {
		w.failed(q.reason)
		return nil // Wait tells
	}
	q.works.works[w.place] = w
	line.open = append(line.open, &queueRun{ops: own.ops, count: count, pieces: own.pieces, work: w})
	q.enlist()
	return nil
}

// begin takes the batch for this work.
func (b *queueBatch) begin(w *Work, count int) error {
	q := b.queue
	q.mutex.Lock()
	defer q.mutex.Unlock()
	switch {
	case b.closed:
		return errorf(opBatch, ErrClosed, "the QueueBatch was closed")
	case b.busy:
		return errorf(opBatch, ErrBusy, "the batch is under way: Wait for it")
	case q.closed.Load():
		return errorf(opBatch, ErrClosed, "the queue was closed")
	}
	if b.work != nil && b.work.tagged != nil { // nobody can look at that any more
		q.looked(b.work)
	}
	w.many = &batchWork{batch: b, ops: b.ops[:count], done: b.done[:count], left: count, first: count}
	if count > 0 {
		if err := q.admit(w); err != nil {
			return err
		}
		b.work, b.busy = w, true
		return nil
	}
	b.work = w
	w.over.Store(true)
	close(w.done)
	return nil
}

// prepare gives the ops the user_data by which they are found again, and keeps the caller's. It tells in which line they wait.
func (b *queueBatch) prepare(w *Work) *queueLine {
	userData := b.queue.userData(w)
	receives, orders := 0, 0
	ops, done := w.many.ops, w.many.done
	for i := range ops {
		done[i] = Completion{UserData: ops[i].UserData}
		ops[i].UserData = userData | uint64(i)
		switch ops[i].Opcode {
		case QueueReceive:
			receives++
		case QueueTagRemove, QueueTagSync:
			done[i].Token = ops[i].Operand
			orders++
		}
	}
	if receives == len(ops) {
		return &b.queue.receives
	}
	if orders == len(ops) && b.queue.tags != nil {
		return &b.queue.tags.orders
	}
	return &b.queue.sends
}

// Wait waits until all ops that were submitted have completed, and returns their completions, in the
// order of the ops, as C memory: it is valid until the next Submit or Close. If an op has failed, the
// error is that of the first. If ctx is done first, there are no completions, and the batch stays under
// way, with all its memory and that of its ops: Wait again, or Close it.
func (b *QueueBatch) Wait(ctx context.Context) ([]Completion, error) {
	if b == nil || b.batch == nil {
		return nil, errorf(opBatch, ErrClosed, "this QueueBatch was never made: make it with Queue.Batch")
	}
	own := b.batch
	own.queue.mutex.Lock()
	w, closed := own.work, own.closed
	own.queue.mutex.Unlock()
	if closed {
		return nil, errorf(opBatch, ErrClosed, "the QueueBatch was closed")
	}
	if w == nil {
		return nil, errorf(opBatch, ErrState, "nothing was submitted")
	}
	select {
	case <-w.done:
	default:
		select {
		case <-w.done:
		case <-ctx.Done():
			return nil, contextError(opBatch, ctx)
		}
	}
	own.queue.mutex.Lock()
	defer own.queue.mutex.Unlock()
	if w.tagged != nil {
		w.tagged.looked(w)
	}
	if own.closed { // meanwhile, and what it had is gone
		return nil, errorf(opBatch, ErrClosed, "the QueueBatch was closed")
	}
	return w.many.done, w.many.err(w)
}

func (m *batchWork) err(w *Work) error {
	if m.first == len(m.ops) {
		return nil
	}
	if w.reason != nil && Status(m.done[m.first].Status) == w.reason.Status {
		return w.reason
	}
	e := workError(opBatch, &m.done[m.first])
	e.Message = errorf("", OK, "op %d of %d: %s", m.first, len(m.ops), e.Message).Message
	return e
}

// Close frees the memory: at once, or when the ops that are under way have completed. Closing twice is
// allowed.
func (b *QueueBatch) Close() error {
	if b == nil || b.batch == nil {
		return nil
	}
	own := b.batch
	own.queue.mutex.Lock()
	defer own.queue.mutex.Unlock()
	if !own.closed {
		own.closed = true
		if own.work != nil && own.work.tagged != nil { // nobody will ask for it
			own.work.abandoned = true
			own.queue.looked(own.work)
		}
		own.freeUnused()
	}
	return nil
}

// ended is called when nothing of it is under way any more. The queue's mutex is held, here and in the functions below.
func (b *queueBatch) ended() {
	b.busy = false
	b.freeUnused()
}

func (b *queueBatch) freeUnused() {
	if b.closed && !b.busy {
		C.free(unsafe.Pointer(unsafe.SliceData(b.ops)))
		C.free(unsafe.Pointer(unsafe.SliceData(b.done)))
		C.free(unsafe.Pointer(unsafe.SliceData(b.pieces)))
		b.ops, b.done, b.pieces = nil, nil, nil
	}
}

// completed notes a completion, and tells whether it was the last.
func (m *batchWork) completed(done *Completion) bool {
	index := done.UserData & placeMask
	if index >= uint64(len(m.done)) || m.done[index].Kind != 0 {
		return false
	}
	userData := m.done[index].UserData
	if m.ops[index].Opcode == QueueTagRemove {
		m.ops[index].Operand = m.done[index].Token
	}
	m.done[index] = *done
	m.done[index].UserData = userData
	m.ops[index].UserData = userData
	if done.Status != 0 {
		m.first = min(m.first, int(index))
	}
	m.left--
	return m.left == 0
}

// failed ends those of the ops from..to that are open.
func (m *batchWork) failed(from, to int, status Status) {
	for i := from; i < to; i++ {
		m.completed(&Completion{Kind: CompletionWork, Status: int32(status), UserData: uint64(i)})
	}
}
