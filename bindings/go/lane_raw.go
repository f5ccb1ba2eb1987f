// lane_raw.go: the low level of lanes: an array of their ops in C memory, one crossing for as many as there are; and grants.

package copyrpc

/*
#include <copyrpc.h>

// With addresses as integers, as in raw.go.
static int32_t copyrpc_go_lane_submit(uintptr_t context, uint64_t endpoint, uintptr_t ops, uint32_t count, uintptr_t pieces,
                                      uint32_t piece_count, uintptr_t reason)
{
    return crpc_lane_submit((crpc_context *)context, (crpc_endpoint){endpoint}, (const crpc_lane_op *)ops, count,
                            (const crpc_piece *)pieces, piece_count, (int32_t *)reason);
}
*/
import "C"

import (
	"time"
	"unsafe"
)

// GrantHandle names a grant of a [RawContext]. Zero is no grant.
type GrantHandle uint64

// Opcodes of a [LaneOp].
const (
	LaneWrite       = 1 // writes to memory that the peer has granted
	LaneRead        = 2 // reads it; what writes before it have written is there
	LaneCompareSwap = 3 // replaces 8 bytes of it by Operand if they are equal to Compare
	LaneFetchAdd    = 4 // adds Operand to 8 bytes of it
	LaneGrant       = 5 // lets the peer use memory; the completion's Token is a GrantHandle
	LaneRevoke      = 6 // ends a grant of this side
)

// Flags of a [LaneOp].
const (
	LaneFence  = 0x1 // it begins when all reads and atomics before it have ended
	LaneInline = 0x2 // the payload of a write is copied by the submit, and needs no region
	LanePieces = 0x4 // Address is the index of the first Piece, Bytes how many there are
)

// LanePiecesMax is how many pieces an op of a lane has at most.
const LanePiecesMax = C.CRPC_LANE_PIECES_MAX

// GrantBytes is how many bytes a grant has.
const GrantBytes = C.CRPC_GRANT_BYTES

// LaneOp is a crpc_lane_op. SubmitLane accepts an array of them. capi/copyrpc.h says which fields each
// opcode uses; the others must be zero.
type LaneOp struct {
	Opcode   uint8
	Flags    uint8
	access   uint16 // SetAccess
	Bytes    uint32
	UserData uint64
	Region   RegionHandle
	Address  uint64 // of C memory, or of a mapping; never of Go's
	Grant    GrantHandle
	Offset   uint64 // from the start of the grant
	Compare  uint64
	Operand  uint64
}

// SetAccess has a LaneGrant give these rights: RemoteRead, RemoteWrite and RemoteAtomic.
func (op *LaneOp) SetAccess(access Access) {
	op.access = uint16(access)
	if access>>16 != 0 {
		op.access = 1 << 15 // no right, so C refuses it
	}
}

// The structs are C's, byte for byte, and so are the constants: what moved does not compile. Where the opcode and the user_data are,
// ops of queues have theirs: so both go through the same lines and batches.
var (
	_ [C.sizeof_crpc_lane_op]byte                       = [unsafe.Sizeof(LaneOp{})]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.flags)]byte     = [unsafe.Offsetof(LaneOp{}.Flags)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.access)]byte    = [unsafe.Offsetof(LaneOp{}.access)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.bytes)]byte     = [unsafe.Offsetof(LaneOp{}.Bytes)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.user_data)]byte = [unsafe.Offsetof(LaneOp{}.UserData)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.region)]byte    = [unsafe.Offsetof(LaneOp{}.Region)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.address)]byte   = [unsafe.Offsetof(LaneOp{}.Address)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.grant)]byte     = [unsafe.Offsetof(LaneOp{}.Grant)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.offset)]byte    = [unsafe.Offsetof(LaneOp{}.Offset)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.compare)]byte   = [unsafe.Offsetof(LaneOp{}.Compare)]byte{}
	_ [unsafe.Offsetof(C.crpc_lane_op{}.operand)]byte   = [unsafe.Offsetof(LaneOp{}.Operand)]byte{}
	_ [unsafe.Sizeof(QueueOp{})]byte                    = [unsafe.Sizeof(LaneOp{})]byte{}
	_ [unsafe.Offsetof(QueueOp{}.Opcode)]byte           = [unsafe.Offsetof(LaneOp{}.Opcode)]byte{}
	_ [unsafe.Offsetof(QueueOp{}.UserData)]byte         = [unsafe.Offsetof(LaneOp{}.UserData)]byte{}

	_ = [1]struct{}{}[LaneWrite-C.CRPC_LANE_WRITE]
	_ = [1]struct{}{}[LaneRead-C.CRPC_LANE_READ]
	_ = [1]struct{}{}[LaneCompareSwap-C.CRPC_LANE_COMPARE_SWAP]
	_ = [1]struct{}{}[LaneFetchAdd-C.CRPC_LANE_FETCH_ADD]
	_ = [1]struct{}{}[LaneGrant-C.CRPC_LANE_GRANT]
	_ = [1]struct{}{}[LaneRevoke-C.CRPC_LANE_REVOKE]
	_ = [1]struct{}{}[LaneFence-C.CRPC_LANE_FENCE]
	_ = [1]struct{}{}[LaneInline-C.CRPC_LANE_INLINE]
	_ = [1]struct{}{}[LanePieces-C.CRPC_LANE_PIECES]
)

