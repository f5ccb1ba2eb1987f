// queue_raw.go: the low level of queues: an array of their ops in C memory, one crossing for as many as there are.

package copyrpc

/*
#include <copyrpc.h>

// With addresses as integers, as in raw.go.
static int32_t copyrpc_go_queue_submit(uintptr_t context, uint64_t queue, uintptr_t ops, uint32_t count, uintptr_t pieces,
                                       uint32_t piece_count, uintptr_t reason)
{
    return crpc_queue_submit((crpc_context *)context, (crpc_queue){queue}, (const crpc_queue_op *)ops, count,
                             (const crpc_piece *)pieces, piece_count, (int32_t *)reason);
}
*/
import "C"

import (
	"net/netip"
	"time"
	"unsafe"
)

// QueueHandle names a queue of a [RawContext]. Zero is no queue.
type QueueHandle uint64

// Opcodes of a [QueueOp].
const (
	QueueSend           = 1  // a message, which takes a receive of the peer
	QueueSendImmediate  = 2  // the same, with Immediate
	QueueSendInvalidate = 3  // the same, and ends the right that the peer's remote key Immediate gives
	QueueWrite          = 4  // writes to the peer's memory
	QueueWriteImmediate = 5  // the same, and then takes a receive of the peer, with Immediate
	QueueRead           = 6  // reads the peer's memory
	QueueCompareSwap    = 7  // replaces 8 bytes of the peer's memory by Operand if they are equal to Address
	QueueFetchAdd       = 8  // adds Operand to 8 bytes of the peer's memory
	QueueNop            = 9  // nothing; completes after what was before it
	QueueReceive        = 10 // memory for one message of the peer
)

// Flags of a [QueueOp].
const (
	QueueSignal    = 0x1  // of a sparse queue: the op completes also with success
	QueueFence     = 0x2  // begins when all READs and atomics before it have ended
	QueueSolicited = 0x4  // wakes a peer that waits for solicited messages only
	QueueInline    = 0x8  // the payload is copied by the submit, and needs no region
	QueuePieces    = 0x10 // Address is the index of the first Piece, Bytes how many there are
)

// CompletionWork is the kind of a [Completion] of a QueueOp, and the flags that concern queues.
const (
	CompletionWork = 13 // Method: the opcode; Token: of atomics, what was there before

	CompletionOfQueue     = 0x2  // Queue is the queue, and EndpointUserData is its
	CompletionImmediate   = 0x4  // ReplyBytesMax is the message's immediate
	CompletionInvalidated = 0x8  // ReplyBytesMax is the remote key that the peer has invalidated
	CompletionDetail      = 0x10 // the device has reported this op itself: of reads and receives, PayloadBytes is set
	CompletionOfDCT       = 0x20 // a receive of a DCT's: Token has who has sent, and in its upper half the length of a WRITE
	CompletionGRH         = 0x40 // a datagram: what precedes it says where it comes from, see TargetOf
)

// Bounds of queues.
const (
	QueueDepthMax        = C.CRPC_QUEUE_DEPTH_MAX         // Sends and Receives of a queue
	QueuePiecesMax       = C.CRPC_QUEUE_PIECES_MAX        // pieces of an op
	QueueInlineBytesMax  = C.CRPC_QUEUE_INLINE_BYTES_MAX  // bytes of an inline payload
	QueuePrivateBytesMax = C.CRPC_QUEUE_PRIVATE_BYTES_MAX // private data of Accept; Connect has 56, Reject 148
	QueueHeaderBytes     = C.CRPC_QUEUE_HEADER_BYTES      // what precedes each datagram in its receive
	SubmitPiecesMax      = C.CRPC_QUEUE_SUBMIT_PIECES_MAX // pieces of one SubmitQueue, or of a QueueBatch
)

