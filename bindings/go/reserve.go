// reserve.go: writing a payload in place, in the ring that the NIC sends from, instead of having Submit copy it.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"math"
	"unsafe"
)

// Reserve reserves op.PayloadBytes of room in the send ring for the payload of `op`, an OpCall or
// OpReply whose PayloadOffset is 0. Write the payload there, and then call Commit or Abort. The
// room is C memory, and valid until then or until the endpoint is closed. An endpoint has at most
// one reservation. While it is open, the endpoint sends nothing and accepts no calls, replies or
// drops. The Status is OK, or as for Submit.
func (r *RawContext) Reserve(op Op) ([]byte, Status) {
	if r == nil || r.handle == nil {
		return nil, ErrClosed
	}
	// By way of C memory, so that neither the op nor the address escapes to Go's heap.
	*(*Op)(unsafe.Pointer(&r.scratch.op)) = op
	if status := C.crpc_reserve(r.handle, &r.scratch.op, &r.scratch.address); status < 0 {
		return nil, Status(status)
	}
	return unsafe.Slice((*byte)(r.scratch.address), int(op.PayloadBytes)), OK
}

// Commit submits the reserved op with the first `bytes` of its room. Its timeout starts now.
// ErrTooBig means that this is more than was reserved; the reservation stays open. ErrState means
// that nothing is reserved. With ErrClosing and ErrDisconnected, the reservation is gone, and there
// is no completion.
func (r *RawContext) Commit(endpoint EndpointHandle, bytes int) Status {
	if r == nil || r.handle == nil {
		return ErrClosed
	}
	if bytes < 0 {
		return ErrInvalid
	}
	if bytes > math.MaxUint32 {
		return ErrTooBig
	}
	return Status(C.crpc_commit(r.handle, endpoint.c(), C.uint32_t(bytes)))
}

// Abort gives a reservation up, as if it had never been made. A request that was to be answered
// stays unanswered. ErrState means that nothing is reserved.
func (r *RawContext) Abort(endpoint EndpointHandle) Status {
	if r == nil || r.handle == nil {
		return ErrClosed
	}
	return Status(C.crpc_abort(r.handle, endpoint.c()))
}
