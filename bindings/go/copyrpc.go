// Package copyrpc is RPC over RDMA: calls travel in batches, which the NIC writes directly into the
// peer's memory.
//
// There are two levels. The idiomatic level is [Dial], [Listen], [Endpoint.Call] and
// [Listener.Serve]. Any number of goroutines may call at once. One goroutine for each [Context]
// gathers their calls into batches, and distributes the results. The low level is [RawContext]:
// arrays of ops and completions in C memory, for one goroutine, at the speed of C.
//
// Besides calls there are messages: [DialChannel], [ListenChannels], [Channel.Send] and
// [Channel.Receive] move large data between registered buffers, striped over two ports.
//
// And there are the NIC's own queues: [Context.ConnectQueue], [Queue.Write], [Queue.Read],
// [Queue.FetchAdd], and [Queue.Batch] for many ops at once. Their peer can be any RDMA program.
//
// Errors have the type [*Error], or [*ReplyError] if the peer itself answered with a status.
// errors.Is compares them with statuses: errors.Is(err, copyrpc.ErrTimeout).
package copyrpc

/*
#cgo pkg-config: copyrpc
#include <copyrpc.h>
*/
import "C"

import (
	"fmt"
	"log"
	"unsafe"
)

// Version returns the version of the loaded C library, e.g. "0.1.0".
func Version() string {
	version := uint32(C.crpc_version())
	return fmt.Sprintf("%d.%d.%d", version>>16, version>>8&0xff, version&0xff)
}

// Warn gets messages that cannot be returned to a caller: a handler has panicked, or an object was
// never closed. Set it before the first use of the package.
var Warn = func(text string) { log.Print("copyrpc: ", text) }

// EndpointHandle names an endpoint of a [RawContext]. Zero is no endpoint.
type EndpointHandle uint64

// ListenerHandle names a listener of a [RawContext]. Zero is no listener.
type ListenerHandle uint64

// Opcodes of an [Op].
const (
	OpCall   = 1 // a request to the peer; completes with CompletionResponse
	OpReply  = 2 // the answer to a request; completes with CompletionReply
	OpDrop   = 3 // lets a request go: its caller gets ErrDropped
	OpCancel = 4 // ends the endpoint's calls whose UserData equals Token

	OpQuiet = 1 // flag of OpReply and OpDrop: no completion
	OpAfter = 2 // flag of OpCall and OpReply: sent when the ops of the lane before it have completed

	// OpRegion is a flag of OpCall and OpReply: the payload is in Region, PayloadOffset from its start, and the device reads it
	// there. It must not change until the op has completed.
	OpRegion = 4
)

// Kinds of a [Completion].
const (
	CompletionResponse       = 1
	CompletionReply          = 2
	CompletionCancel         = 3
	CompletionRequest        = 4
	CompletionConnectRequest = 5
	CompletionConnected      = 6
	CompletionDisconnected   = 7
	CompletionRoom           = 8
	CompletionDevice         = 9
)

// Op is a crpc_op. Submit accepts an array of them. capi/copyrpc.h says which fields each opcode
// uses; the others must be zero.
type Op struct {
	Opcode        uint8
	Flags         uint8
	Method        uint16
	Status        int32
	Endpoint      EndpointHandle
	UserData      uint64
	Token         uint64
	PayloadOffset uint64
	PayloadBytes  uint32
	ReplyBytesMax uint32
	TimeoutNs     uint64
	Region        RegionHandle
}

// Completion is a crpc_completion. Poll fills an array of them.
type Completion struct {
	Kind     uint8
	Flags    uint8
	Method   uint16
	Status   int32
	Endpoint EndpointHandle
	UserData uint64
	Token    uint64
	// An address in C's receive ring, which Go's memory does not move or free. A pointer and not an integer, so that View needs
	// no conversion that `go vet` would have to take on trust. It is never one into Go's heap.
	payload          unsafe.Pointer
	PayloadBytes     uint32
	ReplyBytesMax    uint32
	view             uint64
	EndpointUserData uint64
}

