// context.go: contexts: opening, sharing, closing, asking.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"fmt"
	"net/netip"
	"runtime"
	"sort"
	"sync"
	"unsafe"
)

// Context is one opened RDMA device with one goroutine that polls it. Endpoints and listeners are made from it with
// [Context.Dial] and [Context.Listen]. All methods may be called from any goroutine.
type Context struct {
	poller *poller
	shared bool
}

// Open opens a device. Programs that do not care which device it is use [Dial] and [Listen], which share a context for each device.
func Open(options ...Option) (*Context, error) {
	const op = "open"
	s, problem := settingsOf(op, options)
	if problem != nil {
		return nil, problem
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

// Close closes everything that was made from the context, which then need not be closed by itself; calls that are pending fail
// with ErrClosed. Closing twice is allowed.
func (c *Context) Close() error {
	if c == nil || c.poller == nil {
		return nil
	}
	c.poller.close()
	return nil
}

func (c *Context) valid(op string) (*poller, error) {
	if c == nil || c.poller == nil {
		return nil, errorf(op, ErrClosed, "this Context was never opened: make it with copyrpc.Open")
	}
	return c.poller, nil
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
type sharedKey C.crpc_context_options

type sharedContext struct {
	context *Context
	users   int
}

var (
	sharedMutex sync.Mutex
	shared      = map[sharedKey]*sharedContext{}
)

// takeContext gives the context that was asked for, and what to call when its user is closed; nil: nothing.
func takeContext(op string, s *settings) (*Context, func(), error) {
	if s.context != nil {
		return s.context, nil, nil
	}
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	key := sharedKey(s.device)
	entry := shared[key]
	if entry == nil {
		p, err := startPoller(op, s)
		if err != nil {
			return nil, nil, err
		}
		entry = &sharedContext{context: &Context{poller: p, shared: true}}
		shared[key] = entry
	}
	entry.users++
	var once sync.Once
	return entry.context, func() { once.Do(func() { leaveShared(key, entry) }) }, nil
}

// letGo is `release` of takeContext, if there is one.
func letGo(release func()) {
	if release != nil {
		release()
	}
}

// leaveShared closes a shared context after its last user.
func leaveShared(key sharedKey, entry *sharedContext) {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	entry.users--
	if entry.users == 0 {
		delete(shared, key)
		entry.context.Close()
	}
}

// ---- Asking -------------------------------------------------------------------------------------

// ContextInfo is what a context runs on.
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
}

// Info tells what the context runs on.
func (c *Context) Info() (ContextInfo, error) {
	const op = "context info"
	p, err := c.valid(op)
	if err != nil {
		return ContextInfo{}, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.raw.Info()
}

// Info tells what the context runs on.
func (r *RawContext) Info() (ContextInfo, error) {
	const op = "context info"
	if r == nil || r.handle == nil {
		return ContextInfo{}, newError(op, ErrClosed)
	}
	info := C.crpc_context_info{struct_size: C.sizeof_crpc_context_info}
	if status := C.crpc_context_get_info(r.handle, &info); status < 0 {
		return ContextInfo{}, newError(op, Status(status))
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
	}, nil
}

// Stats are counters since the context or the endpoint was made; capi/copyrpc.h says what each means.
type Stats struct {
	Calls, Responses, CallsFailed, Requests, Replies, LateResponses uint64
	BatchesSent, BatchesReceived, BytesSent, BytesReceived          uint64
	SendWQEs, Doorbells, SignaledWQEs, InlineWQEs, ReceiveWQEs      uint64
	MailboxReads, Completions, Refused, Polls, PollsEmpty           uint64
	UnknownCompletions, ProtocolErrors                              uint64
}

func statsOf(s *C.crpc_stats) Stats {
	return Stats{
		Calls: uint64(s.calls), Responses: uint64(s.responses), CallsFailed: uint64(s.calls_failed),
		Requests: uint64(s.requests), Replies: uint64(s.replies), LateResponses: uint64(s.late_responses),
		BatchesSent: uint64(s.batches_sent), BatchesReceived: uint64(s.batches_received),
		BytesSent: uint64(s.bytes_sent), BytesReceived: uint64(s.bytes_received),
		SendWQEs: uint64(s.send_wqes), Doorbells: uint64(s.doorbells), SignaledWQEs: uint64(s.signaled_wqes),
		InlineWQEs: uint64(s.inline_wqes), ReceiveWQEs: uint64(s.receive_wqes), MailboxReads: uint64(s.mailbox_reads),
		Completions: uint64(s.completions), Refused: uint64(s.refused), Polls: uint64(s.polls),
		PollsEmpty: uint64(s.polls_empty), UnknownCompletions: uint64(s.unknown_completions),
		ProtocolErrors: uint64(s.protocol_errors),
	}
}

// Stats reads the context's counters.
func (c *Context) Stats() (Stats, error) {
	p, err := c.valid("context stats")
	if err != nil {
		return Stats{}, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.raw.Stats()
}

// Stats reads the context's counters.
func (r *RawContext) Stats() (Stats, error) {
	const op = "context stats"
	if r == nil || r.handle == nil {
		return Stats{}, newError(op, ErrClosed)
	}
	stats := C.crpc_stats{struct_size: C.sizeof_crpc_stats}
	if status := C.crpc_context_get_stats(r.handle, &stats); status < 0 {
		return Stats{}, newError(op, Status(status))
	}
	return statsOf(&stats), nil
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

// Devices lists the ports of all RDMA devices. None is no error.
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
		})
	}
}
