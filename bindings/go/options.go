// options.go: what Dial, Listen, Accept and Open can be told, and how it becomes C's structs.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"log/slog"
	"math"
	"time"
)

// The shortest and the longest key of WithKey.
const (
	KeyBytesMin = C.CRPC_KEY_BYTES_MIN
	KeyBytesMax = C.CRPC_KEY_BYTES_MAX
)

// DefaultReplyBytes is the length of the longest reply that a call accepts by default. The
// endpoint's ring reserves room for it while the call is open.
const DefaultReplyBytes = 4096

// Forever means "no limit", for options that take a time.
const Forever time.Duration = math.MaxInt64

// Option is an option of Dial, Listen, Accept, Open, OpenRaw and so on. Each function ignores
// options that do not concern it, and returns ErrInvalid for values out of range.
type Option func(*settings)

type settings struct {
	context    *Context
	spread     []*Context
	device     C.crpc_context_options
	endpoint   C.crpc_endpoint_options
	channel    C.crpc_channel_options // what channels have alone; the rest is in `endpoint`: channelOptions
	queue      C.crpc_queue_options   // likewise: queueOptions
	backlog    C.uint32_t
	replyBytes int
	grace      time.Duration
	problem    *Error

	logger       *slog.Logger
	admission    *admission
	interceptors []func(next CallFunc) CallFunc
	hear         func(ConnectionState)
}

func settingsOf(op string, options []Option) (*settings, error) {
	s := &settings{
		device:     C.crpc_context_options{struct_size: C.sizeof_crpc_context_options},
		endpoint:   C.crpc_endpoint_options{struct_size: C.sizeof_crpc_endpoint_options},
		channel:    C.crpc_channel_options{struct_size: C.sizeof_crpc_channel_options},
		queue:      C.crpc_queue_options{struct_size: C.sizeof_crpc_queue_options},
		replyBytes: DefaultReplyBytes,
		grace:      DefaultGrace,
	}
	for _, option := range options {
		if option == nil {
			return nil, errorf(op, ErrInvalid, "an option is nil")
		}
		option(s)
	}
	if s.problem != nil {
		s.problem.Op = op
		return nil, s.problem
	}
	if s.logger != nil && s.device.log_level == C.CRPC_LOG_OFF {
		s.device.log_level = C.CRPC_LOG_DEBUG
	}
	return s, nil
}

func (s *settings) number(name string, value int) C.uint32_t {
	if value < 0 || value > math.MaxUint32 {
		s.problem = errorf("", ErrInvalid, "%s is %d; it must be 0 (the default) or above", name, value)
		return 0
	}
	return C.uint32_t(value)
}

func (s *settings) time(name string, value time.Duration) C.uint64_t {
	if value < 0 {
		s.problem = errorf("", ErrInvalid, "%s is %v; a time cannot be negative", name, value)
		return 0
	}
	if value == Forever {
		return C.CRPC_FOREVER
	}
	return C.uint64_t(value)
}

// within has the deadline of ctx limit how long connecting may take, unless WithConnectTimeout does.
func (s *settings) within(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && s.endpoint.connect_timeout_ns == 0 {
		s.endpoint.connect_timeout_ns = C.uint64_t(max(time.Until(deadline), 1))
	}
}

// WithContext uses an open context, instead of the shared one.
func WithContext(c *Context) Option {
	return func(s *settings) {
		if c == nil || c.poller == nil {
			s.problem = errorf("", ErrInvalid, "WithContext got none: make it with Open")
		}
		s.context = c
	}
}

// WithSpread has a listener make the connections that it accepts in these contexts, in turn: each has a goroutine of its own
// that polls, so that a server can use several processors. The listener's own context is one of them only if it is named.
// All must be open, have a device at the same port, and outlive the listener.
func WithSpread(contexts ...*Context) Option {
	return func(s *settings) {
		for _, c := range contexts {
			if c == nil || c.poller == nil {
				s.problem = errorf("", ErrInvalid, "WithSpread got no Context: make each with Open")
			}
		}
		s.spread = contexts
	}
}