// View returns the payload where the NIC has written it. It is valid until the next Poll of the
// context; copy what you want to keep. For CompletionReceived and CompletionSent, it is the buffer,
// or nil if the message did not fit. A hostile peer can still change a view while you read: copy it
// (Retain) before you check it, if you do not trust the peer.
func (completion *Completion) View() []byte {
	if completion.Status < 0 || completion.payload == nil {
		return nil // PayloadBytes may be more than there is; of queues, it is that of the op's own memory
	}
	return unsafe.Slice((*byte)(completion.payload), int(completion.PayloadBytes))
}

// The structs above are C's, byte for byte: a field that moved does not compile.
var (
	_ [C.sizeof_crpc_op]byte         = [unsafe.Sizeof(Op{})]byte{}
	_ [C.sizeof_crpc_completion]byte = [unsafe.Sizeof(Completion{})]byte{}

	_ [unsafe.Offsetof(C.crpc_op{}.endpoint)]byte                   = [unsafe.Offsetof(Op{}.Endpoint)]byte{}
	_ [unsafe.Offsetof(C.crpc_op{}.user_data)]byte                  = [unsafe.Offsetof(Op{}.UserData)]byte{}
	_ [unsafe.Offsetof(C.crpc_op{}.payload_offset)]byte             = [unsafe.Offsetof(Op{}.PayloadOffset)]byte{}
	_ [unsafe.Offsetof(C.crpc_op{}.reply_bytes_max)]byte            = [unsafe.Offsetof(Op{}.ReplyBytesMax)]byte{}
	_ [unsafe.Offsetof(C.crpc_op{}.timeout_ns)]byte                 = [unsafe.Offsetof(Op{}.TimeoutNs)]byte{}
	_ [unsafe.Offsetof(C.crpc_op{}.region)]byte                     = [unsafe.Offsetof(Op{}.Region)]byte{}
	_ [unsafe.Offsetof(C.crpc_completion{}.status)]byte             = [unsafe.Offsetof(Completion{}.Status)]byte{}
	_ [unsafe.Offsetof(C.crpc_completion{}.user_data)]byte          = [unsafe.Offsetof(Completion{}.UserData)]byte{}
	_ [unsafe.Offsetof(C.crpc_completion{}.payload)]byte            = [unsafe.Offsetof(Completion{}.payload)]byte{}
	_ [unsafe.Offsetof(C.crpc_completion{}.payload_bytes)]byte      = [unsafe.Offsetof(Completion{}.PayloadBytes)]byte{}
	_ [unsafe.Offsetof(C.crpc_completion{}.view)]byte               = [unsafe.Offsetof(Completion{}.view)]byte{}
	_ [unsafe.Offsetof(C.crpc_completion{}.endpoint_user_data)]byte = [unsafe.Offsetof(Completion{}.EndpointUserData)]byte{}
)

// And so are the constants.
var (
	_ = [1]struct{}{}[OpCall-C.CRPC_OP_CALL]
	_ = [1]struct{}{}[OpReply-C.CRPC_OP_REPLY]
	_ = [1]struct{}{}[OpDrop-C.CRPC_OP_DROP]
	_ = [1]struct{}{}[OpCancel-C.CRPC_OP_CANCEL]
	_ = [1]struct{}{}[OpQuiet-C.CRPC_OP_QUIET]
	_ = [1]struct{}{}[OpAfter-C.CRPC_OP_AFTER]
	_ = [1]struct{}{}[OpRegion-C.CRPC_OP_REGION]
	_ = [1]struct{}{}[CompletionResponse-C.CRPC_COMPLETION_RESPONSE]
	_ = [1]struct{}{}[CompletionReply-C.CRPC_COMPLETION_REPLY]
	_ = [1]struct{}{}[CompletionCancel-C.CRPC_COMPLETION_CANCEL]
	_ = [1]struct{}{}[CompletionRequest-C.CRPC_COMPLETION_REQUEST]
	_ = [1]struct{}{}[CompletionConnectRequest-C.CRPC_COMPLETION_CONNECT_REQUEST]
	_ = [1]struct{}{}[CompletionConnected-C.CRPC_COMPLETION_CONNECTED]
	_ = [1]struct{}{}[CompletionDisconnected-C.CRPC_COMPLETION_DISCONNECTED]
	_ = [1]struct{}{}[CompletionRoom-C.CRPC_COMPLETION_ROOM]
	_ = [1]struct{}{}[CompletionDevice-C.CRPC_COMPLETION_DEVICE]
)
