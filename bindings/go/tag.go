// tag.go: receives with tags (TM-SRQs): giving buffers, taking them back, and saying what was looked at.

package copyrpc

import (
	"context"
	"errors"
)

// TaggedReceives is a shared receive queue whose device matches tags (a TM-SRQ). Receive gives a buffer for
// a message with a tag: each message goes to the oldest buffer that matches, without its header
// ([WriteTagHeader]), wherever it comes from. What matches none goes to ordinary receives, those of Shared,
// with its header, and is Unexpected. From then on, buffers that are given match nothing until Sync says
// that the program has looked at all such messages. All methods may be called from any goroutine.
type TaggedReceives struct {
	shared SharedReceives
}

// TagWork is a buffer for a message with a tag. All methods may be called from any goroutine.
type TagWork struct {
	work  *Work
	queue *queue
}

// tagState is what a queue has whose device matches tags.
type tagState struct {
	orders queueLine // removals, and QueueTagSync: behind a buffer that waits for room in the list, they would wait for ever
	unseen int       // unexpected messages that nobody has asked for yet. Guarded by the queue's mutex
}

const (
	opReceiveTag = "receive with tag"
	opRemoveTag  = "remove receive with tag"
	opSync       = "sync"
)

// OpenTaggedReceives makes a TM-SRQ. Of the options, only Receives, which must not be 0, ReceivePieces and
// Tags may be set. ErrUnsupported: the device does not match tags. The context must have queues: see
// [WithQueues].
func (c *Context) OpenTaggedReceives(options QueueOptions) (*TaggedReceives, error) {
	const op = "open tagged receives"
	q, err := c.openShared(op, options, taggedReceives)
	if err != nil {
		return nil, err
	}
	return shown(&q.link, &TaggedReceives{shared: SharedReceives{queue: q}}, "TaggedReceives", nil)
}

// Shared returns its ordinary receives, which are also what QueueOptions name. They have its Info, Stats,
// Done and Err, too.
func (tagged *TaggedReceives) Shared() *SharedReceives {
	if tagged == nil {
		return nil
	}
	return &tagged.shared
}

// Close ends it: buffers that are in use fail with ErrClosed. ErrBusy means that Queues still use it; it then
// stays open. Closing twice is allowed.
func (tagged *TaggedReceives) Close() error { return tagged.Shared().Close() }

func (tagged *TaggedReceives) valid(op string) (*queue, error) {
	if tagged == nil || tagged.shared.queue == nil {
		return nil, errorf(op, ErrClosed, "these TaggedReceives were never opened: make them with Context.OpenTaggedReceives")
	}
	if tagged.shared.queue.closed.Load() {
		return nil, errorf(op, ErrClosed, "the TaggedReceives were closed")
	}
	return tagged.shared.queue, nil
}

// ---- Buffers ------------------------------------------------------------------------------------

// PostReceive gives a buffer for one message whose tag is equal to `tag` where `mask` has ones, and does not
// wait. Any number may be posted: while QueueOptions.Tags are open, they wait in the package.
func (tagged *TaggedReceives) PostReceive(buffer Buffer, tag, mask uint64) (*TagWork, error) {
	q, err := tagged.valid(opReceiveTag)
	if err != nil {
		return nil, err
	}
	if tag&^mask != 0 {
		return nil, errorf(opReceiveTag, ErrInvalid, "tag %#x has ones where the mask %#x has none: nothing could match it", tag, mask)
	}
	w, err := q.post(opReceiveTag, &QueueOp{Opcode: QueueTagAdd, RemoteAddress: tag, Operand: mask}, buffer)
	if err != nil {
		return nil, err
	}
	return &TagWork{work: w, queue: q}, nil
}

// Receive gives a buffer, whose Region needs LocalWrite, for one message whose tag is equal to `tag` where
// `mask` has ones, and waits for the message. If ctx is done first, the buffer is taken back: other than
// with [Queue.Receive], no message is lost, and the buffer is free. Only if a message has begun to come in
// then, it stays in use until all of that is there.
func (tagged *TaggedReceives) Receive(ctx context.Context, buffer Buffer, tag, mask uint64) (Matched, error) {
	if ctx.Err() != nil {
		return Matched{}, contextError(opReceiveTag, ctx)
	}
	w, err := tagged.PostReceive(buffer, tag, mask)
	if err != nil {
		return Matched{}, err
	}
	select {
	case <-w.Done():
		return w.Wait(ctx)
	case <-ctx.Done():
	}
	removed, err := w.Remove(context.Background())
	if removed || err != nil || !w.work.over.Load() {
		return Matched{}, contextError(opReceiveTag, ctx)
	}
	return w.Wait(ctx) // a message was faster
}

// Done returns a Go channel that is closed when a message has come, or none will.
func (w *TagWork) Done() <-chan struct{} { return w.work.Done() }

// Wait waits until a message has come or ctx is done. ErrCanceled: the buffer was taken back. ErrFlushed: a
// message has matched, and could not be brought: it was too long, or its queue has failed. If ctx is done
// first, the buffer stays in use.
func (w *TagWork) Wait(ctx context.Context) (Matched, error) {
	done, err := w.work.Wait(ctx)
	if err != nil {
		return Matched{}, err
	}
	return done.Matched(), nil
}

