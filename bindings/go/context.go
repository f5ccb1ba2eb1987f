// context.go: contexts: opening, sharing, closing, asking.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sort"
	"sync"
	"unsafe"
)

// Context is one opened RDMA device, and a goroutine that polls it. [Context.Dial] and
// [Context.Listen] make endpoints and listeners from it. All methods may be called from any
// goroutine.
type Context struct {
	poller *poller
}

// Open opens a device. Programs that do not care which device they use can call [Dial] and
// [Listen], which share one context per device.
func Open(options ...Option) (*Context, error) {
	const op = "open"
	s, err := settingsOf(op, options)
	if err != nil {
		return nil, err
	}
	p, err := startPoller(op, s)
	if err != nil {
		return nil, err
	}
	info, err := p.raw.Info()
	if err != nil {
		p.close()
		return nil, err
	}
	c := &Context{poller: p}
	warnIfLost(c, func() bool { return !p.closed.Load() }, "a Context", info.Device)
	return c, nil
}

// Close closes the context and everything made from it. Pending calls fail with ErrClosed. Closing
// twice is allowed.
func (c *Context) Close() error {
	if c == nil || c.poller == nil {
		return nil
	}
	c.poller.close()
	return nil
}

const neverOpened = "this Context was never opened: make it with copyrpc.Open"

func (c *Context) valid(op string) (*poller, error) {
	if c == nil || c.poller == nil {
		return nil, errorf(op, ErrClosed, neverOpened)
	}
	return c.poller, nil
}

// among adds this context to what Dial and its like are told.
func (c *Context) among(options []Option) []Option {
	return append(options[:len(options):len(options)], func(s *settings) {
		if c == nil || c.poller == nil {
			s.problem = errorf("", ErrClosed, neverOpened)
		}
		s.context = c
	})
}