// WithDevice names the RDMA device, e.g. "mlx5_0". The default is the first device with an active
// port.
func WithDevice(name string) Option {
	return func(s *settings) {
		if !putText(s.device.device[:], name) {
			s.problem = errorf("", ErrInvalid, "%q is no name of a device", name)
		}
	}
}

// WithCompressedCompletions requests compressed completion queue entries, if the device supports
// them. ContextInfo tells whether they are in use.
func WithCompressedCompletions() Option {
	return func(s *settings) { s.device.features |= C.CRPC_FEATURE_CQE_COMPRESSION }
}

// WithDriver selects the driver "verbs" or "mlx5". The default, "auto", takes mlx5 where possible.
func WithDriver(name string) Option {
	return func(s *settings) {
		switch name {
		case "auto":
			s.device.driver = C.CRPC_DRIVER_AUTO
		case "verbs":
			s.device.driver = C.CRPC_DRIVER_VERBS
		case "mlx5":
			s.device.driver = C.CRPC_DRIVER_MLX5
		default:
			s.problem = errorf("", ErrInvalid, "no driver is called %q; there are auto, verbs and mlx5", name)
		}
	}
}

// WithPort selects a port of the device, from 1. The default is the first active port.
func WithPort(port int) Option {
	return func(s *settings) { s.device.port = s.number("the port", port) }
}

// WithGIDIndex selects an address by its index in the port's GID table. By default, the library
// prefers RoCE v2 with IPv4; [Devices] tells the index.
func WithGIDIndex(index int) Option {
	return func(s *settings) {
		s.device.flags |= C.CRPC_CONTEXT_GID_INDEX
		s.device.gid_index = s.number("the GID index", index)
	}
}

// WithRailsGIDIndex makes the index of [WithGIDIndex] that of each rail's port, too.
func WithRailsGIDIndex() Option {
	return func(s *settings) { s.device.flags |= C.CRPC_CONTEXT_RAILS_GID_INDEX }
}

// WithTrafficClass sets the traffic class of all that the context sends, 0 to 255: with RoCE v2 the byte of the IP header that has
// the DSCP in its upper six bits; on InfiniBand it is in packets with a GRH. 0 is COPYRPC_TRAFFIC_CLASS in the environment, or 0.
func WithTrafficClass(class int) Option {
	return func(s *settings) { s.device.traffic_class = s.number("traffic_class", class) }
}

// WithServiceLevel sets the service level of all that the context sends: 0 to 15 on InfiniBand, and on Ethernet the priority, 0 to
// 7. 0 is COPYRPC_SERVICE_LEVEL in the environment, or that of the route.
func WithServiceLevel(level int) Option {
	return func(s *settings) { s.device.service_level = s.number("service_level", level) }
}

// WithPartitionKey selects the InfiniBand partition by its P_Key: with bit 15, as 0x8001, only as a full member. 0 is
// COPYRPC_PARTITION_KEY in the environment, or the first that the port is a full member of.
func WithPartitionKey(key int) Option {
	return func(s *settings) { s.device.partition_key = s.number("partition_key", key) }
}

// WithContextRetry sets the retries of all connections of the context that have none of their own ([WithRetry]), and of
// [WithInitiators]. Zeros are COPYRPC_RETRY_TIMEOUT and COPYRPC_RETRY_COUNT in the environment, or what each kind has.
func WithContextRetry(timeout, count int) Option {
	return func(s *settings) {
		s.device.retry_timeout = s.number("retry_timeout", timeout)
		s.device.retry_count = s.number("retry_count", count)
	}
}

// WithSignalInterval sets how often a send WQE requests a completion: at least every `count` WQEs;
// 64 by default.
func WithSignalInterval(count int) Option {
	return func(s *settings) { s.device.signal_interval = s.number("signal_interval", count) }
}

