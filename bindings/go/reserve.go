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

// Reserve gives op.PayloadBytes of room in the send ring for the payload of `op`, an OpCall or OpReply whose PayloadOffset is 0: write
// it there, then Commit, or Abort. The room is C memory, valid until then or until the endpoint's close. An endpoint has one
// reservation at a time, and while it is open sends nothing and takes no other op. The Status is OK, or one of Submit's.
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

// Commit submits the reserved op with the first `bytes` of its room; its timeout counts from here. ErrTooBig: these are more than
// were reserved, and it stays open. ErrState: nothing is reserved. ErrClosing, ErrDisconnected: it is gone without a completion.
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

// Abort gives a reservation up as if it had not been made: a request remains to be answered. ErrState: nothing is reserved.
func (r *RawContext) Abort(endpoint EndpointHandle) Status {
	if r == nil || r.handle == nil {
		return ErrClosed
	}
	return Status(C.crpc_abort(r.handle, endpoint.c()))
}
