// link_raw.go: the low level of what endpoints, channels and queues have in common: being made, and taking leave.

package copyrpc

/*
#include <stdlib.h>
#include <copyrpc.h>

// copyrpc.h has each of these once for endpoints, once for channels and once for queues. Here `kind` says for which, and a handle is
// its bits.
enum { ENDPOINTS, CHANNELS, QUEUES };

static int32_t copyrpc_go_connect(int kind, crpc_context *context, const char *address, const crpc_endpoint_options *of_endpoint,
                                  const crpc_channel_options *of_channel, const crpc_queue_options *of_queue, uint64_t *handle,
                                  crpc_error *error)
{
    return kind == QUEUES     ? crpc_queue_connect(context, address, of_queue, (crpc_queue *)handle, error)
           : kind == CHANNELS ? crpc_channel_connect(context, address, of_channel, (crpc_channel *)handle, error)
                              : crpc_endpoint_connect(context, address, of_endpoint, (crpc_endpoint *)handle, error);
}

static int32_t copyrpc_go_accept(int kind, crpc_context *context, uint64_t handle, const crpc_endpoint_options *of_endpoint,
                                 const crpc_channel_options *of_channel, const crpc_queue_options *of_queue, crpc_error *error)
{
    return kind == QUEUES     ? crpc_queue_accept(context, (crpc_queue){handle}, of_queue, error)
           : kind == CHANNELS ? crpc_channel_accept(context, (crpc_channel){handle}, of_channel, error)
                              : crpc_endpoint_accept(context, (crpc_endpoint){handle}, of_endpoint, error);
}

// Queues are rejected with private data instead of a reason: RejectQueue. Here they are without.
static int32_t copyrpc_go_reject(int kind, crpc_context *context, uint64_t handle, uint32_t reason)
{
    return kind == QUEUES     ? crpc_queue_reject(context, (crpc_queue){handle}, NULL, 0)
           : kind == CHANNELS ? crpc_channel_reject(context, (crpc_channel){handle}, reason)
                              : crpc_endpoint_reject(context, (crpc_endpoint){handle}, reason);
}

static int32_t copyrpc_go_hand_over(int kind, crpc_context *context, uint64_t handle, crpc_context *to, uint64_t user_data,
                                    crpc_error *error)
{
    return kind == QUEUES     ? crpc_queue_hand_over(context, (crpc_queue){handle}, to, user_data, error)
           : kind == CHANNELS ? crpc_channel_hand_over(context, (crpc_channel){handle}, to, user_data, error)
                              : crpc_endpoint_hand_over(context, (crpc_endpoint){handle}, to, user_data, error);
}

static int32_t copyrpc_go_blob(int kind, crpc_context *context, const crpc_endpoint_options *of_endpoint,
                               const crpc_channel_options *of_channel, const crpc_queue_options *of_queue, uint64_t *handle, void *blob,
                               uint32_t *bytes, crpc_error *error)
{
    return kind == QUEUES     ? crpc_queue_blob(context, of_queue, (crpc_queue *)handle, blob, bytes, error)
           : kind == CHANNELS ? crpc_channel_blob(context, of_channel, (crpc_channel *)handle, blob, bytes, error)
                              : crpc_endpoint_blob(context, of_endpoint, (crpc_endpoint *)handle, blob, bytes, error);
}

static int32_t copyrpc_go_join(int kind, crpc_context *context, uint64_t handle, const void *peer, uint32_t bytes, crpc_error *error)
{
    return kind == QUEUES     ? crpc_queue_join(context, (crpc_queue){handle}, peer, bytes, error)
           : kind == CHANNELS ? crpc_channel_join(context, (crpc_channel){handle}, peer, bytes, error)
                              : crpc_endpoint_join(context, (crpc_endpoint){handle}, peer, bytes, error);
}

static int32_t copyrpc_go_disconnect(int kind, crpc_context *context, uint64_t handle, uint64_t timeout_ns)
{
    return kind == QUEUES     ? crpc_queue_drain(context, (crpc_queue){handle}, timeout_ns)
           : kind == CHANNELS ? crpc_channel_disconnect(context, (crpc_channel){handle}, timeout_ns)
                              : crpc_endpoint_disconnect(context, (crpc_endpoint){handle}, timeout_ns);
}

static int32_t copyrpc_go_close(int kind, crpc_context *context, uint64_t handle)
{
    return kind == QUEUES     ? crpc_queue_close(context, (crpc_queue){handle})
           : kind == CHANNELS ? crpc_channel_close(context, (crpc_channel){handle})
                              : crpc_endpoint_close(context, (crpc_endpoint){handle});
}

static int32_t copyrpc_go_get_error(int kind, crpc_context *context, uint64_t handle, crpc_error *error)
{
    return kind == QUEUES     ? crpc_queue_get_error(context, (crpc_queue){handle}, error)
           : kind == CHANNELS ? crpc_channel_get_error(context, (crpc_channel){handle}, error)
                              : crpc_endpoint_get_error(context, (crpc_endpoint){handle}, error);
}
*/
import "C"

import (
	"time"
	"unsafe"
)

// linkKind tells C's functions for endpoints, channels and queues apart.
type linkKind = C.int

const (
	endpoints linkKind = C.ENDPOINTS
	channels  linkKind = C.CHANNELS
	queues    linkKind = C.QUEUES
)