// WithEndpointsMax sets how many endpoints the context may have; 256 by default. For Open and
// OpenRaw.
func WithEndpointsMax(count int) Option {
	return func(s *settings) { s.device.endpoints_max = s.number("endpoints_max", count) }
}

// WithInitiators makes endpoints connect by DC, the dynamically connected transport of mlx5 devices, and share `count` send
// queues: for thousands of peers. Both sides of a connection need it, and neither can have a lane. For Open and OpenRaw.
func WithInitiators(count int) Option {
	return func(s *settings) { s.device.initiators = s.number("initiators", count) }
}

// WithFlightRecords has the last ops and completions of each endpoint recorded, so many of each (32 bytes): for
// [Endpoint.FlightRecords], and for the log when a connection is lost. For Open and OpenRaw.
func WithFlightRecords(count int) Option {
	return func(s *settings) { s.device.flight_records = s.number("flight_records", count) }
}

func choice(on bool) C.uint32_t {
	if on {
		return C.CRPC_CHOICE_ON
	}
	return C.CRPC_CHOICE_OFF
}

// WithRelaxedOrdering lets the device write payloads to buffers of channels and arenas in any order, which is faster on some
// processors; or has it keep theirs. They are complete when a transfer or a request says so. Without this option the library
// chooses. For Open and OpenRaw.
func WithRelaxedOrdering(on bool) Option {
	return func(s *settings) { s.device.relaxed_ordering = choice(on) }
}

// WithAdaptiveRouting has channels send what is longer than `bytes` (0: 8 KiB) so that a fabric with adaptive routing can spread
// its packets; or has them not. Without this option they do so on InfiniBand. For Open and OpenRaw.
func WithAdaptiveRouting(on bool, bytes int) Option {
	return func(s *settings) {
		s.device.adaptive_routing = choice(on)
		s.device.adaptive_routing_bytes = s.number("adaptive_routing_bytes", bytes)
	}
}

// WithECE has connections negotiate what both devices have beyond the standard (enhanced connection establishment), such as selective
// repeat on RoCE; or has them not. Without this option they do. For Open and OpenRaw.
func WithECE(on bool) Option {
	return func(s *settings) { s.device.ece = choice(on) }
}

// WithCompletionVector selects which of the device's completion vectors, from 0, wakes who waits, modulo how many there are
// ([DeviceInfo].CompletionVectors). By default, those of a process take turns. For Open and OpenRaw.
func WithCompletionVector(vector int) Option {
	return func(s *settings) { s.device.completion_vector = s.number("completion_vector", vector) + 1 }
}

// WithReceiveDepth sets how many receive WQEs all endpoints of the context share. For Open and
// OpenRaw.
func WithReceiveDepth(count int) Option {
	return func(s *settings) { s.device.receive_depth = s.number("receive_depth", count) }
}

// WithRingBytes sets the size of the endpoint's receive ring: a power of two, 4096 to 2^30; 1 MiB
// by default.
func WithRingBytes(bytes int) Option {
	return func(s *settings) { s.endpoint.ring_bytes = s.number("ring_bytes", bytes) }
}

// WithPeerRingBytesMax sets how large a ring the peer may ask for, 4096 to 2^30; 1 MiB by default. A
// ring as large as this side's own is always allowed. This side pins as much memory for sending, and
// refuses a peer that asks for more.
func WithPeerRingBytesMax(bytes int) Option {
	return func(s *settings) {
		s.endpoint.peer_ring_bytes_max = s.number("peer_ring_bytes_max", bytes)
	}
}

// WithRequestBytes sets the part of the ring for requests of the peer: a multiple of 32; half by
// default.
func WithRequestBytes(bytes int) Option {
	return func(s *settings) { s.endpoint.request_bytes = s.number("request_bytes", bytes) }
}

// WithFullSize gives an endpoint's ring and batch window their full size from the start. Otherwise they are small at first, and
// grow as they are used.
func WithFullSize() Option {
	return func(s *settings) { s.endpoint.flags |= C.CRPC_ENDPOINT_FULL_SIZE }
}

