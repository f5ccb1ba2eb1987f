// channel_connect.go: those who want channels: listeners, and blobs.

package copyrpc

import "context"

// ChannelListener waits for peers that want to connect channels. All methods may be called from any
// goroutine.
type ChannelListener struct {
	listener Listener // of which only the acceptor counts
}

// ChannelRequest is a peer that wants to connect a channel. Accept or reject it.
type ChannelRequest struct {
	Info    ChannelInfo // PeerAddress and Token are the peer's
	request *ConnectRequest
}

// ListenChannels listens for channels on an address of rail 0, as [Listen] does for endpoints. The
// options also apply to the channels that it accepts. Contexts are shared as by [DialChannel].
func ListenChannels(address string, options ...Option) (*ChannelListener, error) {
	a, err := listen(channels, "listen for channels "+address, address, options)
	if err != nil {
		return nil, err
	}
	l := &ChannelListener{listener: Listener{acceptor: a}}
	warnIfLost(l, a.open, "a ChannelListener", "listen "+a.address)
	return l, nil
}

// ListenChannels does the same as [ListenChannels], on this context, which must have rails.
func (c *Context) ListenChannels(address string, options ...Option) (*ChannelListener, error) {
	return ListenChannels(address, c.among(options)...)
}

// inner is the Listener that does the work; of none, none.
func (l *ChannelListener) inner() *Listener {
	if l == nil {
		return nil
	}
	return &l.listener
}

// Address returns the address of the listener, e.g. "192.0.2.1:47110".
func (l *ChannelListener) Address() string { return l.inner().Address() }

// Stats reads the counters of the listener.
func (l *ChannelListener) Stats() (ListenerStats, error) { return l.inner().Stats() }

// Close stops listening. Accepted channels stay; peers that still wait are rejected. Closing twice
// is allowed.
func (l *ChannelListener) Close() error { return l.inner().Close() }

// AcceptRequest waits for a peer that wants to connect, and lets the caller decide whether to
// accept it.
func (l *ChannelListener) AcceptRequest(ctx context.Context) (*ChannelRequest, error) {
	request, err := l.inner().AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	return &ChannelRequest{Info: request.channel, request: request}, nil
}

// Accept waits for a peer and connects with it. If connecting to one peer fails, Accept returns an
// *Error whose status is not ErrClosed, and may be called again.
func (l *ChannelListener) Accept(ctx context.Context, options ...Option) (*Channel, error) {
	request, err := l.AcceptRequest(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := request.Accept(ctx, options...)
	request.request.rejectUnanswered()
	return channel, err
}

// Accept connects with the peer. If it fails, the peer is refused; only options with values out of
// range leave the request as it was.
func (request *ChannelRequest) Accept(ctx context.Context, options ...Option) (*Channel, error) {
	c := newChannel()
	return c.shown(request.request.accept(ctx, "accept channel "+request.Info.PeerAddress, "ChannelRequest", &c.link, options))
}

// Reject refuses the peer. The peer's DialChannel fails with ErrRefused and shows `reason`, which
// may be any number.
func (request *ChannelRequest) Reject(reason uint32) error {
	return request.request.reject("reject channel", "ChannelRequest", reason)
}

// ---- Without rdma_cm ----------------------------------------------------------------------------

// ChannelBlob is one side of a channel that is made without rdma_cm, as [Blob] is for an endpoint.
type ChannelBlob struct {
	Bytes []byte // what the peer needs to know, at most 256 bytes

	channel *channel
	half    *half
}

// NewChannelBlob makes one side of a channel. Contexts are shared as by [DialChannel]. The options
// are those of DialChannel.
func NewChannelBlob(options ...Option) (*ChannelBlob, error) {
	const op = "channel blob"
	c := newChannel()
	half, bytes, err := c.newHalf(op, options)
	if err != nil {
		return nil, err
	}
	b := &ChannelBlob{Bytes: bytes, channel: c, half: half}
	warnIfLost(b, half.open, "a ChannelBlob", op)
	return b, nil
}

// NewChannelBlob does the same as [NewChannelBlob], on this context, which must have rails.
func (c *Context) NewChannelBlob(options ...Option) (*ChannelBlob, error) {
	return NewChannelBlob(c.among(options)...)
}

// Join connects with the peer whose ChannelBlob has these Bytes. It waits until the channel is
// connected or ctx is done. Both sides must join. Bytes that are no blob, or that are damaged, give
// ErrProtocol, and other bytes may then be joined. After any other failure, the ChannelBlob cannot
// be used again.
func (b *ChannelBlob) Join(ctx context.Context, peer []byte) (*Channel, error) {
	const op, name = "join channel", "ChannelBlob"
	if b == nil || b.half == nil {
		return nil, neverMade(op, name)
	}
	return b.channel.shown(b.half.join(ctx, op, name, peer))
}

// Close gives up a ChannelBlob that was not joined. A Channel that came from Join has its own
// Close. Closing twice is allowed.
func (b *ChannelBlob) Close() error {
	if b != nil {
		b.half.close("the ChannelBlob was closed")
	}
	return nil
}
