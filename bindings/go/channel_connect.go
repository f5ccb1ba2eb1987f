// channel_connect.go: those who want channels: listeners, and blobs.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
)

// ChannelListener waits for peers that want channels. All methods may be called from any goroutine.
type ChannelListener struct {
	listener Listener // of which only the acceptor counts
}

// ChannelRequest is a peer that wants a channel: accept or reject it.
type ChannelRequest struct {
	Info    ChannelInfo // PeerAddress and Token are the peer's
	request *ConnectRequest
}

// ListenChannels listens on an address of rail 0, as [Listen], for peers that want channels. The options also hold for the channels that
// it accepts. Contexts are shared as by [DialChannel].
func ListenChannels(address string, options ...Option) (*ChannelListener, error) {
	op := "listen for channels " + address
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
	}
	s.listener |= C.CRPC_LISTENER_CHANNELS
	_, release, err := takeRails(op, s)
	if err != nil {
		return nil, err
	}
	defer letGo(release) // what listen takes is another one's
	a, err := listen(op, address, s, options)
	if err != nil {
		return nil, err
	}
	l := &ChannelListener{listener: Listener{acceptor: a}}
	warnIfLost(l, a.open, "a ChannelListener", "listen "+a.address)
	return l, nil
}

// ListenChannels is [ListenChannels] on this context, which must have rails.
func (c *Context) ListenChannels(address string, options ...Option) (*ChannelListener, error) {
	if _, err := c.valid("listen for channels " + address); err != nil {
		return nil, err
	}
	return ListenChannels(address, append(options[:len(options):len(options)], WithContext(c))...)
}

// inner is the Listener that does the work; of none, none.
func (l *ChannelListener) inner() *Listener {
	if l == nil {
		return nil
	}
	return &l.listener
}

// Address tells where it listens, e.g. "192.0.2.1:47110".
func (l *ChannelListener) Address() string { return l.inner().Address() }

// Stats reads the listener's counters.
func (l *ChannelListener) Stats() (ListenerStats, error) { return l.inner().Stats() }

// Close stops listening. Channels made stay; peers that were not accepted yet are rejected. Closing twice is allowed.
func (l *ChannelListener) Close() error { return l.inner().Close() }

// AcceptRequest waits for a peer that wants a channel, for those who choose whom to accept.
func (l *ChannelListener) AcceptRequest(ctx context.Context) (*ChannelRequest, error) {
	request, err := l.inner().AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	return &ChannelRequest{Info: request.channel, request: request}, nil
}

// Accept waits for a peer and connects with it. What goes wrong with one peer is returned as an *Error whose status is not
// ErrClosed, and the next may be accepted.
func (l *ChannelListener) Accept(ctx context.Context, options ...Option) (*Channel, error) {
	request, err := l.AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	return request.Accept(ctx, options...)
}

// Accept connects with the peer.
func (request *ChannelRequest) Accept(ctx context.Context, options ...Option) (*Channel, error) {
	op := "accept channel " + request.Info.PeerAddress
	r := request.request
	if r == nil || r.answered.Swap(true) {
		return nil, errorf(op, ErrStale, "this ChannelRequest was answered already, or is none")
	}
	a := r.acceptor
	s, problem := settingsOf(op, append(a.options[:len(a.options):len(a.options)], options...))
	if problem != nil {
		r.answered.Store(false)
		return nil, problem
	}
	s.endpoint.token_bytes = 0 // it is for the connecting side
	p := a.poller
	c := newChannel(p, op, s, nil)
	err := p.control(op, func() error {
		return c.begin(func(c *channel) error {
			c.handle = ChannelHandle(r.endpoint)
			err := p.raw.acceptChannel(op, c.handle, c.id, s)
			if err != nil {
				p.raw.CloseChannel(c.handle)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// Reject refuses the peer: its DialChannel fails with ErrRefused and shows `reason`, any number.
func (request *ChannelRequest) Reject(reason uint32) error {
	const op = "reject channel"
	r := request.request
	if r == nil || r.answered.Swap(true) {
		return errorf(op, ErrStale, "this ChannelRequest was answered already, or is none")
	}
	p := r.acceptor.poller
	return p.control(op, func() error { return p.raw.RejectChannel(ChannelHandle(r.endpoint), reason) })
}

// ---- Without rdma_cm ----------------------------------------------------------------------------

// ChannelBlob is this side's half of a channel that is made without rdma_cm, as a [Blob] is an endpoint's.
type ChannelBlob struct {
	Bytes []byte // what the peer needs to know, at most 256 bytes

	channel *channel
	mutex   sync.Mutex   // of one Join at a time
	joined  *atomic.Bool // the Channel has it now, or nobody; not in here, so that the finalizer does not hold on to this
}

// NewChannelBlob makes one side of a channel. Contexts are shared as by [DialChannel]. The options are those of DialChannel, except for
// the token.
func NewChannelBlob(options ...Option) (*ChannelBlob, error) {
	const op = "channel blob"
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
	}
	s.endpoint.token_bytes = 0 // there is nobody to be shown it
	joined := &atomic.Bool{}
	b := &ChannelBlob{joined: joined}
	c, err := startChannel(op, s, func(c *channel) (err error) {
		c.handle, b.Bytes, err = c.poller.raw.channelBlob(op, c.id, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.channel = c
	warnIfLost(b, func() bool { return !joined.Load() && c.open() }, "a ChannelBlob", op)
	return b, nil
}

// NewChannelBlob is [NewChannelBlob] on this context, which must have rails.
func (c *Context) NewChannelBlob(options ...Option) (*ChannelBlob, error) {
	if _, err := c.valid("channel blob"); err != nil {
		return nil, err
	}
	return NewChannelBlob(append(options[:len(options):len(options)], WithContext(c))...)
}

// Join connects with the peer whose ChannelBlob had these Bytes, and waits until that is done or ctx is; both sides must join. What is
// no blob, or damaged, is an ErrProtocol, and another may be joined instead; after any other failure the ChannelBlob is used up.
func (b *ChannelBlob) Join(ctx context.Context, peer []byte) (*Channel, error) {
	const op = "join channel"
	if b == nil || b.channel == nil {
		return nil, errorf(op, ErrClosed, "this ChannelBlob was never made: make it with NewChannelBlob")
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.joined.Load() {
		return nil, errorf(op, ErrState, "this ChannelBlob was joined already, or closed")
	}
	if ctx.Err() != nil {
		return nil, contextError(op, ctx)
	}
	c := b.channel
	if err := c.poller.control(op, func() error { return c.poller.raw.JoinChannel(c.handle, peer) }); err != nil {
		return nil, err
	}
	b.joined.Store(true)
	channel, err := c.wait(ctx)
	if err != nil {
		c.letGo("it could not be joined")
		return nil, err
	}
	return channel, nil
}

// Close gives up what was not joined; a Channel that came of it has its own Close. Closing twice is allowed.
func (b *ChannelBlob) Close() error {
	if b == nil || b.channel == nil || b.joined.Swap(true) {
		return nil
	}
	b.channel.letGo("the ChannelBlob was closed")
	return nil
}