// QueueOp is a crpc_queue_op. SubmitQueue accepts an array of them. capi/copyrpc.h says which
// fields each opcode uses; the others must be zero.
type QueueOp struct {
	Opcode        uint8
	Flags         uint8
	Stream        uint16 // of DCIs with streams
	Immediate     uint32
	UserData      uint64
	Region        RegionHandle
	Address       uint64 // of C memory, or of a mapping; never of Go's
	Bytes         uint32
	RemoteKey     uint32
	RemoteAddress uint64
	Operand       uint64
	Target        TargetHandle // of OpenDatagrams' queues, and of DCIs: where it goes
}

// Piece is a crpc_piece: one place of a payload with the flag QueuePieces.
type Piece struct {
	Region  RegionHandle
	Address uint64 // of C memory, or of a mapping; never of Go's
	Bytes   uint32
	zero    uint32
}

// Queue returns the queue of a completion with the flag CompletionOfQueue. Of a receive of
// SharedReceives, it is the queue over which the message came.
func (completion *Completion) Queue() QueueHandle { return QueueHandle(completion.Endpoint) }

// Immediate returns the number that came with a message, if one did.
func (completion *Completion) Immediate() (immediate uint32, ok bool) {
	if completion.Kind != CompletionWork || completion.Flags&CompletionImmediate == 0 {
		return 0, false
	}
	return completion.ReplyBytesMax, true
}

func (completion *Completion) ofQueue() bool { return completion.Flags&CompletionOfQueue != 0 }

// The structs above are C's, byte for byte, and so are the constants: what moved does not compile.
var (
	_ [C.sizeof_crpc_queue_op]byte                            = [unsafe.Sizeof(QueueOp{})]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.flags)]byte          = [unsafe.Offsetof(QueueOp{}.Flags)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.stream)]byte         = [unsafe.Offsetof(QueueOp{}.Stream)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.immediate)]byte      = [unsafe.Offsetof(QueueOp{}.Immediate)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.user_data)]byte      = [unsafe.Offsetof(QueueOp{}.UserData)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.region)]byte         = [unsafe.Offsetof(QueueOp{}.Region)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.address)]byte        = [unsafe.Offsetof(QueueOp{}.Address)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.bytes)]byte          = [unsafe.Offsetof(QueueOp{}.Bytes)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.remote_key)]byte     = [unsafe.Offsetof(QueueOp{}.RemoteKey)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.remote_address)]byte = [unsafe.Offsetof(QueueOp{}.RemoteAddress)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.operand)]byte        = [unsafe.Offsetof(QueueOp{}.Operand)]byte{}
	_ [unsafe.Offsetof(C.crpc_queue_op{}.target)]byte         = [unsafe.Offsetof(QueueOp{}.Target)]byte{}

	_ [C.sizeof_crpc_piece]byte                     = [unsafe.Sizeof(Piece{})]byte{}
	_ [unsafe.Offsetof(C.crpc_piece{}.address)]byte = [unsafe.Offsetof(Piece{}.Address)]byte{}
	_ [unsafe.Offsetof(C.crpc_piece{}.bytes)]byte   = [unsafe.Offsetof(Piece{}.Bytes)]byte{}

	_ = [1]struct{}{}[QueueSend-C.CRPC_QUEUE_SEND]
	_ = [1]struct{}{}[QueueSendImmediate-C.CRPC_QUEUE_SEND_IMMEDIATE]
	_ = [1]struct{}{}[QueueSendInvalidate-C.CRPC_QUEUE_SEND_INVALIDATE]
	_ = [1]struct{}{}[QueueWrite-C.CRPC_QUEUE_WRITE]
	_ = [1]struct{}{}[QueueWriteImmediate-C.CRPC_QUEUE_WRITE_IMMEDIATE]
	_ = [1]struct{}{}[QueueRead-C.CRPC_QUEUE_READ]
	_ = [1]struct{}{}[QueueCompareSwap-C.CRPC_QUEUE_COMPARE_SWAP]
	_ = [1]struct{}{}[QueueFetchAdd-C.CRPC_QUEUE_FETCH_ADD]
	_ = [1]struct{}{}[QueueNop-C.CRPC_QUEUE_NOP]
	_ = [1]struct{}{}[QueueReceive-C.CRPC_QUEUE_RECEIVE]
	_ = [1]struct{}{}[QueueSignal-C.CRPC_QUEUE_SIGNAL]
	_ = [1]struct{}{}[QueueFence-C.CRPC_QUEUE_FENCE]
	_ = [1]struct{}{}[QueueSolicited-C.CRPC_QUEUE_SOLICITED]
	_ = [1]struct{}{}[QueueInline-C.CRPC_QUEUE_INLINE]
	_ = [1]struct{}{}[QueuePieces-C.CRPC_QUEUE_PIECES]
	_ = [1]struct{}{}[CompletionWork-C.CRPC_COMPLETION_WORK]
	_ = [1]struct{}{}[CompletionOfQueue-C.CRPC_COMPLETION_OF_QUEUE]
	_ = [1]struct{}{}[CompletionImmediate-C.CRPC_COMPLETION_IMMEDIATE]
	_ = [1]struct{}{}[CompletionInvalidated-C.CRPC_COMPLETION_INVALIDATED]
	_ = [1]struct{}{}[CompletionDetail-C.CRPC_COMPLETION_DETAIL]
	_ = [1]struct{}{}[CompletionOfDCT-C.CRPC_COMPLETION_OF_DCT]
	_ = [1]struct{}{}[CompletionGRH-C.CRPC_COMPLETION_GRH]
)

