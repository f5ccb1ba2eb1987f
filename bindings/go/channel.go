// channel.go: channels: connecting, taking leave, closing, asking. message.go has what travels over them.

package copyrpc

import (
	"context"
	"errors"
)

// Channel carries messages between two processes, in both directions, directly from registered
// memory to registered memory. It stripes large messages over two rails. The receiver posts
// receives in the order in which it expects messages. All methods may be called from any goroutine.
// Methods of a Channel that was never connected, or is closed, return ErrClosed.
type Channel struct {
	channel *channel
}

// channel is what a Channel is to the poller, which keeps it from the garbage collector.
type channel struct {
	settings *settings
	rails    chan RailEvent

	// Guarded by the poller's mutex.
	leaving bool         // Shutdown: it takes leave when what was posted before is on its way
	limits  ChannelInfo  // as it was connected, but for the state
	last    ChannelStats // when it was over

	link // its mutex guards what follows, of callers and poller

	shut      bool // Shutdown: nothing new is taken
	lastID    uint64
	transfers map[uint64]*Transfer
	receives  opQueue
	sends     opQueue
	staging   []*region // for SendBytes and ReceiveBytes, that nobody uses
}

// RailEvent reports that a rail of a channel was lost, or came into use. No message is lost.
type RailEvent struct {
	Rail int
	Up   bool
}

// railEventsKept is how many of them wait for a reader; of more, the oldest are dropped.
const railEventsKept = 16

func newChannel() *channel {
	c := &channel{transfers: map[uint64]*Transfer{}, rails: make(chan RailEvent, railEventsKept)}
	c.self, c.kind = c, channels
	return c
}

func (c *channel) shown(err error) (*Channel, error) {
	return shown(&c.link, &Channel{channel: c}, "a Channel", err)
}

// DialChannel connects to a listener of ListenChannels, at "host:port" on its rail 0. It waits
// until the channel is connected or refused, or ctx is done. Callers that name the same rails
// (WithRails) share a context; so do callers that name none. WithContext uses another context.
// Memory comes from [Channel.NewRegion] or from the context.
func DialChannel(ctx context.Context, address string, options ...Option) (*Channel, error) {
	c := newChannel()
	return c.shown(c.dial(ctx, "dial channel "+address, address, options))
}

// DialChannel does the same as [DialChannel], on this context, which must have rails.
func (c *Context) DialChannel(ctx context.Context, address string, options ...Option) (*Channel, error) {
	return DialChannel(ctx, address, c.among(options)...)
}

// ---- What the poller hears ----------------------------------------------------------------------

func (c *channel) begun(s *settings) {
	c.settings = s
	c.poller.channels[c.id] = c
}

func (c *channel) readLimits() {
	c.limits, _ = c.poller.raw.ChannelInfo(ChannelHandle(c.handle))
	c.limits.State = StateDisconnected // for Info, when that is so
}

func (c *channel) spread(done *Completion) {
	switch done.Kind {
	case CompletionSent, CompletionReceived:
		c.mutex.Lock()
		c.completed(done.UserData, Status(done.Status), int(done.PayloadBytes))
		c.mutex.Unlock()
	case CompletionRoom:
		c.receives.blocked, c.sends.blocked = false, false
		c.enlistLocking()
	case CompletionRail:
		c.railEvent(RailEvent{Rail: int(done.Token), Up: done.Status == 0})
	case CompletionConnected:
		c.connectedWith(Status(done.Status))
	case CompletionDisconnected:
		c.disconnected(Status(done.Status))
	}
}

func (c *channel) railEvent(event RailEvent) {
	for {
		select {
		case c.rails <- event:
			return
		default:
		}
		select {
		case <-c.rails:
		default:
		}
	}
}

// After finish, nothing lands in buffers any more.
func (c *channel) finish(reason *Error) {
	p := c.poller
	delete(p.channels, c.id)
	c.last, _ = p.raw.ChannelStats(ChannelHandle(c.handle))
	p.raw.CloseChannel(ChannelHandle(c.handle))
	c.mutex.Lock()
	if !c.overWith(reason) {
		c.mutex.Unlock()
		return
	}
	spare := c.staging
	for _, t := range c.transfers {
		t.failAll(reason)
		if t.staging != nil {
			spare = append(spare, t.staging)
		}
	}
	c.transfers, c.cancels, c.staging = nil, nil, nil
	c.receives.free()
	c.sends.free()
	c.mutex.Unlock()
	for _, own := range spare {
		go own.close() // which takes the poller's mutex
	}
	close(c.gone)
	close(c.rails)
}

