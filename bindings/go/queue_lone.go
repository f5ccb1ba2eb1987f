// queue_lone.go: what Datagrams, DCIs and DCTs have in common, which are queues without a peer; and what all kinds of queues have.

package copyrpc

const (
	opQueueAddress = "queue address"
	opQueueInfo    = "queue info"
	opQueueStats   = "queue stats"
)

// openLone makes a queue that has no peer.
func (c *Context) openLone(op string, options QueueOptions, kind uint32) (*queue, error) {
	s, err := settingsOf(op, c.among([]Option{options.forQueue()}))
	if err != nil {
		return nil, err
	}
	q := newQueue()
	err = q.start(op, s, func() error {
		handle, err := q.poller.raw.openQueue(op, q.id, s, kind)
		q.handle = uint64(handle)
		return err
	})
	return q, err
}

// ---- Ending and asking: of what `valid` has returned ----------------------------------------------

// validAs returns the queue, if it was opened and not closed: else an error with one of these texts.
func (qp *Queue) validAs(op, never, closed string) (*queue, error) {
	if qp == nil || qp.queue == nil {
		return nil, errorf(op, ErrClosed, "%s", never)
	}
	if qp.queue.closed.Load() {
		return nil, errorf(op, ErrClosed, "%s", closed)
	}
	return qp.queue, nil
}

func (qp *Queue) closeAs(why string) error {
	if qp != nil && qp.queue != nil {
		qp.queue.close(why)
	}
	return nil
}

func endOf(q *queue, err error) error {
	if err != nil {
		return err
	}
	return q.err("queue")
}

func addressOfQueue(q *queue, err error) (address QueueAddress, _ error) {
	if err != nil {
		return QueueAddress{}, err
	}
	err = q.poller.control(opQueueAddress, func() (err error) {
		address, err = q.poller.raw.QueueAddress(QueueHandle(q.handle))
		return err
	})
	return address, err
}

func infoOfQueue(q *queue, err error) (QueueInfo, error) {
	if err != nil {
		return QueueInfo{}, err
	}
	return infoOf(&q.link, q.limits, (*RawContext).QueueInfo)
}

func statsOfQueue(q *queue, err error) (QueueStats, error) {
	if err != nil {
		return QueueStats{}, err
	}
	return countersOf(&q.link, opQueueStats, &q.last, (*RawContext).QueueStats)
}