// Remove takes the buffer back. It returns true when that is done; then Wait returns ErrCanceled. It returns
// false if a message was faster, which Wait returns when all of it is there. If ctx is done first, the
// removal goes on.
func (w *TagWork) Remove(ctx context.Context) (bool, error) {
	if w.work.over.Load() {
		return w.canceled(), nil
	}
	if ctx.Err() != nil {
		return false, contextError(opRemoveTag, ctx)
	}
	q := w.queue
	var removal *Work
	err := q.poller.control(opRemoveTag, func() error {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		if w.work.over.Load() || q.takeBack(w.work) {
			return nil
		}
		removal = &Work{op: opRemoveTag, removes: w.work, done: make(chan struct{})}
		return q.gatherLocked(removal, &QueueOp{Opcode: QueueTagRemove})
	})
	if w.work.over.Load() {
		return w.canceled(), nil
	}
	if err != nil {
		return false, err
	}
	switch _, err := removal.Wait(ctx); {
	case errors.Is(err, ErrNotFound):
		return w.canceled(), nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// canceled tells whether the buffer was taken back.
func (w *TagWork) canceled() bool {
	return w.work.over.Load() && Status(w.work.result.Status) == ErrCanceled
}

// takeBack ends an op that C has not got. The mutexes of the poller and of the queue are held.
func (q *queue) takeBack(w *Work) bool {
	userData := q.userData(w)
	for _, runs := range [][]*queueRun{q.sends.open, q.sends.sending[q.sends.first:]} {
		for _, run := range runs {
			for i := run.sent; run.work == nil && i < run.count; i++ {
				if run.ops[i].UserData == userData {
					copy(run.ops[i:run.count-1], run.ops[i+1:run.count])
					run.count--
					q.completedOne(&Completion{Kind: CompletionWork, Status: int32(ErrCanceled), UserData: userData})
					return true
				}
			}
		}
	}
	return false
}

// ---- Unexpected messages ------------------------------------------------------------------------

// Sync says that the program has looked at all unexpected messages that it has got from Receive, Work.Wait,
// Work.Test and QueueBatch.Wait. Buffers match again from then on. ErrBusy: the package has more of them,
// which nobody has asked for; look at those, and call Sync again. (Each PostReceive of Shared needs
// somebody who calls its Wait.)
func (tagged *TaggedReceives) Sync(ctx context.Context) error {
	q, err := tagged.valid(opSync)
	if err != nil {
		return err
	}
	_, err = q.do(ctx, opSync, &QueueOp{Opcode: QueueTagSync}, Buffer{})
	return err
}

// Batch makes a batch of `count` ops: QueueTagAdd, QueueTagRemove, QueueTagSync and QueueReceive. A
// QueueTagRemove names the UserData of a QueueTagAdd: the latest before it in this batch, or that of
// another batch, where no two may have the same. A QueueTagSync fails with ErrBusy as Sync does.
func (tagged *TaggedReceives) Batch(count int) (*QueueBatch, error) {
	q, err := tagged.valid(opBatch)
	if err != nil {
		return nil, err
	}
	return q.newBatch(count, 0)
}

// noteUnseen counts a message that nobody has looked at. The queue's mutex is held, here and in looked.
func (q *queue) noteUnseen(w *Work, done *Completion) {
	if done.Method == QueueReceive && done.Flags&CompletionSync != 0 && done.Status == 0 && !w.abandoned {
		w.unseen++
		q.tags.unseen++
	}
}

func (q *queue) looked(w *Work) {
	q.tags.unseen -= w.unseen
	w.unseen = 0
}

// look is called when a program asks for what has come of an op.
func (w *Work) look() {
	w.tagged.mutex.Lock()
	w.tagged.looked(w)
	w.tagged.mutex.Unlock()
}

// abandon is called when nobody can ask for it any more.
func (q *queue) abandon(w *Work) {
	q.mutex.Lock()
	w.abandoned = true
	q.looked(w)
	q.mutex.Unlock()
}

// ---- Submitting ---------------------------------------------------------------------------------

// giveTags is give, of a queue with tags. What removals concern is looked up here, where nothing ends before C has got them.
func (q *queue) giveTags(run *queueRun) (int, Status) {
	q.mutex.Lock()
	ops := run.ops[run.sent:run.count]
	count := len(ops)
	for i := range ops[:count] {
		if ops[i].Opcode == QueueTagRemove {
			ops[i].Operand = q.removed(&ops[i])
		} else if ops[i].Opcode == QueueTagSync && q.tags.unseen > 0 {
			count = i
			break
		}
	}
	q.mutex.Unlock()
	if count == 0 {
		return 0, ErrBusy
	}
	taken, reason := q.poller.raw.submitQueue(QueueHandle(q.handle), &ops[0], count, run.pieces)
	if taken == count && count < len(ops) {
		reason = ErrBusy
	}
	return taken, reason
}

// noSuchTag is the user_data of no op: it would be of a queue without a number.
const noSuchTag = placeMask

// removed is what C calls the op that a removal concerns. The queue's mutex is held, here and in added.
func (q *queue) removed(op *QueueOp) uint64 {
	w := q.works.works[op.UserData>>placeBits&placeMask]
	switch {
	case w.many == nil && w.removes == nil, w.removes != nil && w.removes.over.Load():
		return noSuchTag
	case w.removes != nil:
		return q.userData(w.removes)
	}
	index := int(op.UserData & placeMask)
	wanted := w.many.done[index].Token // as the program gave it
	if found, ok := q.added(w, index, wanted); ok {
		return found
	}
	for _, other := range q.works.works {
		if other != nil && other != w && other.many != nil {
			if found, ok := q.added(other, len(other.many.ops), wanted); ok {
				return found
			}
		}
	}
	return noSuchTag
}

// added finds the latest QueueTagAdd of a batch, before an index, that a program calls so, and that is open.
func (q *queue) added(w *Work, before int, userData uint64) (uint64, bool) {
	for i := before - 1; i >= 0; i-- {
		if w.many.ops[i].Opcode == QueueTagAdd && w.many.done[i].Kind == 0 && w.many.done[i].UserData == userData {
			return q.userData(w) | uint64(i), true
		}
	}
	return 0, false
}