// SubmitQueue submits QueueOps[:count] to a queue, and returns how many were accepted. Ops with the
// flag QueuePieces name Pieces. If not all were accepted, the status says why. ErrAgain means that
// there is no room before the next CompletionRoom of the queue. Buffers must not change until their
// completion.
func (r *RawContext) SubmitQueue(queue QueueHandle, count int) (int, Status) {
	return r.SubmitQueueFrom(queue, 0, count)
}

// SubmitQueueFrom does the same as SubmitQueue, for QueueOps[first:first+count].
func (r *RawContext) SubmitQueueFrom(queue QueueHandle, first, count int) (int, Status) {
	if r == nil || r.handle == nil {
		return 0, ErrClosed
	}
	if first < 0 || count < 0 || first > len(r.QueueOps)-count {
		return 0, ErrInvalid
	}
	if count == 0 {
		return 0, OK
	}
	return r.submitQueue(queue, &r.QueueOps[first], count, r.Pieces)
}

// submitQueue is the crossing. `ops` and `pieces` are C memory.
func (r *RawContext) submitQueue(queue QueueHandle, ops *QueueOp, count int, pieces []Piece) (int, Status) {
	taken := C.copyrpc_go_queue_submit(address(unsafe.Pointer(r.handle)), C.uint64_t(queue), address(unsafe.Pointer(ops)),
		C.uint32_t(count), address(unsafe.Pointer(unsafe.SliceData(pieces))), C.uint32_t(len(pieces)),
		address(unsafe.Pointer(&r.scratch.reason)))
	return max(int(taken), 0), Status(r.scratch.reason)
}

// ---- Connecting ---------------------------------------------------------------------------------

// queueOptions gives what the options say of a queue; what they say of connections in general was kept for endpoints.
func (s *settings) queueOptions() *C.crpc_queue_options {
	options := &s.queue
	options.user_data = s.endpoint.user_data
	options.connect_timeout_ns = s.endpoint.connect_timeout_ns
	options.retry_timeout, options.retry_count = s.endpoint.retry_timeout, s.endpoint.retry_count
	return options
}

// ConnectQueue starts to connect an RC queue, to a listener of ListenQueues or any program that
// accepts reliable connections by rdma_cm. A CompletionConnected with the queue's userData follows.
func (r *RawContext) ConnectQueue(address string, userData uint64, options QueueOptions) (QueueHandle, error) {
	return connectRaw[QueueHandle](r, queues, "connect queue "+address, address, userData, []Option{options.option()})
}

