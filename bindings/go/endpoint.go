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
	"sync/atomic"
	"time"
	"unsafe"
)

// Endpoint is one connection to one peer. Both sides may call, and both may serve. All methods may
// be called from any goroutine. Methods of an Endpoint that was never connected, or is closed,
// return ErrClosed.
type Endpoint struct {
	connection *connection
}

// connection is what an Endpoint is to the poller, which keeps it from the garbage collector.
type connection struct {
	around     CallFunc      // nil: no interceptors; not changed after `begun`, as what follows
	replyBytes int           // the default of its calls
	grace      time.Duration // that its handlers have when Serve has ended
	limits     EndpointInfo  // as it was connected, but for the state; not changed after `connected` was closed
	lane       *queue        // nil: it asked for none; not changed after `begun`
	lasting    *lasting      // nil: it is over with its connection; not changed after `begun`

	// Guarded by the poller's mutex.
	blocked bool         // CRPC_E_AGAIN; CompletionRoom will tell
	room    *Reservation // that is open: until it is not, nothing is sent, and C keeps the endpoint
	last    Stats        // when it was over
	arena   *region      // that the peer was lent

	link // its mutex guards what follows, of callers and poller

	table   callTable
	calls   gather
	answers gather // and drops and cancels
	serving serving

	overloaded  atomic.Uint64 // requests that were refused for admission
	wantsTraces atomic.Bool   // somebody has asked for the trace of a request: Request.Trace
}

func newConnection() *connection {
	c := &connection{}
	c.self, c.kind = c, endpoints
	return c
}

func (c *connection) shown(err error) (*Endpoint, error) {
	return shown(&c.link, &Endpoint{connection: c}, "an Endpoint", err)
}

// Dial connects to "host:port". It waits until the endpoint is connected or refused, or ctx is
// done. With [WithReconnect], it waits for the first connection, and takes several addresses, with commas between them. Callers that name the same device (WithDevice) share a context; so do callers that name
// none. WithContext uses another context.
func Dial(ctx context.Context, address string, options ...Option) (*Endpoint, error) {
	c := newConnection()
	return c.shown(c.whyNotYet(c.dial(ctx, "dial "+address, address, options)))
}

// Dial does the same as [Dial], on this context.
func (c *Context) Dial(ctx context.Context, address string, options ...Option) (*Endpoint, error) {
	return Dial(ctx, address, c.among(options)...)
}

// ---- What the poller hears ----------------------------------------------------------------------

func (c *connection) begun(s *settings) {
	c.replyBytes, c.grace = s.replyBytes, s.grace
	c.around, c.serving.admission = c.intercepted(s.interceptors), s.admission
	c.lasting = newLasting(s)
	c.poller.connections[c.id] = c
	if s.wantsLane() {
		c.lane = newLane(c)
	}
}

func (c *connection) readLimits() {
	c.limits, _ = c.poller.raw.EndpointInfo(EndpointHandle(c.handle))
	c.limits.State = StateDisconnected // for Info, when that is so
}

func (c *connection) finish(reason *Error) {
	p := c.poller
	delete(p.connections, c.id)
	p.latest = nil
	c.last, _ = p.raw.EndpointStats(EndpointHandle(c.handle))
	if c.lasting != nil {
		c.lasting.over(c, reason)
	}
	if c.room == nil || reason.Status == ErrClosed { // else somebody may be writing to the room
		p.raw.CloseEndpoint(EndpointHandle(c.handle))
		c.room = nil
	}
	c.mutex.Lock()
	if !c.overWith(reason) {
		c.mutex.Unlock()
		return
	}
	c.table.failAll(reason.toOps(opCall).Status)
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
	if c.lane != nil {
		c.lane.finish(reason)
	}
	close(c.gone)
	c.serving.stop(reason)
}

// ---- Leaving ------------------------------------------------------------------------------------

// Close ends the connection at once. Pending calls fail with ErrClosed. Closing twice is allowed.
func (endpoint *Endpoint) Close() error {
	if endpoint != nil && endpoint.connection != nil {
		endpoint.connection.close("the Endpoint was closed")
	}
	return nil
}

// Shutdown disconnects gracefully, and then closes the endpoint. It refuses new calls, and lets
// open calls, requests and replies of both sides finish, and ops of their lane. If ctx is done first, Shutdown closes at
// once, and returns the reason.
func (endpoint *Endpoint) Shutdown(ctx context.Context) error {
	const op = "shutdown"
	c, err := endpoint.valid(op)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	if c.lane != nil {
		c.lane.passed(ctx, op) // what was posted before; if it is over, shutdown tells
	}
	return c.shutdown(ctx, op, func() error {
		err := c.poller.raw.Disconnect(EndpointHandle(c.handle), Forever)
		if errors.Is(err, ErrState) {
			return nil // the peer was first
		}
		return err
	})
}

