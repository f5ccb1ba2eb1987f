// tag_raw.go: receives with tags (TM-SRQs) for those who drive a context by hand, and what messages to them begin with.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import "encoding/binary"

// Opcodes of a [QueueOp], of receives with tags.
const (
	// QueueTagAdd is memory for one message whose tag is equal to RemoteAddress where Operand, the mask, has ones.
	QueueTagAdd = 11
	// QueueTagRemove takes back the QueueTagAdd with the UserData Operand: the oldest, if there are several. That ends
	// with ErrCanceled, and this with OK behind it; or with ErrNotFound, if there is none, or a message was faster.
	QueueTagRemove = 12
	// QueueTagSync says that the program has looked at all messages that Poll has given with CompletionSync.
	QueueTagSync = 13
)

// Flags of a [Completion], of receives with tags.
const (
	CompletionMatched    = 0x20 // of a QueueTagAdd: a message has matched; see Matched
	CompletionRendezvous = 0x40 // likewise: it is the request of a rendezvous, with its header
	CompletionSync       = 0x80 // of a QueueReceive: the message has a tag, and nothing matched
)

// TagHeaderBytes is how long what WriteTagHeader writes is.
const TagHeaderBytes = C.CRPC_TAG_HEADER_BYTES

// TagMaskAll is the mask of a buffer for one tag alone.
const TagMaskAll = 1<<64 - 1

// Kinds of a [TagHeader].
const (
	TagNone       = 0 // it has no tag
	TagRendezvous = 1 // a tag, and 16 bytes that say where the sender has its payload
	TagFinished   = 2 // the answer to that
	TagEager      = 3 // a tag, and the payload
)

var (
	_ = [1]struct{}{}[QueueTagAdd-C.CRPC_QUEUE_TAG_ADD]
	_ = [1]struct{}{}[QueueTagRemove-C.CRPC_QUEUE_TAG_REMOVE]
	_ = [1]struct{}{}[QueueTagSync-C.CRPC_QUEUE_TAG_SYNC]
	_ = [1]struct{}{}[CompletionMatched-C.CRPC_COMPLETION_MATCHED]
	_ = [1]struct{}{}[CompletionRendezvous-C.CRPC_COMPLETION_RENDEZVOUS]
	_ = [1]struct{}{}[CompletionSync-C.CRPC_COMPLETION_SYNC]
	_ = [1]struct{}{}[TagNone-C.CRPC_TAG_NONE]
	_ = [1]struct{}{}[TagRendezvous-C.CRPC_TAG_RENDEZVOUS]
	_ = [1]struct{}{}[TagFinished-C.CRPC_TAG_FINISHED]
	_ = [1]struct{}{}[TagEager-C.CRPC_TAG_EAGER]
)

const taggedReceives = C.CRPC_QUEUE_KIND_TM_SRQ

// TagHeader is what a message to [TaggedReceives] begins with.
type TagHeader struct {
	Kind    int // TagEager; of other programs also the others
	Tag     uint64
	Context uint32 // any number for the receiver
}

// WriteTagHeader writes what a message with a tag begins with to the first TagHeaderBytes of a buffer, for
// any [Queue] to send. `context` is any number for the receiver.
func WriteTagHeader(buffer []byte, tag uint64, context uint32) error {
	if len(buffer) < TagHeaderBytes {
		return errorf("write tag header", ErrInvalid, "%d bytes: a header has %d", len(buffer), TagHeaderBytes)
	}
	binary.BigEndian.PutUint32(buffer, TagEager<<24)
	binary.BigEndian.PutUint32(buffer[4:], context)
	binary.BigEndian.PutUint64(buffer[8:], tag)
	return nil
}

// ReadTagHeader reads what a message begins with that nothing has matched. It comes from the peer.
// ErrProtocol: it has no such header, and the device has taken it for a message without a tag.
func ReadTagHeader(message []byte) (TagHeader, error) {
	if len(message) < TagHeaderBytes || message[0] > TagEager {
		return TagHeader{}, errorf("read tag header", ErrProtocol, "the message has no header with a tag")
	}
	if message[0] == TagNone {
		return TagHeader{Kind: TagNone}, nil
	}
	return TagHeader{Kind: int(message[0]), Tag: binary.BigEndian.Uint64(message[8:]), Context: binary.BigEndian.Uint32(message[4:])}, nil
}

// Matched tells of a message that has matched a buffer.
type Matched struct {
	Bytes      int // how much of the buffer was filled, without the header
	Tag        uint64
	Context    uint32      // the number in its header
	Queue      QueueHandle // over which it came
	Rendezvous bool        // it is the request of a rendezvous, and its header is in the buffer, too
}

// Matched returns what the completion of a QueueTagAdd tells of the message.
func (completion *Completion) Matched() Matched {
	return Matched{
		Bytes: int(completion.PayloadBytes), Tag: completion.Token, Context: uint32(completion.view), Queue: completion.Queue(),
		Rendezvous: completion.Flags&CompletionRendezvous != 0,
	}
}

// OpenTaggedReceives makes an SRQ whose device matches tags (a TM-SRQ), for the RC queues that name it as
// their ReceiveQueue. Of the options, only Receives, ReceivePieces and Tags may be set. ErrUnsupported: the
// device does not match tags.
func (r *RawContext) OpenTaggedReceives(userData uint64, options QueueOptions) (QueueHandle, error) {
	const op = "open tagged receives"
	s, err := r.settings(op, []Option{options.option()})
	if err != nil {
		return 0, err
	}
	return r.openQueue(op, userData, s, taggedReceives)
}
