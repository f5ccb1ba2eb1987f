// channel.go: channels: connecting, taking leave, closing, asking. message.go has what travels over them.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"errors"
)

// Channel carries messages both ways between two processes, from registered memory straight into registered memory, and stripes large
// ones over two rails. The receiver posts receives, in the order in which messages are to come. All methods may be called from any
// goroutine; those of a Channel that was never connected, or is closed, fail with ErrClosed.
type Channel struct {
	channel *channel
}

// channel is what a Channel is to the poller, which keeps it from the garbage collector.
type channel struct {
	handle   ChannelHandle
	settings *settings
	rails    chan RailEvent

	// Guarded by the poller's mutex.
	leaving bool         // Shutdown: it takes leave when what was posted before is on its way
	limits  ChannelInfo  // as it was connected
	last    ChannelStats // when it was over

	link // its mutex guards what follows, of callers and poller

	shut      bool // Shutdown: nothing new is taken
	lastID    uint64
	transfers map[uint64]*Transfer
	cancels   []uint64
	receives  opQueue
	sends     opQueue
	staging   []*region // for SendBytes and ReceiveBytes, that nobody uses
}

// RailEvent tells that a rail of a channel was lost, or is used again. No message is lost by it.
type RailEvent struct {
	Rail int
	Up   bool
}

// railEventsKept is how many of them wait for a reader; of more, the oldest are dropped.
const railEventsKept = 16

func newChannel(p *poller, op string, s *settings, release func()) *channel {
	c := &channel{settings: s, transfers: map[uint64]*Transfer{}, rails: make(chan RailEvent, railEventsKept)}
	c.link.init(p, op, release)
	return c
}

