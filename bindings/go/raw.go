// raw.go: the low level: one context, its arrays in C memory, one crossing for as many ops or completions as there are.

package copyrpc

/*
#include <stdlib.h>
#include <copyrpc.h>

// The two hot calls, with addresses as integers: all of them are of C memory, and cgo's checks of pointers, which find that out
// at each crossing, allocate with Go 1.21.
static int32_t copyrpc_go_submit(uintptr_t context, uintptr_t ops, uint32_t count, uintptr_t payload, uint64_t bytes, uintptr_t reason)
{
    return crpc_submit((crpc_context *)context, (const crpc_op *)ops, count, (const void *)payload, bytes, (int32_t *)reason);
}

static int32_t copyrpc_go_poll(uintptr_t context, uintptr_t completions, uint32_t capacity)
{
    return crpc_poll((crpc_context *)context, (crpc_completion *)completions, capacity);
}

// What C writes to and reads from at each call, in C memory, so that nothing of Go's need be pinned or escape.
struct copyrpc_go_scratch {
    int32_t reason; // why crpc_submit stopped
    crpc_op op;     // for crpc_reserve
    void *address;  // from crpc_reserve
    crpc_trace trace; // from crpc_request_get_trace
};
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// RawContext is a crpc_context with arrays of its own in C memory, for one goroutine at a time.
// Fill Ops and Payload, and call Submit; call Poll, and read Completions; call Wait if there is
// nothing. Submit and Poll allocate nothing, and make one call of C each.
type RawContext struct {
	Ops         []Op         // what Submit takes; in C memory, gone with Close
	Completions []Completion // what Poll fills; likewise
	Payload     []byte       // what the ops' PayloadOffset counts from; likewise
	ChannelOps  []ChannelOp  // what SubmitChannel takes; likewise
	QueueOps    []QueueOp    // what SubmitQueue takes; likewise
	Pieces      []Piece      // what QueueOps with QueuePieces and LaneOps with LanePieces name; likewise
	LaneOps     []LaneOp     // what SubmitLane takes; likewise

	handle  *C.crpc_context
	scratch *C.struct_copyrpc_go_scratch
	sleeper sleeper
}

// RawSizes are the sizes of the arrays of a RawContext.
type RawSizes struct {
	Ops          int // 0: 256
	Completions  int // 0: 256
	PayloadBytes int // 0: 1 MiB
	ChannelOps   int // 0: 256
	QueueOps     int // 0: 256
	Pieces       int // at most 4096; 0: 256
	LaneOps      int // 0: 256
}

// OpenRaw opens a device for one goroutine that polls it itself.
func OpenRaw(sizes RawSizes, options ...Option) (*RawContext, error) {
	const op = "open"
	s, err := settingsOf(op, options)
	if err != nil {
		return nil, err
	}
	if s.logger != nil {
		return nil, errorf(op, ErrInvalid, "WithSlog needs a goroutine that polls, as Open has one: give OpenRaw WithLog, and read RawContext.Log")
	}
	if sizes.Ops < 0 || sizes.Completions < 0 || sizes.PayloadBytes < 0 || sizes.ChannelOps < 0 || sizes.QueueOps < 0 ||
		sizes.Pieces < 0 || sizes.LaneOps < 0 || sizes.Completions > 1<<20 || sizes.Pieces > SubmitPiecesMax {
		return nil, errorf(op, ErrInvalid, "a size is negative, or above 2^20 completions or %d pieces", SubmitPiecesMax)
	}
	return openRaw(op, sizes, s)
}

func openRaw(op string, sizes RawSizes, s *settings) (*RawContext, error) {
	r := &RawContext{}
	theirs := newCError()
	if status := C.crpc_context_open(&s.device, &r.handle, &theirs); status < 0 {
		return nil, fromC(op, status, &theirs)
	}
	r.scratch = (*C.struct_copyrpc_go_scratch)(C.calloc(1, C.sizeof_struct_copyrpc_go_scratch))
	r.Ops = cleared[Op](orDefault(sizes.Ops, 256))
	r.Completions = cleared[Completion](orDefault(sizes.Completions, 256))
	bytes := orDefault(sizes.PayloadBytes, 1<<20)
	r.Payload = unsafe.Slice((*byte)(C.malloc(C.size_t(bytes))), bytes)
	r.ChannelOps = cleared[ChannelOp](orDefault(sizes.ChannelOps, 256))
	r.QueueOps = cleared[QueueOp](orDefault(sizes.QueueOps, 256))
	r.Pieces = cleared[Piece](orDefault(sizes.Pieces, 256))
	r.LaneOps = cleared[LaneOp](orDefault(sizes.LaneOps, 256))
	if err := r.sleeper.open(int(C.crpc_context_fd(r.handle))); err != nil {
		r.Close()
		return nil, errorf(op, ErrSystem, "the context's descriptor cannot be watched: %v", err)
	}
	return r, nil
}

// cleared gives an array of zeros in C memory.
func cleared[T any](count int) []T {
	return unsafe.Slice((*T)(C.calloc(C.size_t(count), C.size_t(unsafe.Sizeof(*new(T))))), count)
}

func orDefault(value, otherwise int) int {
	if value == 0 {
		return otherwise
	}
	return value
}

// Close closes all handles and the context, and frees the arrays. Closing twice is allowed.
func (r *RawContext) Close() error {
	if r == nil || r.handle == nil {
		return nil
	}
	r.sleeper.close()
	C.crpc_context_close(r.handle)
	r.handle = nil
	C.free(unsafe.Pointer(r.scratch))
	C.free(unsafe.Pointer(unsafe.SliceData(r.Ops)))
	C.free(unsafe.Pointer(unsafe.SliceData(r.Completions)))
	C.free(unsafe.Pointer(unsafe.SliceData(r.Payload)))
	C.free(unsafe.Pointer(unsafe.SliceData(r.ChannelOps)))
	C.free(unsafe.Pointer(unsafe.SliceData(r.QueueOps)))
	C.free(unsafe.Pointer(unsafe.SliceData(r.Pieces)))
	C.free(unsafe.Pointer(unsafe.SliceData(r.LaneOps)))
	r.scratch, r.Ops, r.Completions, r.Payload, r.ChannelOps, r.QueueOps, r.Pieces, r.LaneOps = nil, nil, nil, nil, nil, nil, nil, nil
	return nil
}

// Submit submits Ops[:count], and returns how many were accepted. If not all were accepted, the
// status says why. ErrAgain means that there is no room before the next CompletionRoom.
func (r *RawContext) Submit(count int) (int, Status) { return r.SubmitFrom(0, count) }

// SubmitFrom does the same as Submit, for Ops[first:first+count].
func (r *RawContext) SubmitFrom(first, count int) (int, Status) {
	if r == nil || r.handle == nil {
		return 0, ErrClosed
	}
	if first < 0 || count < 0 || first > len(r.Ops)-count {
		return 0, ErrInvalid
	}
	if count == 0 {
		return 0, OK
	}
	return r.submit(&r.Ops[first], count, unsafe.Pointer(unsafe.SliceData(r.Payload)), len(r.Payload))
}

// address is for C memory only, which stays where it is.
func address(pointer unsafe.Pointer) C.uintptr_t { return C.uintptr_t(uintptr(pointer)) }

// submit is the crossing. `ops` and `payload` are C memory.
func (r *RawContext) submit(ops *Op, count int, payload unsafe.Pointer, bytes int) (int, Status) {
	taken := C.copyrpc_go_submit(address(unsafe.Pointer(r.handle)), address(unsafe.Pointer(ops)), C.uint32_t(count),
		address(payload), C.uint64_t(bytes), address(unsafe.Pointer(&r.scratch.reason)))
	return max(int(taken), 0), Status(r.scratch.reason)
}

// Poll fills Completions, up to its length, and returns how many there are. It never blocks. It
// ends the views of the previous poll.
func (r *RawContext) Poll() (int, Status) {
	if r == nil || r.handle == nil {
		return 0, ErrClosed
	}
	count := C.copyrpc_go_poll(address(unsafe.Pointer(r.handle)), address(unsafe.Pointer(unsafe.SliceData(r.Completions))),
		C.uint32_t(len(r.Completions)))
	if count < 0 {
		return 0, Status(count)
	}
	return int(count), OK
}

// Retain copies the payload of a completion to `buffer` while its view is valid, and returns its
// length. It fails with ErrStale after a later Poll, when View would show newer data, and with
// ErrTooBig if the payload does not fit. The copy no longer changes, whatever the peer does.
func (r *RawContext) Retain(completion *Completion, buffer []byte) (int, Status) {
	if r == nil || r.handle == nil {
		return 0, ErrClosed
	}
	// A copy in C's terms, because the completion may be one of Go's: no pointer of Go's may go to C inside of a struct.
	theirs := *(*C.crpc_completion)(unsafe.Pointer(completion))
	bytes := C.crpc_retain(r.handle, &theirs, unsafe.Pointer(unsafe.SliceData(buffer)), C.uint64_t(len(buffer)))
	if bytes < 0 {
		return 0, Status(bytes)
	}
	return int(bytes), OK
}

// Wait sleeps in Go's netpoller, not in an OS thread, until Poll has something to return or ctx is
// done. It may return although there is nothing. Views stay valid.
func (r *RawContext) Wait(ctx context.Context) error {
	const op = "wait"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if ctx.Err() != nil {
		return contextError(op, ctx)
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, r.sleeper.wake)
		defer stop()
	}
	status := OK
	err := r.sleeper.sleep(func() bool {
		status = r.arm()
		return status != OK || ctx.Err() != nil
	})
	switch {
	case ctx.Err() != nil:
		return contextError(op, ctx)
	case status != OK && status != ErrAgain:
		return newError(op, status)
	case err != nil:
		return errorf(op, ErrSystem, "the context's descriptor cannot be watched: %v", err)
	}
	return nil
}

// arm asks for one wake-up; ErrAgain: there is something already. C looks again after it has armed, so the two looks that the
// header asks for are those of the caller's empty Poll and C's own; a Poll in between would disarm.
func (r *RawContext) arm() Status { return Status(C.crpc_context_arm(r.handle)) }

// ask runs one function of C's, of a context that is open.
func (r *RawContext) ask(op string, talk func() C.int32_t) error {
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	return asError(op, talk(), nil)
}

// asError is nil if the status is none; `theirs`, which may be nil, has more about it.
func asError(op string, status C.int32_t, theirs *C.crpc_error) error {
	if status < 0 {
		return fromC(op, status, theirs)
	}
	return nil
}

// Connect starts to connect. A CompletionConnected with the endpoint's userData follows.
func (r *RawContext) Connect(address string, userData uint64, options ...Option) (EndpointHandle, error) {
	return connectRaw[EndpointHandle](r, endpoints, "connect "+address, address, userData, options)
}

// Accept accepts the endpoint of a CompletionConnectRequest. A CompletionConnected with userData
// follows.
func (r *RawContext) Accept(endpoint EndpointHandle, userData uint64, options ...Option) error {
	return r.acceptRaw(endpoints, "accept", uint64(endpoint), userData, options)
}

// Reject rejects the endpoint of a CompletionConnectRequest. The peer's Dial fails with ErrRefused
// and shows `reason`.
func (r *RawContext) Reject(endpoint EndpointHandle, reason uint32) error {
	return r.reject(endpoints, "reject", uint64(endpoint), reason)
}

// HandOver hands the endpoint of a CompletionConnectRequest over to another context, which another goroutine may use meanwhile, but
// must not close. That context gets a CompletionConnectRequest with userData, and wakes up for it.
func (r *RawContext) HandOver(endpoint EndpointHandle, to *RawContext, userData uint64) error {
	return r.handOver(endpoints, "hand over", uint64(endpoint), to, userData)
}

// Disconnect disconnects gracefully: open calls, requests and replies finish, for at most `limit`.
// A CompletionDisconnected follows.
func (r *RawContext) Disconnect(endpoint EndpointHandle, limit time.Duration) error {
	return r.disconnect(endpoints, "disconnect", uint64(endpoint), limit)
}

// CloseEndpoint ends a connection at once. Pending ops complete with ErrClosed.
func (r *RawContext) CloseEndpoint(endpoint EndpointHandle) error {
	return r.close(endpoints, "close endpoint", uint64(endpoint))
}

// EndpointError returns why an endpoint could not connect or was disconnected; nil if neither has
// happened.
func (r *RawContext) EndpointError(endpoint EndpointHandle) error {
	return r.failed(endpoints, "endpoint", uint64(endpoint))
}

// Listen listens on `address`. Completions show userData.
func (r *RawContext) Listen(address string, userData uint64, options ...Option) (ListenerHandle, error) {
	return r.listenRaw(endpoints, "listen "+address, address, userData, options)
}

func (r *RawContext) listenRaw(kind linkKind, op, address string, userData uint64, options []Option) (ListenerHandle, error) {
	s, err := r.settings(op, options)
	if err != nil {
		return 0, err
	}
	return r.listen(kind, op, address, userData, s)
}

func (r *RawContext) listen(kind linkKind, op, address string, userData uint64, s *settings) (ListenerHandle, error) {
	name := C.CString(address)
	defer C.free(unsafe.Pointer(name))
	var listener C.crpc_listener
	theirs := newCError()
	options := C.crpc_listener_options{struct_size: C.sizeof_crpc_listener_options, backlog: s.backlog, user_data: C.uint64_t(userData)}
	if kind == channels {
		options.flags = C.CRPC_LISTENER_CHANNELS
	} else if kind == queues {
		options.flags = C.CRPC_LISTENER_QUEUES
	}
	status := C.crpc_listener_open(r.handle, name, &options, &listener, &theirs)
	return ListenerHandle(listener.bits), asError(op, status, &theirs)
}

// ListenerInfo describes a listener.
type ListenerInfo struct {
	Address string // e.g. "192.0.2.1:47110"
	Port    int
	ListenerStats
}

// ListenerInfo describes a listener.
func (r *RawContext) ListenerInfo(listener ListenerHandle) (ListenerInfo, error) {
	info := C.crpc_listener_info{struct_size: C.sizeof_crpc_listener_info}
	err := r.ask("listener info", func() C.int32_t { return C.crpc_listener_get_info(r.handle, listener.c(), &info) })
	if err != nil {
		return ListenerInfo{}, err
	}
	return ListenerInfo{
		Address: text(info.address[:]), Port: int(info.port),
		ListenerStats: ListenerStats{Requests: uint64(info.requests), Refused: uint64(info.refused)},
	}, nil
}

// ListenerAddress returns the address of a listener, e.g. "192.0.2.1:47110".
func (r *RawContext) ListenerAddress(listener ListenerHandle) (string, error) {
	info, err := r.ListenerInfo(listener)
	return info.Address, err
}

// CloseListener stops listening. Accepted connections stay.
func (r *RawContext) CloseListener(listener ListenerHandle) error {
	return r.ask("close listener", func() C.int32_t { return C.crpc_listener_close(r.handle, listener.c()) })
}

// DrainListener closes the listener, and disconnects gracefully what has come by it: each of these yields a
// CompletionDisconnected. It returns how many they are.
func (r *RawContext) DrainListener(listener ListenerHandle, limit time.Duration) (count int, err error) {
	const op = "drain listener"
	timeout, err := leaveTimeout(op, limit)
	if err != nil {
		return 0, err
	}
	err = r.ask(op, func() C.int32_t {
		drained := C.crpc_listener_drain(r.handle, listener.c(), timeout)
		count = max(int(drained), 0)
		return drained
	})
	return count, err
}

func (endpoint EndpointHandle) c() C.crpc_endpoint {
	return C.crpc_endpoint{bits: C.uint64_t(endpoint)}
}

func (listener ListenerHandle) c() C.crpc_listener {
	return C.crpc_listener{bits: C.uint64_t(listener)}
}
