// queue.go: queues: connecting, ending, asking. queue_work.go has their ops, queue_batch.go many of them at
// once, queue_line.go how they are submitted.

package copyrpc

import (
	"context"
	"errors"
)

// Queue is a queue pair of the NIC, connected to a peer, which can be any RDMA program. What is
// posted is what the device does: there is no protocol of ours in between, no keepalive, and no flow
// control. All methods may be called from any goroutine. Methods of a Queue that was never connected,
// or is closed, return ErrClosed.
type Queue struct {
	queue *queue
}

// SharedReceives is a shared receive queue (SRQ): the receives of all Queues whose options name it.
// It has no peer. All methods may be called from any goroutine.
type SharedReceives struct {
	queue *queue
}

// queue is what a Queue, SharedReceives or the lane of an Endpoint is to the poller.
type queue struct {
	number uint64 // which is in the user_data of its ops
	shares bool   // it is SharedReceives
	isLane bool   // its ops are LaneOps, its handle is the Endpoint's, and it ends with that

	// Guarded by the poller's mutex.
	low     chan struct{} // RunLow: closed when the limit is reached
	leaving bool          // Drain: it takes leave when what was posted before is on its way
	limits  QueueInfo     // as it was connected, but for the state
	last    QueueStats    // when it was over

	link // its mutex guards what follows, of callers and poller

	shut     bool // Drain: nothing new is taken
	works    workTable
	tags     *tagState // of TaggedReceives; nil: it has none. Set when it is made
	receives queueLine
	sends    queueLine
	spare    []*queueRun
	roomed   chan struct{} // of a lane: closed at the next CompletionRoom; nil: nobody waits for it
}

func newQueue() *queue {
	q := &queue{}
	q.self, q.kind = q, queues
	return q
}

func (q *queue) shown(err error) (*Queue, error) {
	return shown(&q.link, &Queue{queue: q}, "a Queue", err)
}

// ConnectQueue connects to a listener of ListenQueues, or to any program that accepts reliable
// connections by rdma_cm, at "host:port". It waits until the queue is connected or refused, or ctx is
// done. The context must have queues: see [WithQueues].
func (c *Context) ConnectQueue(ctx context.Context, address string, options QueueOptions) (*Queue, error) {
	q := newQueue()
	return q.shown(q.dial(ctx, "connect queue "+address, address, c.among([]Option{options.forQueue()})))
}

// ---- What the poller hears ----------------------------------------------------------------------

func (q *queue) begun(*settings) { q.poller.queues.add(q) }

func (q *queue) readLimits() {
	q.limits, _ = q.poller.raw.QueueInfo(QueueHandle(q.handle))
	q.limits.State = StateDisconnected // for Info, when that is so
}

// event is what comes of a queue that is not of an op.
func (q *queue) event(done *Completion) {
	switch done.Kind {
	case CompletionRoom:
		q.receives.blocked, q.sends.blocked = false, false
		if q.tags != nil {
			q.tags.orders.blocked = false
		}
		q.enlistLocking()
	case CompletionSRQLimit:
		if q.low != nil {
			close(q.low)
			q.low = nil
		}
	case CompletionConnected:
		q.connectedWith(Status(done.Status))
	case CompletionDisconnected:
		q.disconnected(Status(done.Status))
	}
}

// After finish, nothing lands in buffers any more. C's completions of what it ends here find nobody.
func (q *queue) finish(reason *Error) {
	p := q.poller
	p.queues.remove(q)
	if !q.isLane {
		q.last, _ = p.raw.QueueStats(QueueHandle(q.handle))
		p.raw.CloseQueue(QueueHandle(q.handle))
	}
	q.mutex.Lock()
	if !q.overWith(reason) {
		q.mutex.Unlock()
		return
	}
	q.works.failAll(reason)
	q.receives.free()
	q.sends.free()
	if q.tags != nil {
		q.tags.orders.free()
	}
	for _, run := range q.spare {
		run.free()
	}
	q.spare = nil
	q.mutex.Unlock()
	close(q.gone)
}

// ---- Ending -------------------------------------------------------------------------------------

// Close ends the queue at once. Open ops fail with ErrClosed, and their buffers may be used again.
// Closing twice is allowed.
func (qp *Queue) Close() error { return qp.closeAs("the Queue was closed") }