// AcceptQueue accepts the queue of a CompletionConnectRequest. A CompletionConnected with userData
// follows.
func (r *RawContext) AcceptQueue(queue QueueHandle, userData uint64, options QueueOptions) error {
	return r.acceptRaw(queues, "accept queue", uint64(queue), userData, []Option{options.option()})
}

// RejectQueue rejects the queue of a CompletionConnectRequest. The peer's ConnectQueue fails with
// ErrRefused, and gets `private`, at most 148 bytes.
func (r *RawContext) RejectQueue(queue QueueHandle, private []byte) error {
	return r.ask("reject queue", func() C.int32_t {
		return C.crpc_queue_reject(r.handle, queue.c(), unsafe.Pointer(unsafe.SliceData(private)), C.uint32_t(min(len(private), 1<<16)))
	})
}

// HandOverQueue hands the queue of a CompletionConnectRequest over to another context, which another goroutine may use meanwhile, but
// must not close. That context gets a CompletionConnectRequest with userData, and wakes up for it.
func (r *RawContext) HandOverQueue(queue QueueHandle, to *RawContext, userData uint64) error {
	return r.handOver(queues, "hand over queue", uint64(queue), to, userData)
}

// ListenQueues listens for queues on `address`. Completions show userData. ListenerInfo and
// CloseListener work for all kinds of listeners.
func (r *RawContext) ListenQueues(address string, userData uint64, options ...Option) (ListenerHandle, error) {
	return r.listenRaw(queues, "listen for queues "+address, address, userData, options)
}

// QueueBlob makes an RC queue, and the bytes that its peer needs for JoinQueue. JoinQueue is followed
// by a CompletionConnected.
func (r *RawContext) QueueBlob(userData uint64, options QueueOptions) (QueueHandle, []byte, error) {
	const op = "queue blob"
	s, err := r.settings(op, []Option{options.option()})
	if err != nil {
		return 0, nil, err
	}
	handle, blob, err := r.blob(queues, op, userData, s)
	return QueueHandle(handle), blob, err
}

// JoinQueue connects a queue of QueueBlob with the blob of its peer, as Join does for endpoints.
func (r *RawContext) JoinQueue(queue QueueHandle, peer []byte) error {
	return r.join(queues, "join queue", uint64(queue), peer)
}

// OpenSharedReceives makes an SRQ, which has the receives of all RC queues that name it as their
// ReceiveQueue. Of the options, only Receives and ReceivePieces may be set.
func (r *RawContext) OpenSharedReceives(userData uint64, options QueueOptions) (QueueHandle, error) {
	const op = "open shared receives"
	s, err := r.settings(op, []Option{options.option()})
	if err != nil {
		return 0, err
	}
	return r.openQueue(op, userData, s, sharedReceives)
}

// Kinds of queues without a peer.
const (
	sharedReceives = C.CRPC_QUEUE_KIND_SRQ
	datagrams      = C.CRPC_QUEUE_KIND_UD
	initiator      = C.CRPC_QUEUE_KIND_DCI
	dynamicTarget  = C.CRPC_QUEUE_KIND_DCT
)

func (r *RawContext) openQueue(op string, userData uint64, s *settings, kind uint32) (QueueHandle, error) {
	s.endpoint.user_data = C.uint64_t(userData)
	options := s.queueOptions()
	options.kind = C.uint32_t(kind)
	var queue C.crpc_queue
	theirs := newCError()
	status := C.crpc_queue_open(r.handle, options, &queue, &theirs)
	return QueueHandle(queue.bits), asError(op, status, &theirs)
}

// QueueAddress is what a program that exchanges addresses in its own way has to know of an RC queue,
// to connect its own queue pair to it.
type QueueAddress struct {
	QueuePairNumber      uint32
	PacketSequenceNumber uint32 // of the first packet that it sends
	InfiniBand           bool   // the link; else Ethernet
	MTUBytes             int
	LID                  uint32 // InfiniBand
	GID                  netip.Addr
	GRHRequired          bool // packets to it have a GRH, also within its InfiniBand subnet
}

