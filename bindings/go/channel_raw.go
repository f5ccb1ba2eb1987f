// channel_raw.go: the low level of channels: an array of their ops in C memory, one crossing for as many as there are.

package copyrpc

/*
#include <stdlib.h>
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

// ChannelHandle names a channel of a [RawContext]; zero is none.
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

// ChannelOp is a crpc_channel_op: what SubmitChannel takes an array of. capi/copyrpc.h says which opcode names which fields; the
// others are zero.
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

// Channel is the channel of a completion that has the flag CompletionOfChannel.
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

// SubmitChannel hands over ChannelOps[:count] and tells how many of them were taken, of a group all or none, and if not all, why:
// ErrAgain means that there is no room until a CompletionRoom of the channel has come. Buffers must stay as they are until their
// completion.
func (r *RawContext) SubmitChannel(count int) (int, Status) { return r.SubmitChannelFrom(0, count) }

// SubmitChannelFrom is SubmitChannel of ChannelOps[first:first+count].
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
func (s *settings) channelOptions(userData uint64) *C.crpc_channel_options {
	options := &s.channel
	options.user_data = C.uint64_t(userData)
	options.connect_timeout_ns = s.endpoint.connect_timeout_ns
	options.keepalive_ns = s.endpoint.keepalive_ns
	options.retry_timeout, options.retry_count = s.endpoint.retry_timeout, s.endpoint.retry_count
	options.token_bytes, options.token = s.endpoint.token_bytes, s.endpoint.token
	return options
}

// ConnectChannel starts to connect to a listener of ListenChannels; a CompletionConnected with the channel's userData follows.
func (r *RawContext) ConnectChannel(address string, userData uint64, options ...Option) (ChannelHandle, error) {
	op := "connect channel " + address
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	s, problem := settingsOf(op, options)
	if problem != nil {
		return 0, problem
	}
	return r.connectChannel(op, address, userData, s)
}

func (r *RawContext) connectChannel(op, address string, userData uint64, s *settings) (ChannelHandle, error) {
	name := C.CString(address)
	defer C.free(unsafe.Pointer(name))
	var channel C.crpc_channel
	theirs := newCError()
	if status := C.crpc_channel_connect(r.handle, name, s.channelOptions(userData), &channel, &theirs); status < 0 {
		return 0, fromC(op, status, &theirs)
	}
	return ChannelHandle(channel.bits), nil
}

// AcceptChannel accepts the channel of a CompletionConnectRequest; a CompletionConnected with userData follows.
func (r *RawContext) AcceptChannel(channel ChannelHandle, userData uint64, options ...Option) error {
	const op = "accept channel"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	s, problem := settingsOf(op, options)
	if problem != nil {
		return problem
	}
	return r.acceptChannel(op, channel, userData, s)
}

func (r *RawContext) acceptChannel(op string, channel ChannelHandle, userData uint64, s *settings) error {
	theirs := newCError()
	if status := C.crpc_channel_accept(r.handle, channel.c(), s.channelOptions(userData), &theirs); status < 0 {
		return fromC(op, status, &theirs)
	}
	return nil
}

// RejectChannel rejects it; the peer's DialChannel fails with ErrRefused and shows `reason`.
func (r *RawContext) RejectChannel(channel ChannelHandle, reason uint32) error {
	if r == nil || r.handle == nil {
		return newError("reject channel", ErrClosed)
	}
	return asError("reject channel", C.crpc_channel_reject(r.handle, channel.c(), C.uint32_t(reason)))
}

// ListenChannels listens on `address`, one of rail 0, for peers that want channels; completions show userData. ListenerInfo and
// CloseListener are for both kinds of listeners.
func (r *RawContext) ListenChannels(address string, userData uint64, options ...Option) (ListenerHandle, error) {
	op := "listen for channels " + address
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	s, problem := settingsOf(op, options)
	if problem != nil {
		return 0, problem
	}
	s.listener |= C.CRPC_LISTENER_CHANNELS
	return r.listen(op, address, userData, s)
}

// ChannelBlob makes a channel and the bytes that its peer needs for JoinChannel. A CompletionConnected follows that.
func (r *RawContext) ChannelBlob(userData uint64, options ...Option) (ChannelHandle, []byte, error) {
	const op = "channel blob"
	if r == nil || r.handle == nil {
		return 0, nil, newError(op, ErrClosed)
	}
	s, problem := settingsOf(op, options)
	if problem != nil {
		return 0, nil, problem
	}
	return r.channelBlob(op, userData, s)
}

func (r *RawContext) channelBlob(op string, userData uint64, s *settings) (ChannelHandle, []byte, error) {
	blob := make([]byte, C.CRPC_BLOB_BYTES_MAX)
	bytes := C.uint32_t(len(blob))
	var channel C.crpc_channel
	theirs := newCError()
	status := C.crpc_channel_blob(r.handle, s.channelOptions(userData), &channel, unsafe.Pointer(unsafe.SliceData(blob)), &bytes,
		&theirs)
	if status < 0 {
		return 0, nil, fromC(op, status, &theirs)
	}
	return ChannelHandle(channel.bits), blob[:bytes:bytes], nil
}

// JoinChannel connects a channel of ChannelBlob with the blob of its peer, as Join does for endpoints.
func (r *RawContext) JoinChannel(channel ChannelHandle, peer []byte) error {
	const op = "join channel"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if len(peer) == 0 || len(peer) > C.CRPC_BLOB_BYTES_MAX {
		return errorf(op, ErrProtocol, "%d bytes are no blob; one has 1 to %d", len(peer), C.CRPC_BLOB_BYTES_MAX)
	}
	theirs := newCError()
	status := C.crpc_channel_join(r.handle, channel.c(), unsafe.Pointer(unsafe.SliceData(peer)), C.uint32_t(len(peer)), &theirs)
	if status < 0 {
		return fromC(op, status, &theirs)
	}
	return nil
}

// ---- Steering and parting -----------------------------------------------------------------------

// SetShare has rail 0 carry so many parts of 1024 of what is posted from now on.
func (r *RawContext) SetShare(channel ChannelHandle, rail0 int) error {
	const op = "set share"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if rail0 < 0 || rail0 > ShareWhole {
		return errorf(op, ErrInvalid, "the share is %d; it counts parts of %d, and is at most that", rail0, ShareWhole)
	}
	return asError(op, C.crpc_channel_set_share(r.handle, channel.c(), C.uint32_t(rail0)))
}

// DisconnectChannel takes leave: sends finish for which the peer posts receives, for at most `limit`; a CompletionDisconnected
// follows.
func (r *RawContext) DisconnectChannel(channel ChannelHandle, limit time.Duration) error {
	const op = "disconnect channel"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if limit < 0 {
		return errorf(op, ErrInvalid, "the timeout is %v; a time cannot be negative", limit)
	}
	timeout := C.uint64_t(limit)
	if limit == Forever {
		timeout = C.CRPC_FOREVER
	}
	return asError(op, C.crpc_channel_disconnect(r.handle, channel.c(), timeout))
}

// CloseChannel ends a channel at once; what is open completes with ErrClosed in the next polls, and nothing of the peer lands in
// buffers any more.
func (r *RawContext) CloseChannel(channel ChannelHandle) error {
	if r == nil || r.handle == nil {
		return newError("close channel", ErrClosed)
	}
	return asError("close channel", C.crpc_channel_close(r.handle, channel.c()))
}

// ChannelError tells why a channel could not connect or was disconnected; nil if neither.
func (r *RawContext) ChannelError(channel ChannelHandle) error {
	const op = "channel"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if e := r.channelError(op, channel); e != nil {
		return e
	}
	return nil
}

func (r *RawContext) channelError(op string, channel ChannelHandle) *Error {
	theirs := newCError()
	if status := C.crpc_channel_get_error(r.handle, channel.c(), &theirs); status < 0 {
		return newError(op, Status(status))
	}
	if theirs.status == 0 {
		return nil
	}
	return fromC(op, theirs.status, &theirs)
}

func (channel ChannelHandle) c() C.crpc_channel { return C.crpc_channel{bits: C.uint64_t(channel)} }