// DialChannel connects to a listener of ListenChannels, "host:port" of its rail 0, and waits until that is done, refused, or ctx is
// done. It uses a context with rails that all share who name the same ones (WithRails), or none; WithContext uses another. Memory comes
// from [Channel.NewRegion] or the context's.
func DialChannel(ctx context.Context, address string, options ...Option) (*Channel, error) {
	op := "dial channel " + address
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
	}
	if ctx.Err() != nil {
		return nil, contextError(op, ctx)
	}
	s.within(ctx)
	c, err := startChannel(op, s, func(c *channel) (err error) {
		c.handle, err = c.poller.raw.connectChannel(op, address, c.id, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	channel, err := c.wait(ctx)
	if err != nil {
		letGo(c.release)
		return nil, err
	}
	return channel, nil
}

// DialChannel is [DialChannel] on this context, which must have rails.
func (c *Context) DialChannel(ctx context.Context, address string, options ...Option) (*Channel, error) {
	if _, err := c.valid("dial channel " + address); err != nil {
		return nil, err
	}
	return DialChannel(ctx, address, append(options[:len(options):len(options)], WithContext(c))...)
}

// takeRails is takeContext of a context that has rails.
func takeRails(op string, s *settings) (*poller, func(), error) {
	s.device.flags |= C.CRPC_CONTEXT_RAILS
	c, release, err := takeContext(op, s)
	if err != nil {
		return nil, nil, err
	}
	if !c.poller.rails && !c.poller.closed.Load() {
		letGo(release)
		return nil, nil, errorf(op, ErrState, "this Context has no rails: give Open the option WithRails")
	}
	return c.poller, release, nil
}

// startChannel makes a channel with `begin`, which talks to C and sets its handle.
func startChannel(op string, s *settings, begin func(c *channel) error) (*channel, error) {
	p, release, err := takeRails(op, s)
	if err != nil {
		return nil, err
	}
	c := newChannel(p, op, s, release)
	if err := p.control(op, func() error { return c.begin(begin) }); err != nil {
		letGo(release)
		return nil, err
	}
	return c, nil
}

// begin makes the poller know it. The poller's mutex is held.
func (c *channel) begin(talk func(c *channel) error) error {
	c.id = c.poller.newID()
	if err := talk(c); err != nil {
		return err
	}
	c.poller.channels[c.id] = c
	return nil
}

func (c *channel) wait(ctx context.Context) (*Channel, error) {
	if err := c.established(ctx, c.end); err != nil {
		return nil, err
	}
	channel := &Channel{channel: c}
	warnIfLost(channel, c.open, "a Channel", c.op)
	return channel, nil
}

// ---- What the poller hears ----------------------------------------------------------------------

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
		if done.Status != 0 {
			c.finish(c.whyNot(c.op, Status(done.Status)))
			return
		}
		c.limits, _ = c.poller.raw.ChannelInfo(c.handle)
		close(c.connected)
	case CompletionDisconnected:
		if done.Status == 0 {
			c.finish(errorf("", ErrDisconnected, "both sides have taken leave"))
			return
		}
		c.finish(c.whyNot("", Status(done.Status)))
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

func (c *channel) whyNot(op string, status Status) *Error {
	if e := c.poller.raw.channelError(op, c.handle); e != nil {
		return e
	}
	return newError(op, status)
}

// finish closes the channel and ends all that waits for it: nothing lands in buffers any more. The poller's mutex is held.
func (c *channel) finish(reason *Error) {
	p := c.poller
	delete(p.channels, c.id)
	c.last, _ = p.raw.ChannelStats(c.handle)
	p.raw.CloseChannel(c.handle)
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

// end is finish from outside of the poller; nothing happens if it is over.
func (c *channel) end(reason *Error) {
	c.poller.control("close", func() error {
		if c.poller.channels[c.id] == c {
			c.finish(reason)
		}
		return nil
	})
}

// ---- Leaving ------------------------------------------------------------------------------------

// Close ends the channel at once. What is open fails with ErrClosed, and its buffers may be used again. Closing twice is allowed.
func (ch *Channel) Close() error {
	if ch == nil || ch.channel == nil || ch.channel.closed.Swap(true) {
		return nil
	}
	ch.channel.letGo("the Channel was closed")
	return nil
}

// letGo ends it by this side, and tells a shared context.
func (c *channel) letGo(why string) {
	c.end(&Error{Status: ErrClosed, Message: why})
	letGo(c.release)
}

// Shutdown takes leave: it refuses new messages, lets sends finish for which the peer posts receives, then disconnects, and closes;
// receives that are still open fail with ErrDisconnected. If ctx is done before that, it disconnects all the same, and returns why.
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
	err = c.poller.control(op, func() error {
		if c.poller.channels[c.id] == c {
			c.leaving = true
			c.enlistLocking()
		}
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-c.gone:
		return nil
	case <-ctx.Done():
		c.end(&Error{Status: ErrDisconnected, Message: "leave was not taken in the time given"})
		return contextError(op, ctx)
	}
}

// leave is Shutdown's, after what was posted before is on its way. The poller's mutex is held.
func (c *channel) leave() {
	c.leaving = false
	err := c.poller.raw.DisconnectChannel(c.handle, Forever)
	if err != nil && !errors.Is(err, ErrState) { // ErrState: it is over, and says so by itself
		c.finish(&Error{Status: ErrDisconnected, Message: err.Error()})
	}
}

// Done is closed when the channel is over, by either side or by failure.
func (ch *Channel) Done() <-chan struct{} {
	if ch == nil || ch.channel == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	return ch.channel.gone
}

// Err tells why the channel is over; nil while it is not.
func (ch *Channel) Err() error {
	c, err := ch.valid("channel")
	if err != nil {
		return err
	}
	select {
	case <-c.gone:
		return c.why("channel")
	default:
		return nil
	}
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

// Info tells about the channel; of one that is over, as it was when it was connected, but for the state.
func (ch *Channel) Info() (ChannelInfo, error) {
	const op = "channel info"
	c, err := ch.valid(op)
	if err != nil {
		return ChannelInfo{}, err
	}
	info := c.limits
	info.State = StateDisconnected
	c.poller.control(op, func() error {
		if c.poller.channels[c.id] == c {
			info, err = c.poller.raw.ChannelInfo(c.handle)
		}
		return nil
	})
	return info, err
}

// Stats reads the channel's counters; of one that is over, the last.
func (ch *Channel) Stats() (ChannelStats, error) {
	const op = "channel stats"
	c, err := ch.valid(op)
	if err != nil {
		return ChannelStats{}, err
	}
	var stats ChannelStats
	err = c.poller.control(op, func() error {
		if c.poller.channels[c.id] != c {
			stats = c.last
			return nil
		}
		var err error
		stats, err = c.poller.raw.ChannelStats(c.handle)
		return err
	})
	return stats, err
}

// SetShare has rail 0 carry so many parts of 1024 of each large buffer that is sent from now on.
func (ch *Channel) SetShare(rail0 int) error {
	const op = "set share"
	c, err := ch.valid(op)
	if err != nil {
		return err
	}
	return c.poller.control(op, func() error {
		if c.poller.channels[c.id] != c {
			return c.why(op)
		}
		return c.poller.raw.SetShare(c.handle, rail0)
	})
}

// RailEvents tells of rails that were lost, and of those used again. It is closed when the channel is over. It holds 16 of them; if
// nobody reads, the oldest are dropped. Info tells how the rails are now.
func (ch *Channel) RailEvents() <-chan RailEvent {
	if ch == nil || ch.channel == nil {
		none := make(chan RailEvent)
		close(none)
		return none
	}
	return ch.channel.rails
}

// NewRegion is [Context.NewRegion] in the channel's context, with the access that receives need. It has a Close of its own: the
// channel's does not end it.
func (ch *Channel) NewRegion(bytes int) (*Region, error) {
	c, err := ch.valid(opRegister)
	if err != nil {
		return nil, err
	}
	var release func()
	if c.release != nil { // the context is shared: it stays for the region too
		if _, release, err = takeContext(opRegister, c.settings); err != nil {
			return nil, err
		}
	}
	return newRegion(c.poller, bytes, LocalWrite|RemoteWrite, release)
}