// Fail ends the connection at once: open ops fail with ErrFlushed, new ones with ErrDisconnected. It
// does not wait; Done tells when all have ended. ErrState: the connection has failed before.
func (qp *Queue) Fail() error {
	const op = "fail queue"
	q, err := qp.valid(op)
	if err != nil {
		return err
	}
	return q.poller.control(op, func() error {
		if q.over {
			return newError(op, ErrState)
		}
		return q.poller.raw.FailQueue(QueueHandle(q.handle))
	})
}

// Drain refuses new ops, waits until all sends have completed, and then disconnects. Receives that
// are open fail with ErrFlushed. If ctx is done first, Drain ends the queue at once, and returns the
// reason.
func (qp *Queue) Drain(ctx context.Context) error {
	const op = "drain queue"
	q, err := qp.valid(op)
	if err != nil {
		return err
	}
	q.mutex.Lock()
	q.shut = true
	q.mutex.Unlock()
	err = q.shutdown(ctx, op, func() error {
		q.leaving = true
		q.enlistLocking()
		return nil
	})
	if err != nil {
		q.end(&Error{Status: ErrDisconnected, Message: "the queue was not drained in the time given"})
	}
	return err
}

// leave is Drain's, after what was posted before is on its way. The poller's mutex is held.
func (q *queue) leave() {
	q.leaving = false
	err := q.poller.raw.DrainQueue(QueueHandle(q.handle), Forever)
	if err != nil && !errors.Is(err, ErrState) { // ErrState: it is over, and says so by itself
		q.finish(&Error{Status: ErrDisconnected, Message: err.Error()})
	}
}

// Done returns a Go channel that is closed when the queue has ended and all its ops with it, whether
// by either side or by a failure.
func (qp *Queue) Done() <-chan struct{} {
	if qp == nil || qp.queue == nil {
		return alreadyOver
	}
	return qp.queue.gone
}

// Err returns why the queue has ended, or nil if it has not.
func (qp *Queue) Err() error { return endOf(qp.valid("queue")) }

func (qp *Queue) valid(op string) (*queue, error) {
	return qp.validAs(op, "this Queue was never connected: make it with Context.ConnectQueue or Accept", "the Queue was closed")
}

// ---- Asking -------------------------------------------------------------------------------------

// Handle returns what completions of batches and [Received] call this queue.
func (qp *Queue) Handle() QueueHandle {
	if qp == nil || qp.queue == nil {
		return 0
	}
	return QueueHandle(qp.queue.handle)
}

// Info describes the queue. After its end, it describes the queue as it was while connected, except
// for the state.
func (qp *Queue) Info() (QueueInfo, error) { return infoOfQueue(qp.valid(opQueueInfo)) }

// Stats reads the counters of the queue. After its end, it returns their last values.
func (qp *Queue) Stats() (QueueStats, error) { return statsOfQueue(qp.valid(opQueueStats)) }

// ---- Shared receives ----------------------------------------------------------------------------

// OpenSharedReceives makes an SRQ. Of the options, only Receives, which must not be 0, and
// ReceivePieces may be set. The context must have queues: see [WithQueues].
func (c *Context) OpenSharedReceives(options QueueOptions) (*SharedReceives, error) {
	q, err := c.openShared("open shared receives", options, sharedReceives)
	if err != nil {
		return nil, err
	}
	return shown(&q.link, &SharedReceives{queue: q}, "a SharedReceives", nil)
}

func (c *Context) openShared(op string, options QueueOptions, kind uint32) (*queue, error) {
	s, err := settingsOf(op, c.among([]Option{options.forQueue()}))
	if err != nil {
		return nil, err
	}
	q := newQueue()
	q.shares = true
	if kind == taggedReceives {
		q.tags = &tagState{}
	}
	return q, q.start(op, s, func() error {
		handle, err := q.poller.raw.openQueue(op, q.id, s, kind)
		q.handle = uint64(handle)
		return err
	})
}