// asked gives what the raw context, which is the poller's, says.
func asked[T any](c *Context, op string, ask func(*RawContext) (T, error)) (answer T, err error) {
	p, err := c.valid(op)
	if err != nil {
		return answer, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return ask(p.raw)
}

// warnIfLost has the garbage collector tell of an object that nobody closed and that still holds something open, and do no
// more: when it runs, if at all, is no time to close connections. What the poller holds on to are the inner structs, so that the
// outer one can be lost. `made` says which one it is: by what it was made.
func warnIfLost[T any](object *T, open func() bool, name, made string) {
	runtime.SetFinalizer(object, func(*T) {
		if open() {
			Warn(name + " (" + made + ") was lost without being closed; call Close")
		}
	})
}

// ---- Sharing ------------------------------------------------------------------------------------

// sharedKey tells contexts apart that Dial and Listen share.
type sharedKey struct {
	device C.crpc_context_options
	logger *slog.Logger
}

type sharedContext struct {
	poller *poller
	users  int
}

var (
	sharedMutex sync.Mutex
	shared      = map[sharedKey]*sharedContext{}
)

// takeContext gives the poller of the context that was asked for, and what to call when its user is closed; nil: nothing.
func takeContext(op string, s *settings, kind linkKind) (*poller, func(), error) {
	rails := kind == channels
	if rails {
		s.device.flags |= C.CRPC_CONTEXT_RAILS
	}
	if s.context != nil {
		p := s.context.poller
		if rails && !p.rails && !p.closed.Load() {
			return nil, nil, errorf(op, ErrState, "this Context has no rails: give Open the option WithRails")
		}
		if kind == queues && !p.withQueues && !p.closed.Load() {
			return nil, nil, errorf(op, ErrState, "this Context has no queues: give Open the option WithQueues")
		}
		return p, nil, nil
	}
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	key := sharedKey{s.device, s.logger}
	entry := shared[key]
	if entry == nil {
		p, err := startPoller(op, s)
		if err != nil {
			return nil, nil, err
		}
		entry = &sharedContext{poller: p}
		shared[key] = entry
	}
	entry.users++
	var once sync.Once
	return entry.poller, func() { once.Do(func() { leaveShared(key, entry) }) }, nil
}

// keep has a context stay open, if it is a shared one, until what it returns is called.
func keep(p *poller) func() {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	for key, entry := range shared {
		if entry.poller == p {
			entry.users++
			return func() { leaveShared(key, entry) }
		}
	}
	return func() {}
}

// letGo is `release` of takeContext, if there is one.
func letGo(release func()) {
	if release != nil {
		release()
	}
}

// leaveShared closes a shared context after its last user.
func leaveShared(key sharedKey, entry *sharedContext) {
	if leftLast(key, entry) {
		entry.poller.finishLog() // whose handler may open and close what is shared
	}
}

func leftLast(key sharedKey, entry *sharedContext) bool {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	entry.users--
	if entry.users > 0 {
		return false
	}
	delete(shared, key)
	entry.poller.shut()
	return true
}

// ---- Asking -------------------------------------------------------------------------------------

// ContextInfo describes a context and its device.
type ContextInfo struct {
	Device          string // e.g. "mlx5_0"
	Driver          string // e.g. "verbs"
	Port            int
	GIDIndex        int
	GID             netip.Addr
	InfiniBand      bool // the link; else Ethernet
	MTUBytes        int
	EndpointsMax    int
	Endpoints       int // open now
	ReceiveDepth    int
	SendDepth       int // WQEs of an endpoint's send queue
	SignalInterval  int
	InlineBytesMax  int
	BatchWindowLeft int
	BlueFlame       bool // small sends go out with their doorbell
	CQECompression  bool // completions that are alike share an entry
	QueuesMax       int  // 0 without WithQueues
	Queues          int  // until they are closed and their ops have ended, with those of OpenSharedReceives
	Initiators      int  // 0 without WithInitiators
	// The device's vector that the completion queues use, from 0: WithCompletionVector.
	CompletionVector int
	TrafficClass     int  // this and the rest: in use, whether of options or of the environment
	ServiceLevel     int  // 0: that of the route where rdma_cm connects
	PartitionKey     int  // P_Key of what does not connect by rdma_cm; 0 = not known
	RetryTimeout     int  // 0: as each kind of connection has it
	RetryCount       int  // likewise
	GRHRequired      bool // InfiniBand: packets to the port and from it have a GRH
}

// Info describes the context and its device.
func (c *Context) Info() (ContextInfo, error) { return asked(c, "context info", (*RawContext).Info) }

// Info describes the context and its device.
func (r *RawContext) Info() (ContextInfo, error) {
	info := C.crpc_context_info{struct_size: C.sizeof_crpc_context_info}
	err := r.ask("context info", func() C.int32_t { return C.crpc_context_get_info(r.handle, &info) })
	if err != nil {
		return ContextInfo{}, err
	}
	return ContextInfo{
		Device: text(info.device[:]), Driver: text(info.driver_name[:]), Port: int(info.port), GIDIndex: int(info.gid_index),
		GID:      netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&info.gid))),
		MTUBytes: int(info.mtu_bytes), EndpointsMax: int(info.endpoints_max), Endpoints: int(info.endpoints),
		InfiniBand:   info.link == C.CRPC_LINK_INFINIBAND,
		ReceiveDepth: int(info.receive_depth), SendDepth: int(info.send_depth), SignalInterval: int(info.signal_interval),
		InlineBytesMax: int(info.inline_bytes_max), BatchWindowLeft: int(info.batch_window_left),
		BlueFlame:      info.features&C.CRPC_FEATURE_BLUEFLAME != 0,
		CQECompression: info.features&C.CRPC_FEATURE_CQE_COMPRESSION != 0,
		QueuesMax:      int(info.queues_max), Queues: int(info.queues),
		Initiators: int(info.initiators), CompletionVector: int(info.completion_vector), TrafficClass: int(info.traffic_class), ServiceLevel: int(info.service_level),
		PartitionKey: int(info.partition_key), RetryTimeout: int(info.retry_timeout), RetryCount: int(info.retry_count),
		GRHRequired: info.flags&C.CRPC_GRH_REQUIRED != 0,
	}, nil
}

// Stats are counters since the context or the endpoint was created. capi/copyrpc.h explains each.
type Stats struct {
	Calls, Responses, CallsFailed, Requests, Replies, LateResponses uint64
	BatchesSent, BatchesReceived, BytesSent, BytesReceived          uint64
	SendWQEs, Doorbells, SignaledWQEs, InlineWQEs, ReceiveWQEs      uint64
	MailboxReads, Completions, Refused, Polls, PollsEmpty           uint64
	UnknownCompletions, ProtocolErrors, LastWQEsMissed              uint64
	Overloaded                                                      uint64 // requests beyond WithRequestsMax; 0 on RawContext
}

