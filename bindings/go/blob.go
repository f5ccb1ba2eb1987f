// blob.go: connecting without rdma_cm: each side makes a blob, the application carries it to the other, and both join.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Blob is this side's half of a connection that is made without rdma_cm, for programs that have another way to reach each other:
// MPI, etcd, a file. Each side makes one, carries its Bytes to the other, and calls Join with what came from there.
type Blob struct {
	Bytes []byte // what the peer needs to know, at most 256 bytes

	connection *connection
	mutex      sync.Mutex   // of one Join at a time
	joined     *atomic.Bool // the Endpoint has the connection now, or nobody; not in here, so that the finalizer does not hold on to this
}

// NewBlob makes one side of a connection. Contexts are shared as by [Dial]. The options are those of Dial, except for the token.
func NewBlob(options ...Option) (*Blob, error) {
	const op = "blob"
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
	}
	context, release, err := takeContext(op, s)
	if err != nil {
		return nil, err
	}
	p := context.poller
	c := newConnection(p, "join", s, release)
	joined := &atomic.Bool{}
	b := &Blob{connection: c, joined: joined}
	err = p.control(op, func() error {
		c.id = p.newID()
		s.endpoint.user_data = C.uint64_t(c.id)
		var err error
		if c.handle, b.Bytes, err = p.raw.blob(op, s); err == nil {
			p.connections[c.id] = c
		}
		return err
	})
	if err != nil {
		letGo(release)
		return nil, err
	}
	warnIfLost(b, func() bool { return !joined.Load() && c.open() }, "a Blob", op)
	return b, nil
}

// NewBlob is [NewBlob] on this context.
func (c *Context) NewBlob(options ...Option) (*Blob, error) {
	if _, err := c.valid("blob"); err != nil {
		return nil, err
	}
	return NewBlob(append(options[:len(options):len(options)], WithContext(c))...)
}

// Join connects with the peer whose Blob had these Bytes, and waits until that is done or ctx is. What is no blob, or damaged, is an
// ErrProtocol, and another may be joined instead; after any other failure the Blob is used up.
//
// Both sides must join: what one sends before the other has joined is repeated by the transport for as long as WithRetry says, by
// default half a second. Where that may be too short, exchange a word in between. The system may look for the peer's address on
// the network (ARP) meanwhile, and all that the Context does waits for that.
func (b *Blob) Join(ctx context.Context, peer []byte) (*Endpoint, error) {
	const op = "join"
	if b == nil || b.connection == nil {
		return nil, errorf(op, ErrClosed, "this Blob was never made: make it with NewBlob")
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.joined.Load() {
		return nil, errorf(op, ErrState, "this Blob was joined already, or closed")
	}
	if ctx.Err() != nil {
		return nil, contextError(op, ctx)
	}
	c := b.connection
	err := c.poller.control(op, func() error { return c.poller.raw.Join(c.handle, peer) })
	if err != nil {
		return nil, err
	}
	b.joined.Store(true)
	endpoint, err := c.wait(ctx)
	if err != nil {
		c.letGo("it could not be joined")
		return nil, err
	}
	return endpoint, nil
}

// Close gives up what was not joined; an Endpoint that came of it has its own Close. Closing twice is allowed.
func (b *Blob) Close() error {
	if b == nil || b.connection == nil || b.joined.Swap(true) {
		return nil
	}
	b.connection.letGo("the Blob was closed")
	return nil
}

// Blob makes an endpoint and the bytes that its peer needs for Join. A CompletionConnected follows Join.
func (r *RawContext) Blob(userData uint64, options ...Option) (EndpointHandle, []byte, error) {
	const op = "blob"
	if r == nil || r.handle == nil {
		return 0, nil, newError(op, ErrClosed)
	}
	s, problem := settingsOf(op, options)
	if problem != nil {
		return 0, nil, problem
	}
	s.endpoint.user_data = C.uint64_t(userData)
	return r.blob(op, s)
}

func (r *RawContext) blob(op string, s *settings) (EndpointHandle, []byte, error) {
	blob := make([]byte, C.CRPC_BLOB_BYTES_MAX)
	bytes := C.uint32_t(len(blob))
	var endpoint C.crpc_endpoint
	theirs := newCError()
	s.endpoint.token_bytes = 0 // there is nobody to be shown it
	status := C.crpc_endpoint_blob(r.handle, &s.endpoint, &endpoint, unsafe.Pointer(unsafe.SliceData(blob)), &bytes, &theirs)
	if status < 0 {
		return 0, nil, fromC(op, status, &theirs)
	}
	return EndpointHandle(endpoint.bits), blob[:bytes:bytes], nil
}

// Join connects an endpoint of Blob with the blob of its peer; a CompletionConnected follows. It may block while the system looks
// for the peer's address on the network (ARP). What is no blob is an ErrProtocol, and changes nothing.
func (r *RawContext) Join(endpoint EndpointHandle, peer []byte) error {
	const op = "join"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if len(peer) == 0 || len(peer) > C.CRPC_BLOB_BYTES_MAX {
		return errorf(op, ErrProtocol, "%d bytes are no blob; one has 1 to %d", len(peer), C.CRPC_BLOB_BYTES_MAX)
	}
	theirs := newCError()
	status := C.crpc_endpoint_join(r.handle, endpoint.c(), unsafe.Pointer(unsafe.SliceData(peer)), C.uint32_t(len(peer)), &theirs)
	if status < 0 {
		return fromC(op, status, &theirs)
	}
	return nil
}