// Close ends the receives: those that are open fail with ErrClosed. ErrBusy means that Queues still
// use them; they then stay open. Closing twice is allowed.
func (shared *SharedReceives) Close() error {
	if shared == nil || shared.queue == nil || shared.queue.closed.Load() {
		return nil
	}
	const op = "close shared receives"
	q := shared.queue
	err := q.poller.control(op, func() error {
		if !q.over {
			if err := q.poller.raw.CloseQueue(QueueHandle(q.handle)); errors.Is(err, ErrBusy) {
				return err
			}
			q.finish(errorf(op, ErrClosed, "the SharedReceives were closed"))
		}
		return nil
	})
	if errors.Is(err, ErrBusy) {
		return err
	}
	q.closed.Store(true) // or the Context was closed, and they with it
	return nil
}

// Done returns a Go channel that is closed when the receives have ended: by Close, or with the device.
func (shared *SharedReceives) Done() <-chan struct{} {
	if shared == nil || shared.queue == nil {
		return alreadyOver
	}
	return shared.queue.gone
}

// Err returns why the receives have ended, or nil if they have not.
func (shared *SharedReceives) Err() error {
	q, err := shared.valid("shared receives")
	if err != nil {
		return err
	}
	return q.err("shared receives")
}

func (shared *SharedReceives) valid(op string) (*queue, error) {
	if shared == nil || shared.queue == nil {
		return nil, errorf(op, ErrClosed, "these SharedReceives were never opened: make them with Context.OpenSharedReceives")
	}
	if shared.queue.closed.Load() {
		return nil, errorf(op, ErrClosed, "the SharedReceives were closed")
	}
	return shared.queue, nil
}

// Info describes the receives; Queues counts who uses them.
func (shared *SharedReceives) Info() (QueueInfo, error) {
	return infoOfQueue(shared.valid(opQueueInfo))
}

// Stats reads the counters of the receives.
func (shared *SharedReceives) Stats() (QueueStats, error) {
	return statsOfQueue(shared.valid(opQueueStats))
}

// ---- All queues of a context --------------------------------------------------------------------

// queueTable is the queues that a poller knows, guarded by its mutex.
type queueTable struct {
	byID     map[uint64]*queue // by user_data of the queue
	byNumber map[uint64]*queue // by the number in the user_data of its ops
	number   uint64            // the latest
	latest   *queue            // the one that the completion of an op before was for
}

// The user_data of an op is the number of the queue that it was posted to, its place among the open ones there, and its place in its
// batch. It is not the queue over which it completes: a receive of an SRQ names another, which may be gone meanwhile.
const (
	placeBits  = 20
	numberBits = 24
)

func newQueueTable() queueTable {
	return queueTable{byID: map[uint64]*queue{}, byNumber: map[uint64]*queue{}}
}

// add gives a queue a number that no other has. It comes again after 16 million others, when nothing of the one before is left.
func (table *queueTable) add(q *queue) {
	for {
		table.number = (table.number + 1) & (1<<numberBits - 1)
		if table.byNumber[table.number] == nil {
			break
		}
	}
	q.number = table.number
	table.byID[q.id], table.byNumber[q.number] = q, q
}

func (table *queueTable) remove(q *queue) {
	delete(table.byID, q.id)
	delete(table.byNumber, q.number)
	table.latest = nil
}

// finishAll ends all queues, and shared receives after those that use them.
func (table *queueTable) finishAll(reason *Error) {
	for _, shares := range []bool{false, true} {
		for _, q := range table.byID {
			if q.shares == shares {
				q.finish(reason)
			}
		}
	}
}

// spread handles the first completion, and with it those after it that are of ops of the same queue; it tells how many these were.
func (table *queueTable) spread(completions []Completion) int {
	first := &completions[0]
	if first.Kind != CompletionWork {
		if q := table.byID[first.EndpointUserData]; q != nil {
			q.event(first)
		}
		return 1
	}
	number := first.UserData >> (2 * placeBits)
	count := 1
	for count < len(completions) && completions[count].Kind == CompletionWork && completions[count].UserData>>(2*placeBits) == number {
		count++
	}
	if table.latest == nil || table.latest.number != number {
		table.latest = table.byNumber[number]
	}
	if q := table.latest; q != nil { // else it was closed, and its ops have ended with it
		q.completed(completions[:count])
	}
	return count
}
