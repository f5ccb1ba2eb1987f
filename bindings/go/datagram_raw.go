// datagram_raw.go: queues for datagrams (UD), and where these go, for those who drive a context by hand.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import "unsafe"

// TargetHandle names where the datagrams of a [RawContext] go. Zero is no target.
type TargetHandle uint64

func (target TargetHandle) c() C.crpc_target { return C.crpc_target{bits: C.uint64_t(target)} }

// OpenDatagrams makes a queue for datagrams, which may be lost. It is usable at once. Its ops are
// QueueSend and QueueSendImmediate, each with a Target, and QueueReceive, whose memory begins with
// QueueHeaderBytes of header. Of the options, those of connections must not be set.
func (r *RawContext) OpenDatagrams(userData uint64, options QueueOptions) (QueueHandle, error) {
	const op = "open datagrams"
	s, err := r.settings(op, []Option{options.option()})
	if err != nil {
		return 0, err
	}
	return r.openQueue(op, userData, s, datagrams)
}

// Source returns the number of the queue pair that has sent a datagram, or a message to a DCT; 0 where the device does
// not say it.
func (completion *Completion) Source() uint32 { return uint32(completion.Token) }

// TargetOptions says more of a target. Zero always means the default.
type TargetOptions struct {
	QueueKey     uint32 // of the queue there; 0x11111111 by default. For a DCI: 0
	ServiceLevel int    // of InfiniBand, 0 to 15; on Ethernet the priority

	ForDCI    bool   // the address is that of a DCT, for ops of DCIs; for a RawContext
	AccessKey uint64 // of the DCT there, any number; else 0
}

// OpenTarget makes a target of the address of a queue for datagrams or of a DCT, of any program. It may
// take as long as the network needs to find the way.
func (r *RawContext) OpenTarget(address QueueAddress, options TargetOptions) (TargetHandle, error) {
	const op = "open target"
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	if options.ServiceLevel < 0 {
		return 0, errorf(op, ErrInvalid, "a ServiceLevel of %d", options.ServiceLevel)
	}
	how := C.crpc_target_options{
		struct_size: C.sizeof_crpc_target_options, queue_key: C.uint32_t(options.QueueKey),
		service_level: C.uint32_t(min(options.ServiceLevel, 1<<20)), access_key: C.uint64_t(options.AccessKey),
	}
	if options.ForDCI {
		how.kind = initiator
	}
	ours, theirs := address.c(), newCError()
	var target C.crpc_target
	status := C.crpc_target_open(r.handle, &ours, &how, &target, &theirs)
	return TargetHandle(target.bits), asError(op, status, &theirs)
}

// TargetOf makes a target for an answer to the datagram of this completion, with the key of the queue
// that has received it. The header is what precedes the message: QueueHeaderBytes or more. Who can
// forge it can have the answer sent to somebody else.
func (r *RawContext) TargetOf(completion *Completion, header []byte) (TargetHandle, error) {
	const op = "target of"
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	if completion == nil || len(header) < QueueHeaderBytes {
		return 0, errorf(op, ErrInvalid, "no completion, or a header of %d bytes", len(header))
	}
	theirs := newCError()
	var target C.crpc_target
	status := C.crpc_target_of(r.handle, (*C.crpc_completion)(unsafe.Pointer(completion)),
		unsafe.Pointer(unsafe.SliceData(header)), &target, &theirs)
	return TargetHandle(target.bits), asError(op, status, &theirs)
}

// CloseTarget closes the handle. Ops that name the target go on.
func (r *RawContext) CloseTarget(target TargetHandle) error {
	return r.ask("close target", func() C.int32_t { return C.crpc_target_close(r.handle, target.c()) })
}

// TargetAddress gives the address of a target.
func (r *RawContext) TargetAddress(target TargetHandle) (QueueAddress, error) {
	theirs := newCAddress()
	err := r.ask("target address", func() C.int32_t { return C.crpc_target_get_address(r.handle, target.c(), &theirs) })
	if err != nil {
		return QueueAddress{}, err
	}
	return goAddress(&theirs), nil
}
