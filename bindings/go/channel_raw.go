// channel_raw.go: the low level of channels: an array of their ops in C memory, one crossing for as many as there are.

package copyrpc

/*
#include <copyrpc.h>

// With addresses as integers, as in raw.go.
static int32_t copyrpc_go_channel_submit(uintptr_t context, uintptr_t ops, uint32_t count, uintptr_t reason)
{
    return crpc_channel_submit((crpc_context *)context, (const crpc_channel_op *)ops, count, (int32_t *)reason);
}
*/
import "C"

import (
	"time"
	"unsafe"
)

// ChannelHandle names a channel of a [RawContext]. Zero is no channel.
type ChannelHandle uint64

// Opcodes of a [ChannelOp].
const (
	ChannelReceive = 1 // a buffer to be filled; completes with CompletionReceived
	ChannelSend    = 2 // a buffer to be sent; completes with CompletionSent
	ChannelCancel  = 3 // ends the channel's sends that still wait for a receive and whose UserData equals Token

	ChannelMore = 1 // flag of ChannelReceive: the next op belongs to the same message
)

// Kinds of a [Completion] that only channels have, and the flag of all that are a channel's.
const (
	CompletionSent     = 10 // the buffer may be used again
	CompletionReceived = 11 // the buffer is filled; with ErrTruncated, PayloadBytes is what the sender had
	CompletionRail     = 12 // a rail (Token: its index) was lost: ErrDisconnected; or is used again: OK

	CompletionOfChannel = 1 // flag: Channel is the channel, and EndpointUserData is its
)

// Bounds of channels.
const (
	GroupMax       = C.CRPC_CHANNEL_GROUP_MAX // buffers that one message may have
	BufferBytesMax = 1 << 30                  // of one buffer
	ShareWhole     = 1024                     // of SetShare: rail 0 carries everything
)

// ChannelOp is a crpc_channel_op. SubmitChannel accepts an array of them. capi/copyrpc.h says which
// fields each opcode uses; the others must be zero.
type ChannelOp struct {
	Opcode    uint8
	Flags     uint8
	zero      uint16
	Tag       uint32
	Channel   ChannelHandle
	UserData  uint64
	Region    RegionHandle // 0: none; then the memory is registered for the op, and stays so: see ForgetMemory
	Address   uint64       // of C memory, or of a mapping; never of Go's
	Bytes     uint64
	TimeoutNs uint64
	Token     uint64
}

// Channel returns the channel of a completion with the flag CompletionOfChannel.
func (completion *Completion) Channel() ChannelHandle { return ChannelHandle(completion.Endpoint) }

func (completion *Completion) ofChannel() bool { return completion.Flags&CompletionOfChannel != 0 }

// The struct above is C's, byte for byte, and so are the constants: what moved does not compile.
var (
	_ [C.sizeof_crpc_channel_op]byte                        = [unsafe.Sizeof(ChannelOp{})]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.tag)]byte        = [unsafe.Offsetof(ChannelOp{}.Tag)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.channel)]byte    = [unsafe.Offsetof(ChannelOp{}.Channel)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.user_data)]byte  = [unsafe.Offsetof(ChannelOp{}.UserData)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.region)]byte     = [unsafe.Offsetof(ChannelOp{}.Region)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.address)]byte    = [unsafe.Offsetof(ChannelOp{}.Address)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.bytes)]byte      = [unsafe.Offsetof(ChannelOp{}.Bytes)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.timeout_ns)]byte = [unsafe.Offsetof(ChannelOp{}.TimeoutNs)]byte{}
	_ [unsafe.Offsetof(C.crpc_channel_op{}.token)]byte      = [unsafe.Offsetof(ChannelOp{}.Token)]byte{}

	_ = [1]struct{}{}[ChannelReceive-C.CRPC_CHANNEL_RECEIVE]
	_ = [1]struct{}{}[ChannelSend-C.CRPC_CHANNEL_SEND]
	_ = [1]struct{}{}[ChannelCancel-C.CRPC_CHANNEL_CANCEL]
	_ = [1]struct{}{}[ChannelMore-C.CRPC_CHANNEL_MORE]
	_ = [1]struct{}{}[CompletionSent-C.CRPC_COMPLETION_SENT]
	_ = [1]struct{}{}[CompletionReceived-C.CRPC_COMPLETION_RECEIVED]
	_ = [1]struct{}{}[CompletionRail-C.CRPC_COMPLETION_RAIL]
	_ = [1]struct{}{}[CompletionOfChannel-C.CRPC_COMPLETION_OF_CHANNEL]
)

// SubmitChannel submits ChannelOps[:count], and returns how many were accepted; of a group, all or
// none. If not all were accepted, the status says why. ErrAgain means that there is no room before
// the next CompletionRoom of the channel. Buffers must not change until their completion.
func (r *RawContext) SubmitChannel(count int) (int, Status) { return r.SubmitChannelFrom(0, count) }

// SubmitChannelFrom does the same as SubmitChannel, for ChannelOps[first:first+count].
func (r *RawContext) SubmitChannelFrom(first, count int) (int, Status) {
	if r == nil || r.handle == nil {
		return 0, ErrClosed
	}
	if first < 0 || count < 0 || first > len(r.ChannelOps)-count {
		return 0, ErrInvalid
	}
	if count == 0 {
		return 0, OK
	}
	return r.submitChannel(&r.ChannelOps[first], count)
}