// stats reads the counters of a context or an endpoint.
func (r *RawContext) stats(op string, read func(*C.crpc_stats) C.int32_t) (Stats, error) {
	s := C.crpc_stats{struct_size: C.sizeof_crpc_stats}
	if err := r.ask(op, func() C.int32_t { return read(&s) }); err != nil {
		return Stats{}, err
	}
	return Stats{
		Calls: uint64(s.calls), Responses: uint64(s.responses), CallsFailed: uint64(s.calls_failed),
		Requests: uint64(s.requests), Replies: uint64(s.replies), LateResponses: uint64(s.late_responses),
		BatchesSent: uint64(s.batches_sent), BatchesReceived: uint64(s.batches_received),
		BytesSent: uint64(s.bytes_sent), BytesReceived: uint64(s.bytes_received),
		SendWQEs: uint64(s.send_wqes), Doorbells: uint64(s.doorbells), SignaledWQEs: uint64(s.signaled_wqes),
		InlineWQEs: uint64(s.inline_wqes), ReceiveWQEs: uint64(s.receive_wqes), MailboxReads: uint64(s.mailbox_reads),
		Completions: uint64(s.completions), Refused: uint64(s.refused), Polls: uint64(s.polls),
		PollsEmpty: uint64(s.polls_empty), UnknownCompletions: uint64(s.unknown_completions),
		ProtocolErrors: uint64(s.protocol_errors), LastWQEsMissed: uint64(s.last_wqes_missed),
	}, nil
}

// Stats reads the counters of the context.
func (c *Context) Stats() (Stats, error) {
	stats, err := asked(c, "context stats", (*RawContext).Stats)
	if err == nil {
		stats.Overloaded = c.poller.overloaded.Load()
	}
	return stats, err
}

// Stats reads the counters of the context.
func (r *RawContext) Stats() (Stats, error) {
	return r.stats("context stats", func(stats *C.crpc_stats) C.int32_t { return C.crpc_context_get_stats(r.handle, stats) })
}

// DeviceInfo describes one port of one RDMA device of this machine.
type DeviceInfo struct {
	Name            string
	Port            int      // of Ports, from 1
	Ports           int      // that the device has
	Drivers         []string // that can open it, for WithDriver
	Active          bool
	InfiniBand      bool // the link; else Ethernet
	MTUBytes        int
	GIDIndex        int // the one a context takes by default
	GID             netip.Addr
	EndpointsMax    int // QPs of the device, over all processes
	ReceiveDepthMax int // that one context may have
	InlineBytesMax  int // payload that fits in a WQE; 0: not known before opening
	VendorID        uint32
	VendorPartID    uint32
	CardGUID        uint64 // system_image_guid: the same for all ports of one card; 0 = not known
	LinkMbps        int    // 0 = not known
	PartitionKey    int    // the P_Key that a context takes by default; 0 = none, or not known
	GRHRequired     bool   // InfiniBand: packets to the port and from it have a GRH
	// Completion vectors that the device has, each with an interrupt; 0 = not known.
	CompletionVectors int
}

func driversOf(bits C.uint32_t) []string {
	var names []string
	for driver, name := range map[C.uint32_t]string{C.CRPC_DRIVER_VERBS: "verbs", C.CRPC_DRIVER_MLX5: "mlx5"} {
		if bits>>driver&1 != 0 {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// Devices lists the ports of all RDMA devices. A machine without devices gives an empty list, not
// an error.
func Devices() ([]DeviceInfo, error) {
	var devices []DeviceInfo
	for index := 0; ; index++ {
		info := C.crpc_device_info{struct_size: C.sizeof_crpc_device_info}
		theirs := newCError()
		status := C.crpc_device_query(C.uint32_t(index), &info, &theirs)
		if Status(status) == ErrNoDevice {
			return devices, nil
		}
		if status < 0 {
			return nil, fromC(fmt.Sprint("device ", index), status, &theirs)
		}
		devices = append(devices, DeviceInfo{
			Name: text(info.name[:]), Port: int(info.port), Ports: int(info.port_count), Drivers: driversOf(info.drivers),
			InfiniBand: info.link == C.CRPC_LINK_INFINIBAND, GIDIndex: int(info.gid_index), Active: info.port_state == C.CRPC_PORT_ACTIVE,
			MTUBytes: int(info.mtu_bytes), GID: netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&info.gid))),
			EndpointsMax: int(info.endpoints_max), ReceiveDepthMax: int(info.receive_depth_max),
			InlineBytesMax: int(info.inline_bytes_max), VendorID: uint32(info.vendor_id), VendorPartID: uint32(info.vendor_part_id),
			CardGUID: uint64(info.system_image_guid), LinkMbps: int(info.link_mbps),
			PartitionKey: int(info.partition_key), GRHRequired: info.flags&C.CRPC_GRH_REQUIRED != 0,
			CompletionVectors: int(info.completion_vectors),
		})
	}
}
