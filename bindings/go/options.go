// options.go: what Dial, Listen, Accept and Open can be told, and how it becomes C's structs.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"math"
	"time"
)

// DefaultReplyBytes is the longest reply that a call accepts unless it says otherwise. Room for it is set aside in the
// endpoint's ring for as long as the call is open.
const DefaultReplyBytes = 4096

// Forever is "no limit" for the options that take a time.
const Forever time.Duration = math.MaxInt64

// Option is one thing that Dial, Listen, Accept, Open or OpenRaw is told. What does not concern them they ignore. A value out
// of range is an ErrInvalid of theirs.
type Option func(*settings)

type settings struct {
	context    *Context
	device     C.crpc_context_options
	endpoint   C.crpc_endpoint_options
	channel    C.crpc_channel_options // what channels have alone; the rest is in `endpoint`: channelOptions
	backlog    C.uint32_t
	listener   C.uint32_t // CRPC_LISTENER_*
	replyBytes int
	problem    *Error
}

func settingsOf(op string, options []Option) (*settings, *Error) {
	s := &settings{
		device:     C.crpc_context_options{struct_size: C.sizeof_crpc_context_options},
		endpoint:   C.crpc_endpoint_options{struct_size: C.sizeof_crpc_endpoint_options},
		channel:    C.crpc_channel_options{struct_size: C.sizeof_crpc_channel_options},
		replyBytes: DefaultReplyBytes,
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

// WithContext uses a context that is open already, instead of the one that all who name none share.
func WithContext(c *Context) Option {
	return func(s *settings) {
		if c == nil || c.poller == nil {
			s.problem = errorf("", ErrInvalid, "WithContext got none: make it with Open")
		}
		s.context = c
	}
}

// WithDevice names the RDMA device, e.g. "mlx5_0"; without it, the first with an active port.
func WithDevice(name string) Option {
	return func(s *settings) {
		if !putText(s.device.device[:], name) {
			s.problem = errorf("", ErrInvalid, "%q is no name of a device", name)
		}
	}
}

// WithCompressedCompletions asks for completion queue entries that completions share, where the device can. ContextInfo tells
// whether it does.
func WithCompressedCompletions() Option {
	return func(s *settings) { s.device.features |= C.CRPC_FEATURE_CQE_COMPRESSION }
}

// WithDriver takes "verbs" or "mlx5" instead of "auto", the fastest that the device has.
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

// WithPort takes this port of the device, from 1, instead of the first that is active.
func WithPort(port int) Option {
	return func(s *settings) { s.device.port = s.number("the port", port) }
}

// WithGIDIndex takes the address with this index in the port's table, instead of choosing one: RoCE v2 with IPv4 is preferred.
// [Devices] tells which that is.
func WithGIDIndex(index int) Option {
	return func(s *settings) {
		s.device.flags |= C.CRPC_CONTEXT_GID_INDEX
		s.device.gid_index = s.number("the GID index", index)
	}
}

// WithSignalInterval has one send WQE in so many ask for a completion; 64 by default.
func WithSignalInterval(count int) Option {
	return func(s *settings) { s.device.signal_interval = s.number("signal_interval", count) }
}

// WithEndpointsMax says how many endpoints the context may have; 256 by default. Of Open and OpenRaw.
func WithEndpointsMax(count int) Option {
	return func(s *settings) { s.device.endpoints_max = s.number("endpoints_max", count) }
}

// WithReceiveDepth says how many receive WQEs all endpoints of the context share. Of Open and OpenRaw.
func WithReceiveDepth(count int) Option {
	return func(s *settings) { s.device.receive_depth = s.number("receive_depth", count) }
}

// WithRingBytes sizes the endpoint's receive memory: a power of two, 4096 to 2^30; 1 MiB by default.
func WithRingBytes(bytes int) Option {
	return func(s *settings) { s.endpoint.ring_bytes = s.number("ring_bytes", bytes) }
}

// WithRequestBytes says which part of the ring is for requests of the peer, a multiple of 32; half by default.
func WithRequestBytes(bytes int) Option {
	return func(s *settings) { s.endpoint.request_bytes = s.number("request_bytes", bytes) }
}

// WithCallOnly makes an endpoint that takes no requests: its ring is all for replies.
func WithCallOnly() Option {
	return func(s *settings) { s.endpoint.flags |= C.CRPC_ENDPOINT_CALL_ONLY }
}

// WithServeOnly makes an endpoint that makes no calls: its ring is all for requests.
func WithServeOnly() Option {
	return func(s *settings) { s.endpoint.flags |= C.CRPC_ENDPOINT_SERVE_ONLY }
}

// WithCallsMax says how many calls may be unanswered at a time; 1024 by default. More than that wait their turn here.
func WithCallsMax(count int) Option {
	return func(s *settings) { s.endpoint.calls_max = s.number("calls_max", count) }
}

// WithBatchWindow says how many unread batches the peer may send, 1 to 1024; 64 by default.
func WithBatchWindow(count int) Option {
	return func(s *settings) { s.endpoint.batch_window = s.number("batch_window", count) }
}

// WithConnectTimeout limits Dial, beside the deadline of its context; 5 s by default.
func WithConnectTimeout(limit time.Duration) Option {
	return func(s *settings) { s.endpoint.connect_timeout_ns = s.time("the connect timeout", limit) }
}

// WithKeepalive says after how much silence, with calls open, the peer is probed; 1 s by default.
func WithKeepalive(after time.Duration) Option {
	return func(s *settings) { s.endpoint.keepalive_ns = s.time("the keepalive", after) }
}

// WithRetry sets the transport's patience: a retry after 4.096 us * 2^timeout (1 to 31), `count` (1 to 7) times.
func WithRetry(timeout, count int) Option {
	return func(s *settings) {
		s.endpoint.retry_timeout = s.number("the retry timeout", timeout)
		s.endpoint.retry_count = s.number("the retry count", count)
	}
}

// WithToken shows up to 16 bytes to the peer's application when it decides whether to accept. Of Dial.
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

// WithReplyBytes is the longest reply that the endpoint's calls accept where they do not say; DefaultReplyBytes by default.
func WithReplyBytes(bytes int) Option {
	return func(s *settings) {
		s.number("the longest reply", bytes)
		s.replyBytes = bytes
	}
}

// WithBacklog says how many connections may wait to be accepted; 128 by default. Of Listen.
func WithBacklog(count int) Option {
	return func(s *settings) { s.backlog = s.number("the backlog", count) }
}
