// service.go: statuses that programs agree on, the numbers of methods that have names, and what goes around a handler.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
)

// The statuses that applications agree on, with the numbers of gRPC's codes. As errors they are in a [ReplyError]:
// errors.Is(err, copyrpc.StatusNotFound). The numbers up to StatusReservedMax are reserved; an application's own
// statuses are above it.
const (
	StatusCanceled           Status = C.CRPC_STATUS_CANCELED            // the caller has canceled it
	StatusUnknown            Status = C.CRPC_STATUS_UNKNOWN             // the handler has failed, and did not say how
	StatusInvalidArgument    Status = C.CRPC_STATUS_INVALID_ARGUMENT    // the request is wrong, whatever the state of the server
	StatusDeadlineExceeded   Status = C.CRPC_STATUS_DEADLINE_EXCEEDED   // the time limit has passed
	StatusNotFound           Status = C.CRPC_STATUS_NOT_FOUND           // what is asked for is not there
	StatusAlreadyExists      Status = C.CRPC_STATUS_ALREADY_EXISTS      // what is to be made is there already
	StatusPermissionDenied   Status = C.CRPC_STATUS_PERMISSION_DENIED   // this caller may not do that
	StatusResourceExhausted  Status = C.CRPC_STATUS_RESOURCE_EXHAUSTED  // overloaded, or over a quota; nothing was done
	StatusFailedPrecondition Status = C.CRPC_STATUS_FAILED_PRECONDITION // not in the present state of the server
	StatusAborted            Status = C.CRPC_STATUS_ABORTED             // something else came first: begin the whole again
	StatusOutOfRange         Status = C.CRPC_STATUS_OUT_OF_RANGE        // past the end of what there is
	StatusUnimplemented      Status = C.CRPC_STATUS_UNIMPLEMENTED       // the server has no such method
	StatusInternal           Status = C.CRPC_STATUS_INTERNAL            // something is broken
	StatusUnavailable        Status = C.CRPC_STATUS_UNAVAILABLE         // not now; later, or elsewhere
	StatusDataLoss           Status = C.CRPC_STATUS_DATA_LOSS           // data is lost or damaged
	StatusUnauthenticated    Status = C.CRPC_STATUS_UNAUTHENTICATED     // the server does not know who the caller is

	StatusReservedMax Status = C.CRPC_STATUS_RESERVED_MAX
)

// applicationName is the name of one of the statuses above, and "" for other numbers.
func (status Status) applicationName() string {
	if name := C.GoString(C.crpc_application_status_name(C.int32_t(status))); name != "?" {
		return name
	}
	return ""
}

// Errorf makes the error with which a handler answers: a [ReplyError] with the status, which must be above 0, and a
// text.
func Errorf(status Status, format string, arguments ...any) error {
	return &ReplyError{Status: status, Payload: fmt.Appendf(nil, format, arguments...)}
}

// StatusOf says any error in the terms of StatusNotFound and so on, for programs and metrics that know only
// these: OK for nil, what the peer has answered, or what is the same as the library's error, e.g.
// StatusDeadlineExceeded for ErrTimeout. docs/services.md has the table. Other errors are StatusUnknown.
func StatusOf(err error) Status {
	var status Status
	switch {
	case err == nil:
		return OK
	case errors.As(err, &status):
		return Status(C.crpc_application_status(C.int32_t(status)))
	case errors.Is(err, context.DeadlineExceeded):
		return StatusDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return StatusCanceled
	}
	return StatusUnknown
}

// answerOf is what a handler's error tells the caller.
func answerOf(err error) (Status, []byte) {
	var own *ReplyError
	if errors.As(err, &own) && own != nil && own.Status > 0 {
		return own.Status, own.Payload
	}
	var status Status
	if errors.As(err, &status) && status > 0 {
		return status, nil
	}
	return StatusUnknown, []byte(err.Error())
}

// MethodNamed is the least number of a method that has a name. Those below it are free for methods without one.
const MethodNamed = C.CRPC_METHOD_NAMED

// MethodNumber gives the number of the method with that name, in every language: [MethodNamed] and above. Two names
// can have the same number; a [Router] notices.
func MethodNumber(name string) uint16 {
	hash := uint32(2166136261) // FNV-1a, of 32 bits
	for i := 0; i < len(name); i++ {
		hash = (hash ^ uint32(name[i])) * 16777619
	}
	return MethodNamed | uint16((hash>>15^hash)&0x7fff)
}

// Chain puts interceptors around a handler, the first outermost. Each gets the handler that is behind it, and
// returns one that calls it, or not.
func Chain(handler Handler, interceptors ...func(next Handler) Handler) Handler {
	for i := len(interceptors) - 1; i >= 0; i-- {
		handler = interceptors[i](handler)
	}
	return handler
}