// Done returns a Go channel that is closed when the connection has ended, whether by either side or
// by a failure; with [WithReconnect], when the endpoint is closed.
func (endpoint *Endpoint) Done() <-chan struct{} {
	if endpoint == nil || endpoint.connection == nil {
		return alreadyOver
	}
	return endpoint.connection.gone
}

// Err returns why the connection has ended, or nil if it has not.
func (endpoint *Endpoint) Err() error {
	c, err := endpoint.valid("endpoint")
	if err != nil {
		return err
	}
	return c.err("endpoint")
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

// EndpointState is the state of an endpoint, a channel or a queue.
type EndpointState uint32

const (
	StateNew          EndpointState = C.CRPC_STATE_NEW       // of a Blob that was not joined
	StateRequested    EndpointState = C.CRPC_STATE_REQUESTED // to be accepted or rejected
	StateConnecting   EndpointState = C.CRPC_STATE_CONNECTING
	StateConnected    EndpointState = C.CRPC_STATE_CONNECTED
	StateClosing      EndpointState = C.CRPC_STATE_CLOSING      // takes leave: no new calls
	StateDisconnected EndpointState = C.CRPC_STATE_DISCONNECTED // over, by leave or by failure
)

// String returns the name of the state, e.g. "connected".
func (state EndpointState) String() string {
	names := [...]string{StateNew: "new", StateRequested: "requested", StateConnecting: "connecting", StateConnected: "connected",
		StateClosing: "closing", StateDisconnected: "disconnected"}
	if int(state) >= len(names) || names[state] == "" {
		return fmt.Sprintf("EndpointState(%d)", uint32(state))
	}
	return names[state]
}

// EndpointInfo describes an endpoint.
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
	Lane            bool   // both sides have asked for a lane
	PeerAddress     string // "" if it was connected by a Blob
	LocalAddress    string
	Token           []byte // the peer's; empty at the side that called Dial
	CallsWaiting    int    // of CallsOpen, those that wait for a connection. This and the rest: with WithReconnect
	AddressIndex    int    // which address it is, or was, connected to, or tries; 0 = the first
	AttemptsFailed  int    // to connect, one after the other, up to now
	Connections     int    // that were made: more than 1 = it has come back
}

// Info describes the endpoint. After its end, it describes the endpoint as it was while connected,
// except for the state.
func (endpoint *Endpoint) Info() (EndpointInfo, error) {
	c, err := endpoint.valid("endpoint info")
	if err != nil {
		return EndpointInfo{}, err
	}
	limits := c.limits
	if c.lasting != nil {
		c.mutex.Lock()
		limits = c.lasting.info
		c.mutex.Unlock()
	}
	return infoOf(&c.link, limits, (*RawContext).EndpointInfo)
}

// EndpointInfo describes an endpoint.
func (r *RawContext) EndpointInfo(endpoint EndpointHandle) (EndpointInfo, error) {
	info := C.crpc_endpoint_info{struct_size: C.sizeof_crpc_endpoint_info}
	err := r.ask("endpoint info", func() C.int32_t { return C.crpc_endpoint_get_info(r.handle, endpoint.c(), &info) })
	if err != nil {
		return EndpointInfo{}, err
	}
	return EndpointInfo{
		State: EndpointState(info.state), Version: int(info.version), Features: uint32(info.features), Lane: info.features&1 != 0,
		RequestBytesMax: int(info.request_bytes_max), ReplyBytesMax: int(info.reply_bytes_max),
		CallsMax: int(info.calls_max), CallsOpen: int(info.calls_open), RequestsOpen: int(info.requests_open),
		QueuePairNumber: uint32(info.queue_pair_number), PeerAddress: text(info.peer_address[:]),
		LocalAddress: text(info.local_address[:]), Token: C.GoBytes(unsafe.Pointer(&info.token), C.int(info.token_bytes)),
		CallsWaiting: int(info.calls_waiting), AddressIndex: int(info.address_index), AttemptsFailed: int(info.attempts_failed),
		Connections: int(info.connections),
	}, nil
}

// peerAddress is that of the present connection, or of the last one. `c` may be nil.
func (c *connection) peerAddress() string {
	if c == nil {
		return ""
	}
	if c.lasting == nil {
		return c.limits.PeerAddress
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.lasting.info.PeerAddress
}

// Stats reads the counters of the endpoint. After its end, it returns their last values.
func (endpoint *Endpoint) Stats() (Stats, error) {
	const op = "endpoint stats"
	c, err := endpoint.valid(op)
	if err != nil {
		return Stats{}, err
	}
	stats, err := countersOf(&c.link, op, &c.last, (*RawContext).EndpointStats)
	stats.Overloaded = c.overloaded.Load()
	return stats, err
}

// EndpointStats reads the counters of an endpoint.
func (r *RawContext) EndpointStats(endpoint EndpointHandle) (Stats, error) {
	return r.stats("endpoint stats", func(stats *C.crpc_stats) C.int32_t {
		return C.crpc_endpoint_get_stats(r.handle, endpoint.c(), stats)
	})
}
