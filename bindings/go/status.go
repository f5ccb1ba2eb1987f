// status.go: statuses and errors.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"
	"unsafe"
)

// Status is one of C's CRPC_E_* codes, below 0, or a status of the application, above 0; as an error:
// errors.Is(err, copyrpc.ErrTimeout), errors.Is(err, copyrpc.StatusNotFound). Codes are never renumbered.
type Status int32

// OK is C's CRPC_OK. Submit returns it; it is never inside an error.
const OK Status = 0

// The statuses. Their texts are the C library's.
const (
	ErrInvalid      Status = C.CRPC_E_INVALID      // an argument is wrong; nothing was changed
	ErrUnsupported  Status = C.CRPC_E_UNSUPPORTED  // not by this version, driver or device
	ErrStale        Status = C.CRPC_E_STALE        // a handle or token was closed, used up, or never belonged here
	ErrAgain        Status = C.CRPC_E_AGAIN        // no room now
	ErrTooBig       Status = C.CRPC_E_TOO_BIG      // can never fit
	ErrNoMemory     Status = C.CRPC_E_NO_MEMORY    // the system has no memory left
	ErrNoDevice     Status = C.CRPC_E_NO_DEVICE    // no RDMA device, or not the one that was named
	ErrNoResource   Status = C.CRPC_E_NO_RESOURCE  // the device or the context has no more of what was asked
	ErrMemlock      Status = C.CRPC_E_MEMLOCK      // RLIMIT_MEMLOCK forbids to register so much memory
	ErrSystem       Status = C.CRPC_E_SYSTEM       // a system call failed: see Error.Errno
	ErrTimeout      Status = C.CRPC_E_TIMEOUT      // the time limit has passed
	ErrCanceled     Status = C.CRPC_E_CANCELED     // the call was canceled
	ErrClosing      Status = C.CRPC_E_CLOSING      // the connection is being closed and takes no new calls
	ErrDisconnected Status = C.CRPC_E_DISCONNECTED // the connection is gone; whether the peer acted is not known
	ErrClosed       Status = C.CRPC_E_CLOSED       // this side closed the object
	ErrRefused      Status = C.CRPC_E_REFUSED      // the peer's application or host refused the connection
	ErrUnreachable  Status = C.CRPC_E_UNREACHABLE  // no route, or no such name
	ErrVersion      Status = C.CRPC_E_VERSION      // the peers share no version of the wire protocol
	ErrProtocol     Status = C.CRPC_E_PROTOCOL     // the peer violated the wire protocol
	ErrDropped      Status = C.CRPC_E_DROPPED      // the peer dropped the request without an answer
	ErrBusy         Status = C.CRPC_E_BUSY         // it is still in use: something else must finish first
	ErrNotFound     Status = C.CRPC_E_NOT_FOUND    // nothing matches
	ErrInterrupted  Status = C.CRPC_E_INTERRUPTED  // a signal arrived while waiting
	ErrState        Status = C.CRPC_E_STATE        // not possible in the present state
	ErrTruncated    Status = C.CRPC_E_TRUNCATED    // the message is longer than its buffer
	ErrKey          Status = C.CRPC_E_KEY          // the peer has another key, or one side has none
	ErrAccess       Status = C.CRPC_E_ACCESS       // the peer's device refused the address, length, key or right
	ErrNotReady     Status = C.CRPC_E_NOT_READY    // the peer had no receive
	ErrFlushed      Status = C.CRPC_E_FLUSHED      // the queue failed before; whether the op was done is not known
	ErrDevice       Status = C.CRPC_E_DEVICE       // this device refused the op
	ErrNotStarted   Status = C.CRPC_E_NOT_STARTED  // the peer did nothing of the request: it can be sent again
)

// Error explains the status and, where possible, says what to do about it.
func (status Status) Error() string {
	if status > 0 {
		return status.Name() // what it means, the application knows
	}
	return C.GoString(C.crpc_status_text(C.int32_t(status)))
}

// Name returns the name of the status: "CRPC_E_TIMEOUT" for ErrTimeout, "NOT_FOUND" for StatusNotFound, and the number
// for an application's own.
func (status Status) Name() string {
	if status > 0 {
		if name := status.applicationName(); name != "" {
			return name
		}
		return strconv.Itoa(int(status))
	}
	return C.GoString(C.crpc_status_name(C.int32_t(status)))
}

// Timeout returns true for ErrTimeout, as in net.Error.
func (status Status) Timeout() bool { return status == ErrTimeout }

