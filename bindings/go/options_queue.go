// options_queue.go: what queues can be told, and how it becomes C's structs.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import "time"

// WithQueues opens a context that has queues. Its regions then give the peers of all its queues the
// rights that their Access says. For Open and OpenRaw.
func WithQueues() Option {
	return func(s *settings) { s.device.flags |= C.CRPC_CONTEXT_QUEUES }
}

// WithQueuesMax sets how many queues of all kinds the context may have; 256 by default. For Open and
// OpenRaw, with WithQueues.
func WithQueuesMax(count int) Option {
	return func(s *settings) { s.device.queues_max = s.number("queues_max", count) }
}

// QueueOptions says how a queue is made. Zero always means the default.
type QueueOptions struct {
	Sends       int // ops that send, of the longest kind, for which there is room at least, up to 8192; 256 by default
	SendPieces  int // pieces that the payload of an op may have, up to 16; 1 by default. More take room
	InlineBytes int // longest inline payload, up to 512; 60 by default. More take room

	Receives      int             // receives for which there is room at least, up to 8192; none by default
	ReceivePieces int             // pieces that a receive may have, up to 16; 1 by default
	Shared        *SharedReceives // which have its receives; Receives must then be 0
	ReceiveQueue  QueueHandle     // the same, for a RawContext

	ConnectTimeout     time.Duration // the deadline of ctx by default, or 5 s
	RetryTimeout       int           // as in WithRetry
	RetryCount         int           // likewise
	NotReadyRetryCount int           // how often it sends again to a peer that has no receive: 1 to 6; no limit by default
	ReadsMax           int           // READs and atomics that may be under way at once, up to 16; as many as the devices can
	SequenceZero       bool          // its first packet has the number 0, for peers that are not told another, as UCX; rdma_cm agrees on one anyway
	Private            []byte        // what rdma_cm carries to the peer: to connect up to 56 bytes, to accept up to 196

	QueueKey uint32 // of OpenDatagrams: who sends to the queue must know it; 0x11111111 by default

	Streams           int    // of OpenDCI: how many queues it has in one, up to 65535; none by default
	StreamFailuresMax int    // of OpenDCI with Streams: while so many have failed, the others go on; all by default
	AccessKey         uint64 // of OpenDCT: who sends to it must know it; any number

	Tags int // of OpenTaggedReceives: receives with tags that may be open; 127 by default, or as many as the device has

	Sparse bool // only ops with QueueSignal complete, and those that fail; for a RawContext
}

// option has the settings of a call say what the options do.
func (o QueueOptions) option() Option {
	return func(s *settings) {
		if len(o.Private) > QueuePrivateBytesMax {
			s.problem = errorf("", ErrInvalid, "private data of %d bytes: it has at most %d", len(o.Private), QueuePrivateBytesMax)
			return
		}
		q := &s.queue
		q.sends, q.send_pieces = s.number("Sends", o.Sends), s.number("SendPieces", o.SendPieces)
		q.inline_bytes = s.number("InlineBytes", o.InlineBytes)
		q.receives, q.receive_pieces = s.number("Receives", o.Receives), s.number("ReceivePieces", o.ReceivePieces)
		q.receive_queue = o.ReceiveQueue.c()
		s.endpoint.connect_timeout_ns = s.time("ConnectTimeout", o.ConnectTimeout)
		s.endpoint.retry_timeout, s.endpoint.retry_count = s.number("RetryTimeout", o.RetryTimeout), s.number("RetryCount", o.RetryCount)
		q.not_ready_retry_count = s.number("NotReadyRetryCount", o.NotReadyRetryCount)
		q.reads_max = s.number("ReadsMax", o.ReadsMax)
		q.queue_key = C.uint32_t(o.QueueKey)
		q.streams, q.stream_failures_max = s.number("Streams", o.Streams), s.number("StreamFailuresMax", o.StreamFailuresMax)
		q.access_key = C.uint64_t(o.AccessKey)
		q.tags = s.number("Tags", o.Tags)
		if o.Sparse {
			q.flags |= C.CRPC_QUEUE_SPARSE
		}
		if o.SequenceZero {
			q.flags |= C.CRPC_QUEUE_SEQUENCE_ZERO
		}
		q.private_bytes = C.uint32_t(len(o.Private))
		for i, b := range o.Private {
			q.private_data[i] = C.uint8_t(b)
		}
	}
}

// forQueue is option for a Queue of a Context.
func (o QueueOptions) forQueue() Option {
	return func(s *settings) {
		switch {
		case o.Sparse:
			s.problem = errorf("", ErrInvalid, "Sparse is for a RawContext: here, each op has somebody who waits for its completion")
			return
		case o.Shared != nil && o.Shared.queue == nil:
			s.problem = errorf("", ErrClosed, "these SharedReceives were never opened: make them with Context.OpenSharedReceives")
			return
		case o.Shared != nil && o.ReceiveQueue != 0:
			s.problem = errorf("", ErrInvalid, "Shared and ReceiveQueue are set")
			return
		case o.Shared != nil:
			o.ReceiveQueue = QueueHandle(o.Shared.queue.handle)
		}
		o.option()(s)
	}
}