// laneOps is what a batch of a lane has.
func laneOps(ops []QueueOp) []LaneOp {
	return unsafe.Slice((*LaneOp)(unsafe.Pointer(unsafe.SliceData(ops))), len(ops))
}

// asQueueOp has lines and batches, which know opcode and UserData alone, take it for an op of a queue.
func (op *LaneOp) asQueueOp() *QueueOp { return (*QueueOp)(unsafe.Pointer(op)) }

// WithLane has an endpoint ask its peer for a lane, over which each side uses memory that the other grants.
// There is one if the peer asks, too. See docs/lanes.md.
func WithLane() Option {
	return func(s *settings) { s.endpoint.flags |= C.CRPC_ENDPOINT_LANE }
}

// WithLaneDepth sets how many ops of the lane may be open, up to 4096.
func WithLaneDepth(count int) Option {
	return func(s *settings) { s.endpoint.lane_depth = s.number("lane_depth", count) }
}

func (s *settings) wantsLane() bool { return s.endpoint.flags&C.CRPC_ENDPOINT_LANE != 0 }

// SubmitLane submits LaneOps[:count], whose pieces are Pieces, to the lane of an endpoint, and returns how many were accepted. If not
// all were accepted, the status says why. ErrAgain means that there is no room, or no lane yet, before the
// next CompletionRoom. Each op completes with a CompletionWork, without the flag CompletionOfQueue.
func (r *RawContext) SubmitLane(endpoint EndpointHandle, count int) (int, Status) {
	return r.SubmitLaneFrom(endpoint, 0, count)
}

// SubmitLaneFrom does the same as SubmitLane, for LaneOps[first:first+count].
func (r *RawContext) SubmitLaneFrom(endpoint EndpointHandle, first, count int) (int, Status) {
	if r == nil || r.handle == nil {
		return 0, ErrClosed
	}
	if first < 0 || count < 0 || first > len(r.LaneOps)-count {
		return 0, ErrInvalid
	}
	if count == 0 {
		return 0, OK
	}
	return r.submitLane(endpoint, &r.LaneOps[first], count, r.Pieces)
}

// submitLane is the crossing. `ops` and `pieces` are C memory.
func (r *RawContext) submitLane(endpoint EndpointHandle, ops *LaneOp, count int, pieces []Piece) (int, Status) {
	taken := C.copyrpc_go_lane_submit(address(unsafe.Pointer(r.handle)), C.uint64_t(endpoint), address(unsafe.Pointer(ops)),
		C.uint32_t(count), address(unsafe.Pointer(unsafe.SliceData(pieces))), C.uint32_t(len(pieces)),
		address(unsafe.Pointer(&r.scratch.reason)))
	return max(int(taken), 0), Status(r.scratch.reason)
}

// ---- Grants -------------------------------------------------------------------------------------

// GrantBytes returns the bytes of a grant of this side, for the peer of its endpoint, in any payload.
func (r *RawContext) GrantBytes(grant GrantHandle) ([]byte, error) {
	var bytes [GrantBytes]byte
	err := r.ask("grant", func() C.int32_t { return C.crpc_grant_get(r.handle, grant.c(), unsafe.Pointer(&bytes)) })
	if err != nil {
		return nil, err
	}
	return bytes[:], nil
}

// OpenGrant makes a handle of the bytes of a grant that the peer of an endpoint has given. ErrProtocol: they
// are cut or damaged; ErrStale: they are of another connection, or revoked; ErrAgain: there is no lane yet.
func (r *RawContext) OpenGrant(endpoint EndpointHandle, bytes []byte) (GrantHandle, error) {
	const op = "open grant"
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	var grant C.crpc_grant
	theirs := newCError()
	count := C.uint32_t(min(len(bytes), 1<<20))
	status := C.crpc_grant_open(r.handle, endpoint.c(), unsafe.Pointer(unsafe.SliceData(bytes)), count, &grant, &theirs)
	return GrantHandle(grant.bits), asError(op, status, &theirs)
}

// CloseGrant closes the handle of a peer's grant. Ops that were accepted go on. ErrState: it is of this side,
// so LaneRevoke ends it.
func (r *RawContext) CloseGrant(grant GrantHandle) error {
	return r.ask("close grant", func() C.int32_t { return C.crpc_grant_close(r.handle, grant.c()) })
}

// GrantInfo describes a grant.
type GrantInfo struct {
	Endpoint EndpointHandle // over whose lane it is
	Access   Access         // what the peer may do
	Bytes    int            // how much memory it gives
	OfPeer   bool           // the peer has given it; else this side
	Over     bool           // the peer has revoked it, or the lane has ended
}

// GrantInfo describes a grant of either side.
func (r *RawContext) GrantInfo(grant GrantHandle) (GrantInfo, error) {
	info := C.crpc_grant_info{struct_size: C.sizeof_crpc_grant_info}
	err := r.ask("grant info", func() C.int32_t { return C.crpc_grant_get_info(r.handle, grant.c(), &info) })
	if err != nil {
		return GrantInfo{}, err
	}
	return GrantInfo{Endpoint: EndpointHandle(info.endpoint.bits), Access: Access(info.access), Bytes: int(info.bytes),
		OfPeer: info.of_peer != 0, Over: info.over != 0}, nil
}

func (grant GrantHandle) c() C.crpc_grant { return C.crpc_grant{bits: C.uint64_t(grant)} }

// revokeLimit is for how long the peer may take to answer, in C's terms.
func revokeLimit(limit time.Duration) uint64 {
	if limit == Forever {
		return 0
	}
	return uint64(limit)
}