func newCAddress() C.crpc_queue_address {
	return C.crpc_queue_address{struct_size: C.sizeof_crpc_queue_address}
}

func goAddress(theirs *C.crpc_queue_address) QueueAddress {
	return QueueAddress{
		QueuePairNumber: uint32(theirs.queue_pair_number), PacketSequenceNumber: uint32(theirs.packet_sequence_number),
		InfiniBand: theirs.link == C.CRPC_LINK_INFINIBAND, MTUBytes: int(theirs.mtu_bytes), LID: uint32(theirs.lid),
		GID:         netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&theirs.gid))),
		GRHRequired: theirs.flags&C.CRPC_GRH_REQUIRED != 0,
	}
}

func (address QueueAddress) c() C.crpc_queue_address {
	ours := newCAddress()
	ours.queue_pair_number, ours.link = C.uint32_t(address.QueuePairNumber), C.CRPC_LINK_ETHERNET
	ours.packet_sequence_number, ours.lid = C.uint32_t(address.PacketSequenceNumber), C.uint32_t(address.LID)
	ours.mtu_bytes = C.uint32_t(max(min(address.MTUBytes, 1<<20), 0))
	if address.InfiniBand {
		ours.link = C.CRPC_LINK_INFINIBAND
	}
	if address.GID.IsValid() {
		*(*[16]byte)(unsafe.Pointer(&ours.gid)) = address.GID.As16()
	}
	if address.GRHRequired {
		ours.flags = C.CRPC_GRH_REQUIRED
	}
	return ours
}

// QueueAddress gives the address of an RC queue, of OpenDatagrams' queues, or of a DCT.
func (r *RawContext) QueueAddress(queue QueueHandle) (QueueAddress, error) {
	theirs := newCAddress()
	err := r.ask("queue address", func() C.int32_t { return C.crpc_queue_get_address(r.handle, queue.c(), &theirs) })
	if err != nil {
		return QueueAddress{}, err
	}
	return goAddress(&theirs), nil
}

// JoinQueueAddress connects a queue of QueueBlob with the queue pair of any program, which connects
// its own to the QueueAddress of ours. A CompletionConnected follows.
func (r *RawContext) JoinQueueAddress(queue QueueHandle, peer QueueAddress) error {
	const op = "join queue"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	ours, theirs := peer.c(), newCError()
	return asError(op, C.crpc_queue_join_address(r.handle, queue.c(), &ours, &theirs), &theirs)
}

// ---- Parting ------------------------------------------------------------------------------------

// FailQueue ends an RC queue at once, but keeps the handle. Open ops complete with ErrFlushed, and
// then comes a CompletionDisconnected.
func (r *RawContext) FailQueue(queue QueueHandle) error {
	return r.ask("fail queue", func() C.int32_t { return C.crpc_queue_fail(r.handle, queue.c()) })
}

// DrainQueue disconnects an RC queue gracefully: open sends finish, for at most `limit`, and then
// open receives complete with ErrFlushed. A CompletionDisconnected follows.
func (r *RawContext) DrainQueue(queue QueueHandle, limit time.Duration) error {
	return r.disconnect(queues, "drain queue", uint64(queue), limit)
}

// CloseQueue ends a queue at once. Open ops complete with ErrClosed in the next polls, and the device
// no longer uses their buffers. ErrBusy: queues still use these shared receives.
func (r *RawContext) CloseQueue(queue QueueHandle) error {
	return r.close(queues, "close queue", uint64(queue))
}

// ---- Asking -------------------------------------------------------------------------------------

// QueueError returns why a queue could not connect, has failed or was disconnected; nil if none of
// it has happened.
func (r *RawContext) QueueError(queue QueueHandle) error {
	return r.failed(queues, "queue", uint64(queue))
}