// settings reads the options of what is to be made.
func (r *RawContext) settings(op string, options []Option) (*settings, error) {
	if r == nil || r.handle == nil {
		return nil, newError(op, ErrClosed)
	}
	return settingsOf(op, options)
}

// connectRaw is Connect, ConnectChannel and ConnectQueue.
func connectRaw[H ~uint64](r *RawContext, kind linkKind, op, address string, userData uint64, options []Option) (H, error) {
	s, err := r.settings(op, options)
	if err != nil {
		return 0, err
	}
	handle, err := r.connect(kind, op, address, userData, s)
	return H(handle), err
}

func (r *RawContext) connect(kind linkKind, op, address string, userData uint64, s *settings) (uint64, error) {
	name := C.CString(address)
	defer C.free(unsafe.Pointer(name))
	s.endpoint.user_data = C.uint64_t(userData)
	var handle C.uint64_t
	theirs := newCError()
	status := C.copyrpc_go_connect(kind, r.handle, name, &s.endpoint, s.channelOptions(), s.queueOptions(), &handle, &theirs)
	return uint64(handle), asError(op, status, &theirs)
}

// acceptRaw is Accept, AcceptChannel and AcceptQueue.
func (r *RawContext) acceptRaw(kind linkKind, op string, handle, userData uint64, options []Option) error {
	s, err := r.settings(op, options)
	if err != nil {
		return err
	}
	return r.accept(kind, op, handle, userData, s)
}

func (r *RawContext) accept(kind linkKind, op string, handle, userData uint64, s *settings) error {
	s.endpoint.user_data = C.uint64_t(userData)
	theirs := newCError()
	status := C.copyrpc_go_accept(kind, r.handle, C.uint64_t(handle), &s.endpoint, s.channelOptions(), s.queueOptions(), &theirs)
	return asError(op, status, &theirs)
}

func (r *RawContext) reject(kind linkKind, op string, handle uint64, reason uint32) error {
	return r.ask(op, func() C.int32_t { return C.copyrpc_go_reject(kind, r.handle, C.uint64_t(handle), C.uint32_t(reason)) })
}

// handOver does not lock `to`, which another goroutine may use, but must not close.
func (r *RawContext) handOver(kind linkKind, op string, handle uint64, to *RawContext, userData uint64) error {
	if r == nil || r.handle == nil || to == nil || to.handle == nil {
		return newError(op, ErrClosed)
	}
	theirs := newCError()
	status := C.copyrpc_go_hand_over(kind, r.handle, C.uint64_t(handle), to.handle, C.uint64_t(userData), &theirs)
	return asError(op, status, &theirs)
}

func (r *RawContext) blob(kind linkKind, op string, userData uint64, s *settings) (uint64, []byte, error) {
	blob := make([]byte, C.CRPC_BLOB_BYTES_MAX)
	bytes := C.uint32_t(len(blob))
	s.endpoint.user_data = C.uint64_t(userData)
	var handle C.uint64_t
	theirs := newCError()
	status := C.copyrpc_go_blob(kind, r.handle, &s.endpoint, s.channelOptions(), s.queueOptions(), &handle,
		unsafe.Pointer(unsafe.SliceData(blob)), &bytes, &theirs)
	if status < 0 {
		return 0, nil, fromC(op, status, &theirs)
	}
	return uint64(handle), blob[:bytes:bytes], nil
}

func (r *RawContext) join(kind linkKind, op string, handle uint64, peer []byte) error {
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if len(peer) == 0 || len(peer) > C.CRPC_BLOB_BYTES_MAX {
		return errorf(op, ErrProtocol, "%d bytes are no blob; one has 1 to %d", len(peer), C.CRPC_BLOB_BYTES_MAX)
	}
	theirs := newCError()
	status := C.copyrpc_go_join(kind, r.handle, C.uint64_t(handle), unsafe.Pointer(unsafe.SliceData(peer)), C.uint32_t(len(peer)), &theirs)
	return asError(op, status, &theirs)
}

func (r *RawContext) disconnect(kind linkKind, op string, handle uint64, limit time.Duration) error {
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	timeout, err := leaveTimeout(op, limit)
	if err != nil {
		return err
	}
	return asError(op, C.copyrpc_go_disconnect(kind, r.handle, C.uint64_t(handle), timeout), nil)
}

func leaveTimeout(op string, limit time.Duration) (C.uint64_t, error) {
	if limit < 0 {
		return 0, errorf(op, ErrInvalid, "the timeout is %v; a time cannot be negative", limit)
	}
	if limit == Forever {
		return C.CRPC_FOREVER, nil
	}
	return C.uint64_t(limit), nil
}

func (r *RawContext) close(kind linkKind, op string, handle uint64) error {
	return r.ask(op, func() C.int32_t { return C.copyrpc_go_close(kind, r.handle, C.uint64_t(handle)) })
}

// failed tells why something could not connect or was disconnected; nil if neither.
func (r *RawContext) failed(kind linkKind, op string, handle uint64) error {
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	if e := r.failure(kind, op, handle); e != nil {
		return e
	}
	return nil
}

// failure is failed of a context that is open.
func (r *RawContext) failure(kind linkKind, op string, handle uint64) *Error {
	theirs := newCError()
	if status := C.copyrpc_go_get_error(kind, r.handle, C.uint64_t(handle), &theirs); status < 0 {
		return newError(op, Status(status))
	}
	if theirs.status == 0 {
		return nil
	}
	return fromC(op, theirs.status, &theirs)
}
