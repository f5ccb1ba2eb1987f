// endpoint.go: endpoints: connecting, taking leave, closing, asking.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
)

// Endpoint is one connection to one peer. Both sides may call and both may serve. All methods may be called from any
// goroutine; those of an Endpoint that was never connected, or is closed, fail with ErrClosed.
type Endpoint struct {
	connection *connection
}

// connection is what an Endpoint is to the poller, which keeps it from the garbage collector.
type connection struct {
	handle     EndpointHandle
	replyBytes int          // the default of its calls
	limits     EndpointInfo // as it was connected; not changed after `connected` was closed

	// Guarded by the poller's mutex.
	blocked bool  // CRPC_E_AGAIN; CompletionRoom will tell
	last    Stats // when it was over

	link // its mutex guards what follows, of callers and poller

	table   callTable
	cancels []uint64
	calls   gather
	answers gather // and drops and cancels
	serving serving
}

// Dial connects to "host:port" and waits until that is done, refused, or ctx is done. It uses a context that all share who
// name the same device (WithDevice), or none; WithContext uses another.
func Dial(ctx context.Context, address string, options ...Option) (*Endpoint, error) {
	op := "dial " + address
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
	}
	if ctx.Err() != nil {
		return nil, contextError(op, ctx)
	}
	c, release, err := takeContext(op, s)
	if err != nil {
		return nil, err
	}
	endpoint, err := c.dial(ctx, op, address, s, release)
	if err != nil {
		letGo(release)
		return nil, err
	}
	return endpoint, nil
}

// Dial is [Dial] on this context.
func (c *Context) Dial(ctx context.Context, address string, options ...Option) (*Endpoint, error) {
	if _, err := c.valid("dial " + address); err != nil {
		return nil, err
	}
	return Dial(ctx, address, append(options[:len(options):len(options)], WithContext(c))...)
}