// QueueInfo describes a queue.
type QueueInfo struct {
	State           EndpointState
	Handle          QueueHandle
	QueuePairNumber uint32
	PeerNumber      uint32 // of the peer's queue pair; 0: not connected
	Sends           int    // as in QueueOptions: this and the next ones
	SendPieces      int
	InlineBytes     int
	Receives        int
	ReceivePieces   int
	ReceiveQueue    QueueHandle // 0: it has its own receives, or none
	SendsOpen       int         // places of the send queue in use: an op takes one or several
	ReceivesOpen    int
	Queues          int // of SharedReceives: open queues that use them
	MessageBytesMax int // longest payload of an op
	PeerAddress     string
	LocalAddress    string
	Private         []byte // what the peer has sent by rdma_cm; the network may have added zeros

	NotReadyWait       time.Duration // in use, as ModifyQueue changes them: this and the next ones
	Access             Access
	RetryTimeout       int
	RetryCount         int
	NotReadyRetryCount int
	QueueKey           uint32
	SRQLimit           int

	Streams       int // of a DCI, as in QueueOptions
	StreamsFailed int // and were not reset

	Tags     int // of TaggedReceives: as in QueueOptions
	TagsOpen int // receives with tags that have not completed
}

// QueueInfo describes a queue.
func (r *RawContext) QueueInfo(queue QueueHandle) (QueueInfo, error) {
	info := C.crpc_queue_info{struct_size: C.sizeof_crpc_queue_info}
	err := r.ask("queue info", func() C.int32_t { return C.crpc_queue_get_info(r.handle, queue.c(), &info) })
	if err != nil {
		return QueueInfo{}, err
	}
	return QueueInfo{
		State: EndpointState(info.state), Handle: queue, QueuePairNumber: uint32(info.queue_pair_number),
		PeerNumber: uint32(info.peer_number), Sends: int(info.sends), SendPieces: int(info.send_pieces),
		InlineBytes: int(info.inline_bytes), Receives: int(info.receives), ReceivePieces: int(info.receive_pieces),
		ReceiveQueue: QueueHandle(info.receive_queue.bits), SendsOpen: int(info.sends_open), ReceivesOpen: int(info.receives_open),
		Queues: int(info.queues), MessageBytesMax: int(info.message_bytes_max), PeerAddress: text(info.peer_address[:]),
		LocalAddress: text(info.local_address[:]), Private: C.GoBytes(unsafe.Pointer(&info.private_data), C.int(info.private_bytes)),
		NotReadyWait: time.Duration(info.not_ready_wait_ns), Access: Access(info.access), RetryTimeout: int(info.retry_timeout),
		RetryCount: int(info.retry_count), NotReadyRetryCount: int(info.not_ready_retry_count), QueueKey: uint32(info.queue_key),
		SRQLimit: int(info.srq_limit), Streams: int(info.streams), StreamsFailed: int(info.streams_failed),
		Tags: int(info.tags), TagsOpen: int(info.tags_open),
	}, nil
}

// QueueStats are counters of a queue since it was made.
type QueueStats struct {
	Sends        uint64 // ops accepted, but for receives
	Receives     uint64 // receives accepted
	SignaledWQEs uint64 // sends that the device was asked to report
	Doorbells    uint64 // of both kinds
}

// QueueStats reads the counters of a queue.
func (r *RawContext) QueueStats(queue QueueHandle) (QueueStats, error) {
	s := C.crpc_queue_stats{struct_size: C.sizeof_crpc_queue_stats}
	err := r.ask("queue stats", func() C.int32_t { return C.crpc_queue_get_stats(r.handle, queue.c(), &s) })
	if err != nil {
		return QueueStats{}, err
	}
	return QueueStats{Sends: uint64(s.sends), Receives: uint64(s.receives), SignaledWQEs: uint64(s.signaled_wqes),
		Doorbells: uint64(s.doorbells)}, nil
}

func (queue QueueHandle) c() C.crpc_queue { return C.crpc_queue{bits: C.uint64_t(queue)} }