// Error describes one failure in full. errors.Is compares it with its Status and its Errno, and
// with context.Canceled or context.DeadlineExceeded and with context.Cause, if the caller's context
// was the cause.
type Error struct {
	Op             string // what was attempted, e.g. "dial 10.99.0.1:7471"
	Status         Status
	Errno          syscall.Errno // of a failed system call, or 0
	VendorSyndrome uint32        // of the device, or 0
	Message        string        // what happened, to what, what to do next
	causes         []error       // of the caller's context: what its Err and context.Cause say
}

func (e *Error) Error() string { return "copyrpc: " + e.Op + ": " + e.Message }

// Unwrap returns what errors.Is and errors.As examine.
func (e *Error) Unwrap() []error {
	errors := []error{e.Status}
	if e.Errno != 0 {
		errors = append(errors, e.Errno)
	}
	return append(errors, e.causes...)
}

// Timeout returns true if a time limit has passed.
func (e *Error) Timeout() bool { return e.Status == ErrTimeout }

// ReplyError is an answer of the peer's application with a status other than 0. A handler may
// return one to send it; [Errorf] makes one. errors.Is compares it with its Status.
type ReplyError struct {
	Status  Status // above 0; StatusUnknown: the handler failed
	Payload []byte // what came with it, which is mostly a text
}

func (e *ReplyError) Error() string {
	text := fmt.Sprintf("copyrpc: the peer answered with status %d", int32(e.Status))
	if name := e.Status.applicationName(); name != "" {
		text += " (" + name + ")"
	}
	if len(e.Payload) > 0 && utf8.Valid(e.Payload) {
		text += ": " + string(e.Payload)
	}
	return text
}

// Unwrap returns the status.
func (e *ReplyError) Unwrap() error { return e.Status }

func newError(op string, status Status) *Error {
	return &Error{Op: op, Status: status, Message: status.Error()}
}

// during is the same failure, met by what was attempted now.
func (e *Error) during(op string) *Error {
	again := *e
	again.Op = op
	return &again
}

// toOps is what ops hear whose connection has ended for this reason, as C tells them: their own timeouts, say, are another matter.
func (e *Error) toOps(op string) *Error {
	again := e.during(op)
	if e.Status != ErrClosed && e.Status != ErrProtocol {
		again.Status = ErrDisconnected
	}
	return again
}

func errorf(op string, status Status, format string, arguments ...any) *Error {
	return &Error{Op: op, Status: status, Message: fmt.Sprintf(format, arguments...)}
}

// contextError tells that the caller's context ended what was attempted, and why that was.
func contextError(op string, ctx context.Context) *Error {
	err := ctx.Err()
	status := ErrCanceled
	if err == context.DeadlineExceeded {
		status = ErrTimeout
	}
	e := newError(op, status)
	e.causes = []error{err}
	if cause := context.Cause(ctx); cause != err {
		e.causes = append(e.causes, cause)
		e.Message += ": " + cause.Error()
	}
	return e
}

// timerPatience is how long ended waits for a context's timer that is due: what a busy machine may need.
const timerPatience = 100 * time.Millisecond

// ended tells whether ctx is done. If its deadline has passed by C's clock or ours, its timer, which alone knows the cause, may be a
// moment late.
func ended(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && time.Until(deadline) <= 0 {
		within(ctx.Done(), timerPatience)
	}
	return ctx.Err() != nil
}

// within waits until `done` is closed, for at most `limit`; false if it was not.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// deadlineError is contextError for a deadline that C or we have seen pass.
func deadlineError(op string, ctx context.Context) *Error {
	if ended(ctx) {
		return contextError(op, ctx)
	}
	e := newError(op, ErrTimeout)
	e.causes = []error{context.DeadlineExceeded}
	return e
}

func newCError() C.crpc_error {
	return C.crpc_error{struct_size: C.sizeof_crpc_error}
}

// fromC makes the Error of a call that returned `status` and may have filled `theirs`.
func fromC(op string, status C.int32_t, theirs *C.crpc_error) *Error {
	e := newError(op, Status(status))
	if theirs != nil && theirs.status != 0 {
		e.Errno = syscall.Errno(theirs.os_error)
		e.VendorSyndrome = uint32(theirs.vendor_syndrome)
		if message := text((*[240]C.char)(unsafe.Pointer(&theirs.message))[:]); message != "" {
			e.Message = message
		}
	}
	return e
}

// text is a zero-terminated string in an array of C's.
func text(chars []C.char) string {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&chars[0])), len(chars))
	for i, b := range bytes {
		if b == 0 {
			return string(bytes[:i])
		}
	}
	return string(bytes)
}

// putText writes a zero-terminated string to an array of C's; false if it does not fit.
func putText(chars []C.char, s string) bool {
	if len(s) >= len(chars) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return false
		}
		chars[i] = C.char(s[i])
	}
	return true
}