// WithCallOnly makes an endpoint that accepts no requests. Its whole ring is for replies.
func WithCallOnly() Option {
	return func(s *settings) { s.endpoint.flags |= C.CRPC_ENDPOINT_CALL_ONLY }
}

// WithServeOnly makes an endpoint that makes no calls. Its whole ring is for requests.
func WithServeOnly() Option {
	return func(s *settings) { s.endpoint.flags |= C.CRPC_ENDPOINT_SERVE_ONLY }
}

// WithCallsMax sets how many calls may be unanswered at a time; 1024 by default. More calls wait
// here until others end.
func WithCallsMax(count int) Option {
	return func(s *settings) { s.endpoint.calls_max = s.number("calls_max", count) }
}

// WithBatchWindow sets how many unread batches the peer may have sent, 1 to 1024; 64 by default.
func WithBatchWindow(count int) Option {
	return func(s *settings) { s.endpoint.batch_window = s.number("batch_window", count) }
}

// WithConnectTimeout limits Dial, in addition to the deadline of its context; 5 s by default.
func WithConnectTimeout(limit time.Duration) Option {
	return func(s *settings) { s.endpoint.connect_timeout_ns = s.time("the connect timeout", limit) }
}

// WithKeepalive sets how long the peer may be silent, while calls are open, before the library
// probes it; 1 s by default. While none are open, it may be silent ten times as long.
func WithKeepalive(after time.Duration) Option {
	return func(s *settings) { s.endpoint.keepalive_ns = s.time("the keepalive", after) }
}

// WithRetry sets how the transport resends: after 4.096 us * 2^timeout (1 to 31), `count` times (1
// to 7).
func WithRetry(timeout, count int) Option {
	return func(s *settings) {
		s.endpoint.retry_timeout = s.number("the retry timeout", timeout)
		s.endpoint.retry_count = s.number("the retry count", count)
	}
}

// WithToken shows up to 16 bytes to the peer's application, before it decides whether to accept. For
// Dial, and for blobs, where the peer sees it after Join.
func WithToken(token []byte) Option {
	return func(s *settings) {
		if len(token) > len(s.endpoint.token) {
			s.problem = errorf("", ErrInvalid, "a token of %d bytes: it has at most %d", len(token), len(s.endpoint.token))
			return
		}
		s.endpoint.token_bytes = C.uint32_t(len(token))
		for i, b := range token {
			s.endpoint.token[i] = C.uint8_t(b)
		}
	}
}

// WithKey gives the connection a key of 16 to 64 bytes, which both sides know. Each side proves to
// the other that it knows the key, before anything else is sent. The connection fails with ErrKey
// if the keys differ, or if one side has none. For Dial, Listen, and ConnectRequest.Accept, where
// it can depend on the peer's token.
func WithKey(key []byte) Option {
	return func(s *settings) {
		if len(key) < KeyBytesMin || len(key) > KeyBytesMax {
			s.problem = errorf("", ErrInvalid, "a key of %d bytes: it has %d to %d", len(key), KeyBytesMin, KeyBytesMax)
			return
		}
		s.endpoint.key_bytes = C.uint32_t(len(key))
		for i, b := range key {
			s.endpoint.key[i] = C.uint8_t(b)
		}
	}
}

// WithReplyBytes sets the length of the longest reply that calls of the endpoint accept by default;
// DefaultReplyBytes if not set.
func WithReplyBytes(bytes int) Option {
	return func(s *settings) {
		s.number("the longest reply", bytes)
		s.replyBytes = bytes
	}
}

// WithGrace sets how long handlers that are running may go on when Serve has ended, before their ctx
// is canceled; [DefaultGrace] if not set. 0 cancels them at once.
func WithGrace(limit time.Duration) Option {
	return func(s *settings) {
		s.time("the grace", limit)
		s.grace = limit
	}
}

// WithBacklog sets how many connections may wait to be accepted; 128 by default. For Listen.
func WithBacklog(count int) Option {
	return func(s *settings) { s.backlog = s.number("the backlog", count) }
}
