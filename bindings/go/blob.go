// blob.go: connecting without rdma_cm: each side makes a blob, the application carries it to the other, and both join.

package copyrpc

import (
	"context"
	"sync"
	"sync/atomic"
)

// half is one side of a link that is made without rdma_cm: what is inside of a Blob or a ChannelBlob. It is apart from those so that
// their finalizers do not hold on to them.
type half struct {
	link   *link
	mutex  sync.Mutex  // of one join at a time
	joined atomic.Bool // the Endpoint or the Channel has the link now, or nobody
}

// newHalf makes one side, and the bytes that its peer joins with.
func (l *link) newHalf(op string, options []Option) (*half, []byte, error) {
	s, err := settingsOf(op, options)
	if err != nil {
		return nil, nil, err
	}
	var blob []byte
	err = l.start(op, s, func() (err error) {
		l.handle, blob, err = l.poller.raw.blob(l.kind, op, l.id, s)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return &half{link: l}, blob, nil
}

// join connects, and waits until that is done, or ctx is. `name` is what the half is called by callers.
func (h *half) join(ctx context.Context, op, name string, peer []byte) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.joined.Load() {
		return errorf(op, ErrState, "this %s was joined already, or closed", name)
	}
	if ctx.Err() != nil {
		return contextError(op, ctx)
	}
	l := h.link
	err := l.poller.control(op, func() error { return l.poller.raw.join(l.kind, op, l.handle, peer) })
	if err != nil {
		return err
	}
	h.joined.Store(true)
	if err = l.established(ctx); err != nil {
		l.letGo("it could not be joined")
	}
	return err
}

func neverMade(op, name string) error {
	return errorf(op, ErrClosed, "this %s was never made: make it with New%s", name, name)
}

func (h *half) close(why string) {
	if h != nil && !h.joined.Swap(true) {
		h.link.letGo(why)
	}
}

func (h *half) open() bool { return !h.joined.Load() && h.link.open() }

// Blob is one side of a connection that is made without rdma_cm, for programs that can exchange
// bytes by other means, such as MPI, etcd or a file. Each side makes a Blob, carries its Bytes to
// the other side, and calls Join with the bytes from there.
type Blob struct {
	Bytes []byte // what the peer needs to know, at most 256 bytes

	connection *connection
	half       *half
}

// NewBlob makes one side of a connection. Contexts are shared as by [Dial]. The options are those
// of Dial. The peer sees the token of [WithToken] in its EndpointInfo, after Join.
func NewBlob(options ...Option) (*Blob, error) {
	const op = "blob"
	c := newConnection()
	half, bytes, err := c.newHalf(op, options)
	if err != nil {
		return nil, err
	}
	c.op = "join"
	b := &Blob{Bytes: bytes, connection: c, half: half}
	warnIfLost(b, half.open, "a Blob", op)
	return b, nil
}

// NewBlob does the same as [NewBlob], on this context.
func (c *Context) NewBlob(options ...Option) (*Blob, error) {
	return NewBlob(c.among(options)...)
}

// Join connects with the peer whose Blob has these Bytes. It waits until the connection is made or
// ctx is done. Bytes that are no blob, or that are damaged, give ErrProtocol, and other bytes may
// then be joined. After any other failure, the Blob cannot be used again.
//
// Both sides must join. If one side sends before the other has joined, the transport only resends
// for as long as WithRetry says, which is half a second by default. If that may be too short, the
// programs must first tell each other that they have joined. While the system looks up the peer's
// address on the network (ARP), the whole Context waits.
func (b *Blob) Join(ctx context.Context, peer []byte) (*Endpoint, error) {
	const op, name = "join", "Blob"
	if b == nil || b.half == nil {
		return nil, neverMade(op, name)
	}
	return b.connection.shown(b.half.join(ctx, op, name, peer))
}

// Close gives up a Blob that was not joined. An Endpoint that came from Join has its own Close.
// Closing twice is allowed.
func (b *Blob) Close() error {
	if b != nil {
		b.half.close("the Blob was closed")
	}
	return nil
}

// Blob makes an endpoint, and the bytes that its peer needs for Join. Join is followed by a
// CompletionConnected.
func (r *RawContext) Blob(userData uint64, options ...Option) (EndpointHandle, []byte, error) {
	const op = "blob"
	s, err := r.settings(op, options)
	if err != nil {
		return 0, nil, err
	}
	handle, blob, err := r.blob(endpoints, op, userData, s)
	return EndpointHandle(handle), blob, err
}

// Join connects an endpoint of Blob with the blob of its peer. A CompletionConnected follows. Join
// may block while the system looks up the peer's address on the network (ARP). Bytes that are no
// blob give ErrProtocol and change nothing.
func (r *RawContext) Join(endpoint EndpointHandle, peer []byte) error {
	return r.join(endpoints, "join", uint64(endpoint), peer)
}
