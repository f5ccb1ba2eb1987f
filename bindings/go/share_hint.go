// share_hint.go: hints, by which one program tells the channels of others what each rail should carry.

package copyrpc

/*
#include <stdlib.h>
#include <copyrpc.h>
*/
import "C"

import (
	"strings"
	"sync"
	"time"
	"unsafe"
)

// A ShareHint is what channels with [WithShareHint] and its name, on this machine, go by. It needs no context and no RDMA device.
// Any goroutine may use it.
type ShareHint struct {
	mutex sync.Mutex
	hint  *C.crpc_hint // nil: closed
}

// OpenShareHint opens the hint of this name ("/name", at most 63 bytes), or makes it, and withdraws what a writer before has left. There is
// one writer at a time: another one's hint gives [ErrBusy].
func OpenShareHint(name string) (*ShareHint, error) {
	const op = "open a hint"
	if strings.IndexByte(name, 0) >= 0 {
		return nil, errorf(op, ErrInvalid, "%q is no name of shared memory", name)
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	opened, theirs := &ShareHint{}, newCError()
	if status := C.crpc_hint_open(text, &opened.hint, &theirs); status != C.CRPC_OK {
		return nil, fromC(op, status, &theirs)
	}
	return opened, nil
}

// Publish tells channels to have rail 0 carry rail0 / 1024 of each message, for the lifetime at the most, which is a minute at the most, or 1 s
// if it is 0. Publish again before: so nobody follows a writer that has died.
func (h *ShareHint) Publish(rail0 int, lifetime time.Duration) error {
	const op = "publish a hint"
	if rail0 < 0 || rail0 > 1024 {
		return errorf(op, ErrInvalid, "the share of rail 0 is 0 to 1024, not %d", rail0)
	}
	if lifetime < 0 || lifetime > time.Minute {
		return errorf(op, ErrInvalid, "the lifetime of a hint is a minute at the most, not %v", lifetime)
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.hint == nil {
		return newError(op, ErrClosed)
	}
	if status := C.crpc_hint_publish(h.hint, C.uint32_t(rail0), C.uint64_t(lifetime)); status != C.CRPC_OK {
		return newError(op, Status(status))
	}
	return nil
}

// Close withdraws the hint. The shared memory stays, for the next writer. It may be called again.
func (h *ShareHint) Close() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	C.crpc_hint_close(h.hint)
	h.hint = nil
	return nil
}
