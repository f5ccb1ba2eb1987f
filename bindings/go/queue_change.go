// queue_change.go: queues that change while they are in use, and shared receives that run low.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"math"
	"time"
)

// QueueChange is what Modify changes of a queue. Zero always means the library's default.
type QueueChange func(*queueChange)

type queueChange struct {
	c       C.crpc_queue_change
	problem *Error
}

func (change *queueChange) number(name string, value int) C.uint32_t {
	if value < 0 || value > math.MaxUint32 {
		change.problem = errorf("", ErrInvalid, "%s is %d; it must be 0 (the default) or above", name, value)
		return 0
	}
	return C.uint32_t(value)
}

// ChangeNotReadyWait sets how long the peer waits before it sends again what found no receive here:
// 10 µs to 491.52 ms; 0.64 ms by default. The next longer time that devices know is taken.
func ChangeNotReadyWait(wait time.Duration) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_NOT_READY_WAIT
		if wait < 0 {
			change.problem = errorf("", ErrInvalid, "NotReadyWait is %v; a time cannot be negative", wait)
		}
		change.c.not_ready_wait_ns = C.uint64_t(max(wait, 0))
	}
}

// ChangeAccess sets what the peer may do over this queue, with regions that have the right, too: the sum
// of RemoteWrite, RemoteRead and RemoteAtomic, or 0. At first it is all that the device can. What exceeds
// it ends the queue, on both sides. A write that has begun before its right was taken away can still land.
func ChangeAccess(access Access) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_ACCESS
		change.c.access = C.uint32_t(access)
	}
}

// ChangeRetryTimeout and the next two are as in [QueueOptions]. Devices refuse them of a connected queue:
// they are for a [QueueBlob] that was not joined.
func ChangeRetryTimeout(timeout int) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_RETRY_TIMEOUT
		change.c.retry_timeout = change.number("RetryTimeout", timeout)
	}
}

// ChangeRetryCount is like ChangeRetryTimeout.
func ChangeRetryCount(count int) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_RETRY_COUNT
		change.c.retry_count = change.number("RetryCount", count)
	}
}

// ChangeNotReadyRetryCount is like ChangeRetryTimeout.
func ChangeNotReadyRetryCount(count int) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT
		change.c.not_ready_retry_count = change.number("NotReadyRetryCount", count)
	}
}

// ChangeQueueKey gives a queue for datagrams another key, which who sends to it must know from now on.
func ChangeQueueKey(key uint32) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_QUEUE_KEY
		change.c.queue_key = C.uint32_t(key)
	}
}

// ChangeSRQLimit has a CompletionSRQLimit follow when a message takes a receive of an SRQ and leaves fewer
// than `limit`; 0: none follows. It follows once for each time that the limit was set.
func ChangeSRQLimit(limit int) QueueChange {
	return func(change *queueChange) {
		change.c.changes |= C.CRPC_QUEUE_CHANGE_SRQ_LIMIT
		change.c.srq_limit = change.number("SRQLimit", limit)
	}
}

// CompletionSRQLimit is the kind of a [Completion] of an SRQ that runs low: see ChangeSRQLimit.
const CompletionSRQLimit = 14

var _ = [1]struct{}{}[CompletionSRQLimit-C.CRPC_COMPLETION_SRQ_LIMIT]

// ModifyQueue changes a queue while it is in use. ErrUnsupported: the device does not let it change.
// After an error, nothing has changed.
func (r *RawContext) ModifyQueue(queue QueueHandle, changes ...QueueChange) error {
	const op = "modify queue"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	var wanted queueChange
	wanted.c.struct_size = C.sizeof_crpc_queue_change
	for _, change := range changes {
		change(&wanted)
	}
	if wanted.problem != nil {
		return errorf(op, wanted.problem.Status, "%s", wanted.problem.Message)
	}
	theirs := newCError()
	return asError(op, C.crpc_queue_modify(r.handle, queue.c(), &wanted.c, &theirs), &theirs)
}

func (q *queue) modify(changes []QueueChange) error {
	const op = "modify queue"
	return q.poller.control(op, func() error {
		if q.over {
			return q.why(op)
		}
		return q.poller.raw.ModifyQueue(QueueHandle(q.handle), changes...)
	})
}

// Modify changes the queue while it is in use. ErrUnsupported: the device does not let it change. After
// an error, nothing has changed.
func (qp *Queue) Modify(changes ...QueueChange) error {
	q, err := qp.valid("modify queue")
	if err != nil {
		return err
	}
	return q.modify(changes)
}

// Modify changes the queue while it is in use: ChangeQueueKey.
func (d *Datagrams) Modify(changes ...QueueChange) error {
	q, err := d.valid("modify queue")
	if err != nil {
		return err
	}
	return q.modify(changes)
}

// Modify changes with what properties the queue will be connected. All of them can change until Join.
func (b *QueueBlob) Modify(changes ...QueueChange) error {
	const op, name = "modify queue", "QueueBlob"
	if b == nil || b.half == nil {
		return neverMade(op, name)
	}
	return b.queue.modify(changes)
}

// RunLow waits until a message takes a receive and leaves fewer than `limit`, or ctx is done. Receives that
// were posted before count. There is one limit: who waits with another one replaces it, and all who wait
// return. A limit of before can make RunLow return early, once.
func (shared *SharedReceives) RunLow(ctx context.Context, limit int) error {
	const op = "shared receives"
	q, err := shared.valid(op)
	if err != nil {
		return err
	}
	if limit < 1 {
		return errorf(op, ErrInvalid, "a limit of %d: it is 1 or above", limit)
	}
	var low <-chan struct{}
	err = q.poller.control(op, func() error {
		if q.over {
			return q.why(op)
		}
		var err error
		low, err = q.setLow(limit)
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-low:
		return nil
	case <-q.gone:
		return q.err(op)
	case <-ctx.Done():
		return contextError(op, ctx)
	}
}

// setLow has the channel closed when fewer are left. What was posted before is given to the device first.
func (q *queue) setLow(limit int) (<-chan struct{}, error) {
	if q.low == nil {
		q.low = make(chan struct{})
	}
	q.submit(&q.receives)
	return q.low, q.poller.raw.ModifyQueue(QueueHandle(q.handle), ChangeSRQLimit(limit))
}