// submitChannel is the crossing. `ops` is C memory.
func (r *RawContext) submitChannel(ops *ChannelOp, count int) (int, Status) {
	taken := C.copyrpc_go_channel_submit(address(unsafe.Pointer(r.handle)), address(unsafe.Pointer(ops)), C.uint32_t(count),
		address(unsafe.Pointer(&r.scratch.reason)))
	return max(int(taken), 0), Status(r.scratch.reason)
}

// ---- Connecting ---------------------------------------------------------------------------------

// channelOptions gives what the options say of a channel; what they say of connections in general was kept for endpoints.
func (s *settings) channelOptions() *C.crpc_channel_options {
	options := &s.channel
	options.user_data = s.endpoint.user_data
	options.connect_timeout_ns = s.endpoint.connect_timeout_ns
	options.keepalive_ns = s.endpoint.keepalive_ns
	options.retry_timeout, options.retry_count = s.endpoint.retry_timeout, s.endpoint.retry_count
	options.token_bytes, options.token = s.endpoint.token_bytes, s.endpoint.token
	options.key_bytes, options.key = s.endpoint.key_bytes, s.endpoint.key
	return options
}

// ConnectChannel starts to connect to a listener of ListenChannels. A CompletionConnected with the
// channel's userData follows.
func (r *RawContext) ConnectChannel(address string, userData uint64, options ...Option) (ChannelHandle, error) {
	return connectRaw[ChannelHandle](r, channels, "connect channel "+address, address, userData, options)
}

// AcceptChannel accepts the channel of a CompletionConnectRequest. A CompletionConnected with
// userData follows.
func (r *RawContext) AcceptChannel(channel ChannelHandle, userData uint64, options ...Option) error {
	return r.acceptRaw(channels, "accept channel", uint64(channel), userData, options)
}

// RejectChannel rejects the channel of a CompletionConnectRequest. The peer's DialChannel fails
// with ErrRefused and shows `reason`.
func (r *RawContext) RejectChannel(channel ChannelHandle, reason uint32) error {
	return r.reject(channels, "reject channel", uint64(channel), reason)
}

// HandOverChannel hands the channel of a CompletionConnectRequest over to another context, which another goroutine may use meanwhile, but
// must not close. That context gets a CompletionConnectRequest with userData, and wakes up for it.
func (r *RawContext) HandOverChannel(channel ChannelHandle, to *RawContext, userData uint64) error {
	return r.handOver(channels, "hand over channel", uint64(channel), to, userData)
}

// ListenChannels listens for channels on `address`, an address of rail 0. Completions show
// userData. ListenerInfo and CloseListener work for both kinds of listeners.
func (r *RawContext) ListenChannels(address string, userData uint64, options ...Option) (ListenerHandle, error) {
	return r.listenRaw(channels, "listen for channels "+address, address, userData, options)
}

// ChannelBlob makes a channel, and the bytes that its peer needs for JoinChannel. JoinChannel is
// followed by a CompletionConnected.
func (r *RawContext) ChannelBlob(userData uint64, options ...Option) (ChannelHandle, []byte, error) {
	const op = "channel blob"
	s, err := r.settings(op, options)
	if err != nil {
		return 0, nil, err
	}
	handle, blob, err := r.blob(channels, op, userData, s)
	return ChannelHandle(handle), blob, err
}

// JoinChannel connects a channel of ChannelBlob with the blob of its peer, as Join does for
// endpoints.
func (r *RawContext) JoinChannel(channel ChannelHandle, peer []byte) error {
	return r.join(channels, "join channel", uint64(channel), peer)
}

// ---- Steering and parting -----------------------------------------------------------------------

// SetShare makes rail 0 carry rail0 / 1024 of everything that is posted from now on.
func (r *RawContext) SetShare(channel ChannelHandle, rail0 int) error {
	const op = "set share"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if rail0 < 0 || rail0 > ShareWhole {
		return errorf(op, ErrInvalid, "the share is %d; it counts parts of %d, and is at most that", rail0, ShareWhole)
	}
	return asError(op, C.crpc_channel_set_share(r.handle, channel.c(), C.uint32_t(rail0)), nil)
}

// DisconnectChannel disconnects gracefully: open sends finish as the peer posts receives for them,
// for at most `limit`. A CompletionDisconnected follows.
func (r *RawContext) DisconnectChannel(channel ChannelHandle, limit time.Duration) error {
	return r.disconnect(channels, "disconnect channel", uint64(channel), limit)
}

// CloseChannel ends a channel at once. Open ops complete with ErrClosed in the next polls, and the
// peer can no longer write to their buffers.
func (r *RawContext) CloseChannel(channel ChannelHandle) error {
	return r.close(channels, "close channel", uint64(channel))
}

// ChannelError returns why a channel could not connect or was disconnected; nil if neither has
// happened.
func (r *RawContext) ChannelError(channel ChannelHandle) error {
	return r.failed(channels, "channel", uint64(channel))
}

func (channel ChannelHandle) c() C.crpc_channel { return C.crpc_channel{bits: C.uint64_t(channel)} }
