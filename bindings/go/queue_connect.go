// queue_connect.go: those who want queues: listeners, and blobs.

package copyrpc

import "context"

// QueueListener waits for peers that want to connect queues. All methods may be called from any
// goroutine.
type QueueListener struct {
	listener Listener // of which only the acceptor counts
}

// QueueRequest is a peer that wants to connect a queue. Accept or reject it.
type QueueRequest struct {
	Info    QueueInfo // PeerAddress and Private are the peer's
	request *ConnectRequest
}

// ListenQueues listens for queues, as [Listen] does for endpoints. The peers can be any programs that
// connect by rdma_cm. The context must have queues: see [WithQueues].
func (c *Context) ListenQueues(address string, options ...Option) (*QueueListener, error) {
	a, err := listen(queues, "listen for queues "+address, address, c.among(options))
	if err != nil {
		return nil, err
	}
	l := &QueueListener{listener: Listener{acceptor: a}}
	warnIfLost(l, a.open, "a QueueListener", "listen "+a.address)
	return l, nil
}

// inner is the Listener that does the work; of none, none.
func (l *QueueListener) inner() *Listener {
	if l == nil {
		return nil
	}
	return &l.listener
}

// Address returns the address of the listener, e.g. "192.0.2.1:47110".
func (l *QueueListener) Address() string { return l.inner().Address() }

// Stats reads the counters of the listener.
func (l *QueueListener) Stats() (ListenerStats, error) { return l.inner().Stats() }

// Close stops listening. Accepted queues stay; peers that still wait are rejected. Closing twice is
// allowed.
func (l *QueueListener) Close() error { return l.inner().Close() }

// AcceptRequest waits for a peer that wants to connect, and lets the caller decide whether to
// accept it.
func (l *QueueListener) AcceptRequest(ctx context.Context) (*QueueRequest, error) {
	request, err := l.inner().AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	return &QueueRequest{Info: request.queue, request: request}, nil
}

// Accept waits for a peer and connects with it. If connecting to one peer fails, Accept returns an
// *Error whose status is not ErrClosed, and may be called again.
func (l *QueueListener) Accept(ctx context.Context, options QueueOptions) (*Queue, error) {
	request, err := l.AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	queue, err := request.Accept(ctx, options)
	request.request.rejectUnanswered()
	return queue, err
}

// Accept connects with the peer. If it fails, the peer is refused; only options with values out of
// range leave the request as it was. A peer that sends at once needs receives before Accept returns:
// post them to [SharedReceives].
func (request *QueueRequest) Accept(ctx context.Context, options QueueOptions) (*Queue, error) {
	q := newQueue()
	op := "accept queue " + request.Info.PeerAddress
	return q.shown(request.request.accept(ctx, op, "QueueRequest", &q.link, []Option{options.forQueue()}))
}

// Reject refuses the peer. The peer's ConnectQueue fails with ErrRefused, and any program gets
// `private`, at most 148 bytes, with rdma_cm's event.
func (request *QueueRequest) Reject(private []byte) error {
	const op = "reject queue"
	if len(private) > 148 {
		return errorf(op, ErrTooBig, "private data of %d bytes: a rejection has at most 148", len(private))
	}
	if err := request.request.answer(op, "QueueRequest"); err != nil {
		return err
	}
	a := request.request.acceptor
	return a.poller.control(op, func() error { return a.poller.raw.RejectQueue(QueueHandle(request.request.endpoint), private) })
}

// ---- Without rdma_cm ----------------------------------------------------------------------------

// QueueBlob is one side of a queue that is made without rdma_cm, as [Blob] is for an endpoint.
type QueueBlob struct {
	Bytes []byte // what the peer needs to know, at most 256 bytes

	queue *queue
	half  *half
}

// NewQueueBlob makes one side of a queue, whose other side is made by NewQueueBlob, too. The context
// must have queues: see [WithQueues].
func (c *Context) NewQueueBlob(options QueueOptions) (*QueueBlob, error) {
	const op = "queue blob"
	q := newQueue()
	half, bytes, err := q.newHalf(op, c.among([]Option{options.forQueue()}))
	if err != nil {
		return nil, err
	}
	q.op = "join queue"
	b := &QueueBlob{Bytes: bytes, queue: q, half: half}
	warnIfLost(b, half.open, "a QueueBlob", op)
	return b, nil
}

// Join connects with the peer whose QueueBlob has these Bytes, as [Blob.Join] does. Both sides must
// join.
func (b *QueueBlob) Join(ctx context.Context, peer []byte) (*Queue, error) {
	const op, name = "join queue", "QueueBlob"
	if b == nil || b.half == nil {
		return nil, neverMade(op, name)
	}
	return b.queue.shown(b.half.join(ctx, op, name, peer))
}

// Close gives up a QueueBlob that was not joined. A Queue that came from Join has its own Close.
// Closing twice is allowed.
func (b *QueueBlob) Close() error {
	if b != nil {
		b.half.close("the QueueBlob was closed")
	}
	return nil
}