// ---- Leaving ------------------------------------------------------------------------------------

// Close ends the channel at once. Open transfers fail with ErrClosed, and their buffers may be used
// again. Closing twice is allowed.
func (ch *Channel) Close() error {
	if ch != nil && ch.channel != nil {
		ch.channel.close("the Channel was closed")
	}
	return nil
}

// Shutdown disconnects gracefully, and then closes the channel. It refuses new messages. Open sends
// finish as the peer posts receives for them; receives that are still open fail with
// ErrDisconnected. If ctx is done first, Shutdown disconnects at once, and returns the reason.
func (ch *Channel) Shutdown(ctx context.Context) error {
	const op = "shutdown"
	c, err := ch.valid(op)
	if err != nil {
		return err
	}
	defer ch.Close()
	c.mutex.Lock()
	c.shut = true
	c.mutex.Unlock()
	err = c.shutdown(ctx, op, func() error {
		c.leaving = true
		c.enlistLocking()
		return nil
	})
	if err != nil {
		c.end(&Error{Status: ErrDisconnected, Message: "leave was not taken in the time given"})
	}
	return err
}

// leave is Shutdown's, after what was posted before is on its way. The poller's mutex is held.
func (c *channel) leave() {
	c.leaving = false
	err := c.poller.raw.DisconnectChannel(ChannelHandle(c.handle), Forever)
	if err != nil && !errors.Is(err, ErrState) { // ErrState: it is over, and says so by itself
		c.finish(&Error{Status: ErrDisconnected, Message: err.Error()})
	}
}

// Done returns a Go channel that is closed when this channel has ended, whether by either side or
// by a failure.
func (ch *Channel) Done() <-chan struct{} {
	if ch == nil || ch.channel == nil {
		return alreadyOver
	}
	return ch.channel.gone
}

// Err returns why the channel has ended, or nil if it has not.
func (ch *Channel) Err() error {
	c, err := ch.valid("channel")
	if err != nil {
		return err
	}
	return c.err("channel")
}

func (ch *Channel) valid(op string) (*channel, error) {
	if ch == nil || ch.channel == nil {
		return nil, errorf(op, ErrClosed, "this Channel was never connected: make it with DialChannel or Accept")
	}
	if ch.channel.closed.Load() {
		return nil, errorf(op, ErrClosed, "the Channel was closed")
	}
	return ch.channel, nil
}

// ---- Asking and steering ------------------------------------------------------------------------

// Info describes the channel. After its end, it describes the channel as it was while connected,
// except for the state.
func (ch *Channel) Info() (ChannelInfo, error) {
	c, err := ch.valid("channel info")
	if err != nil {
		return ChannelInfo{}, err
	}
	return infoOf(&c.link, c.limits, (*RawContext).ChannelInfo)
}

// Stats reads the counters of the channel. After its end, it returns their last values.
func (ch *Channel) Stats() (ChannelStats, error) {
	const op = "channel stats"
	c, err := ch.valid(op)
	if err != nil {
		return ChannelStats{}, err
	}
	return countersOf(&c.link, op, &c.last, (*RawContext).ChannelStats)
}

// SetShare makes rail 0 carry rail0 / 1024 of each large buffer that is sent from now on.
func (ch *Channel) SetShare(rail0 int) error {
	const op = "set share"
	c, err := ch.valid(op)
	if err != nil {
		return err
	}
	return c.poller.control(op, func() error {
		if c.over {
			return c.why(op)
		}
		return c.poller.raw.SetShare(ChannelHandle(c.handle), rail0)
	})
}

// RailEvents returns a Go channel with changes of the rails. It is closed when this channel has
// ended. It keeps 16 events; if nobody reads them, the oldest are dropped. Info tells the present
// state of the rails.
func (ch *Channel) RailEvents() <-chan RailEvent {
	if ch == nil || ch.channel == nil {
		none := make(chan RailEvent)
		close(none)
		return none
	}
	return ch.channel.rails
}

// NewRegion does the same as [Context.NewRegion], in the channel's context, with the access that
// receives need. The region has its own Close; closing the channel does not close it.
func (ch *Channel) NewRegion(bytes int) (*Region, error) {
	c, err := ch.valid(opRegister)
	if err != nil {
		return nil, err
	}
	var release func()
	if c.release != nil { // the context is shared: it stays for the region too
		if _, release, err = takeContext(opRegister, c.settings, channels); err != nil {
			return nil, err
		}
	}
	return newRegion(c.poller, bytes, LocalWrite|RemoteWrite, release)
}
