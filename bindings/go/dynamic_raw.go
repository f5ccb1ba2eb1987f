// dynamic_raw.go: the two ends of the dynamically connected transport (DC), for those who drive a context by hand.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

// OpenDCI makes a DCI, which is usable at once. Its ops are all that send but QueueSendInvalidate, each with a Target and,
// with Streams, its Stream. ErrUnsupported: the device has no DC, as all but mlx5 devices; or not as many Streams.
func (r *RawContext) OpenDCI(userData uint64, options QueueOptions) (QueueHandle, error) {
	const op = "open DCI"
	s, err := r.settings(op, []Option{options.option()})
	if err != nil {
		return 0, err
	}
	return r.openQueue(op, userData, s, initiator)
}

// OpenDCT makes a DCT, which takes what DCIs send that know its QueueAddress and its AccessKey. Messages go to the receives of
// ReceiveQueue, which it needs. Their completions have the flag CompletionOfDCT.
func (r *RawContext) OpenDCT(userData uint64, options QueueOptions) (QueueHandle, error) {
	const op = "open DCT"
	s, err := r.settings(op, []Option{options.option()})
	if err != nil {
		return 0, err
	}
	return r.openQueue(op, userData, s, dynamicTarget)
}

// ResetStream makes a stream of a DCI usable again, after one of its ops has failed. All others must have completed: ErrBusy.
func (r *RawContext) ResetStream(queue QueueHandle, stream int) error {
	const op = "reset stream"
	if stream < 0 || stream > streamMax {
		return errorf(op, ErrInvalid, "stream %d; a DCI has at most %d", stream, streamMax)
	}
	return r.ask(op, func() C.int32_t { return C.crpc_queue_reset_stream(r.handle, queue.c(), C.uint32_t(stream)) })
}

const streamMax = 1<<16 - 1 // what fits in a QueueOp