func (c *Context) dial(ctx context.Context, op, address string, s *settings, release func()) (*Endpoint, error) {
	p := c.poller
	connection := newConnection(p, op, s, release)
	s.within(ctx)
	err := p.control(op, func() error {
		connection.id = p.newID()
		s.endpoint.user_data = C.uint64_t(connection.id)
		var err error
		connection.handle, err = p.raw.connect(op, address, s)
		if err == nil {
			p.connections[connection.id] = connection
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return connection.wait(ctx)
}

func newConnection(p *poller, op string, s *settings, release func()) *connection {
	c := &connection{replyBytes: s.replyBytes}
	c.link.init(p, op, release)
	return c
}

// wait gives the Endpoint when it is connected.
func (c *connection) wait(ctx context.Context) (*Endpoint, error) {
	if err := c.established(ctx, c.end); err != nil {
		return nil, err
	}
	endpoint := &Endpoint{connection: c}
	warnIfLost(endpoint, c.open, "an Endpoint", c.op)
	return endpoint, nil
}

// ---- What the poller hears ----------------------------------------------------------------------

func (c *connection) connectedWith(status Status) {
	if status != OK {
		c.finish(c.whyNot(c.op, status))
		return
	}
	c.limits, _ = c.poller.raw.EndpointInfo(c.handle)
	close(c.connected)
}

func (c *connection) disconnected(status Status) {
	if status == OK {
		c.finish(errorf("", ErrDisconnected, "both sides have taken leave"))
		return
	}
	c.finish(c.whyNot("", status))
}

func (c *connection) whyNot(op string, status Status) *Error {
	if e := c.poller.raw.endpointError(op, c.handle); e != nil {
		return e
	}
	return newError(op, status)
}

// finish closes the endpoint and ends all that waits for it. The poller's mutex is held.
func (c *connection) finish(reason *Error) {
	p := c.poller
	delete(p.connections, c.id)
	p.latest = nil
	c.last, _ = p.raw.EndpointStats(c.handle)
	p.raw.CloseEndpoint(c.handle)
	c.mutex.Lock()
	if !c.overWith(reason) {
		c.mutex.Unlock()
		return
	}
	c.table.failAll(reason.Status)
	c.cancels = nil
	c.serving.backlog = nil
	for _, g := range []*gather{&c.calls, &c.answers} {
		for _, b := range []*batch{g.open, g.sending} {
			if b != nil {
				p.putBatch(b)
			}
		}
		*g = gather{}
	}
	c.mutex.Unlock()
	close(c.gone)
	c.serving.stop()
}

// end is finish from outside of the poller; nothing happens if it is over.
func (c *connection) end(reason *Error) {
	c.poller.control("close", func() error {
		if c.poller.connections[c.id] == c {
			c.finish(reason)
		}
		return nil
	})
}

// ---- Leaving ------------------------------------------------------------------------------------

// Close ends the connection at once. Calls that are pending fail with ErrClosed. Closing twice is allowed.
func (endpoint *Endpoint) Close() error {
	if endpoint == nil || endpoint.connection == nil || endpoint.connection.closed.Swap(true) {
		return nil
	}
	endpoint.connection.letGo("the Endpoint was closed")
	return nil
}

// letGo ends the connection by this side, and tells a shared context.
func (c *connection) letGo(why string) {
	c.end(&Error{Status: ErrClosed, Message: why})
	letGo(c.release)
}

// Shutdown takes leave: it refuses new calls, lets calls, requests and replies under way finish on both sides, then
// disconnects, and closes. If ctx is done before that, it closes all the same, and returns why.
func (endpoint *Endpoint) Shutdown(ctx context.Context) error {
	const op = "shutdown"
	c, err := endpoint.valid(op)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	err = c.poller.control(op, func() error {
		if c.poller.connections[c.id] != c {
			return nil // it is over: there is nobody to take leave of
		}
		err := c.poller.raw.Disconnect(c.handle, Forever)
		if errors.Is(err, ErrState) {
			return nil // the peer was first
		}
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-c.gone:
		return nil
	case <-ctx.Done():
		return contextError(op, ctx)
	}
}

// Done is closed when the connection is over, by either side or by failure.
func (endpoint *Endpoint) Done() <-chan struct{} {
	if endpoint == nil || endpoint.connection == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	return endpoint.connection.gone
}

// Err tells why the connection is over; nil while it is not.
func (endpoint *Endpoint) Err() error {
	c, err := endpoint.valid("endpoint")
	if err != nil {
		return err
	}
	select {
	case <-c.gone:
		return c.why("endpoint")
	default:
		return nil
	}
}

func (endpoint *Endpoint) valid(op string) (*connection, error) {
	if endpoint == nil || endpoint.connection == nil {
		return nil, errorf(op, ErrClosed, "this Endpoint was never connected: make it with Dial or Accept")
	}
	if endpoint.connection.closed.Load() {
		return nil, errorf(op, ErrClosed, "the Endpoint was closed")
	}
	return endpoint.connection, nil
}

// ---- Asking -------------------------------------------------------------------------------------

// EndpointState is how far an endpoint has come.
type EndpointState uint32

const (
	StateNew          EndpointState = C.CRPC_STATE_NEW       // of a Blob that was not joined
	StateRequested    EndpointState = C.CRPC_STATE_REQUESTED // to be accepted or rejected
	StateConnecting   EndpointState = C.CRPC_STATE_CONNECTING
	StateConnected    EndpointState = C.CRPC_STATE_CONNECTED
	StateClosing      EndpointState = C.CRPC_STATE_CLOSING      // takes leave: no new calls
	StateDisconnected EndpointState = C.CRPC_STATE_DISCONNECTED // over, by leave or by failure
)

// String names the state, e.g. "connected".
func (state EndpointState) String() string {
	names := [...]string{StateNew: "new", StateRequested: "requested", StateConnecting: "connecting", StateConnected: "connected",
		StateClosing: "closing", StateDisconnected: "disconnected"}
	if int(state) >= len(names) || names[state] == "" {
		return fmt.Sprintf("EndpointState(%d)", uint32(state))
	}
	return names[state]
}

// EndpointInfo tells about an endpoint.
type EndpointInfo struct {
	State           EndpointState
	RequestBytesMax int // the longest request that the peer takes
	ReplyBytesMax   int // the longest reply that a call may ask for
	CallsMax        int
	CallsOpen       int
	RequestsOpen    int
	QueuePairNumber uint32
	Version         int    // of the wire protocol
	Features        uint32 // agreed on
	PeerAddress     string // "" if it was connected by a Blob
	LocalAddress    string
	Token           []byte // the peer's, at the accepting side
}

// Info tells about the endpoint; of one that is over, as it was when it was connected, but for the state.
func (endpoint *Endpoint) Info() (EndpointInfo, error) {
	c, err := endpoint.valid("endpoint info")
	if err != nil {
		return EndpointInfo{}, err
	}
	info := c.limits
	info.State = StateDisconnected
	c.poller.control("endpoint info", func() error {
		if c.poller.connections[c.id] == c {
			info, err = c.poller.raw.EndpointInfo(c.handle)
		}
		return nil
	})
	return info, err
}

// EndpointInfo tells about an endpoint.
func (r *RawContext) EndpointInfo(endpoint EndpointHandle) (EndpointInfo, error) {
	const op = "endpoint info"
	if r == nil || r.handle == nil {
		return EndpointInfo{}, newError(op, ErrClosed)
	}
	info := C.crpc_endpoint_info{struct_size: C.sizeof_crpc_endpoint_info}
	if status := C.crpc_endpoint_get_info(r.handle, endpoint.c(), &info); status < 0 {
		return EndpointInfo{}, newError(op, Status(status))
	}
	token := make([]byte, info.token_bytes)
	for i := range token {
		token[i] = byte(info.token[i])
	}
	return EndpointInfo{
		State: EndpointState(info.state), Version: int(info.version), Features: uint32(info.features),
		RequestBytesMax: int(info.request_bytes_max), ReplyBytesMax: int(info.reply_bytes_max),
		CallsMax: int(info.calls_max), CallsOpen: int(info.calls_open), RequestsOpen: int(info.requests_open),
		QueuePairNumber: uint32(info.queue_pair_number), PeerAddress: text(info.peer_address[:]),
		LocalAddress: text(info.local_address[:]), Token: token,
	}, nil
}

// Stats reads the endpoint's counters; of one that is over, the last.
func (endpoint *Endpoint) Stats() (Stats, error) {
	c, err := endpoint.valid("endpoint stats")
	if err != nil {
		return Stats{}, err
	}
	var stats Stats
	err = c.poller.control("endpoint stats", func() error {
		if c.poller.connections[c.id] != c {
			stats = c.last
			return nil
		}
		var err error
		stats, err = c.poller.raw.EndpointStats(c.handle)
		return err
	})
	return stats, err
}

// EndpointStats reads the endpoint's counters.
func (r *RawContext) EndpointStats(endpoint EndpointHandle) (Stats, error) {
	const op = "endpoint stats"
	if r == nil || r.handle == nil {
		return Stats{}, newError(op, ErrClosed)
	}
	stats := C.crpc_stats{struct_size: C.sizeof_crpc_stats}
	if status := C.crpc_endpoint_get_stats(r.handle, endpoint.c(), &stats); status < 0 {
		return Stats{}, newError(op, Status(status))
	}
	return statsOf(&stats), nil
}
