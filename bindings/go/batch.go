// batch.go: what gathers for one crossing: ops and their payloads, in C memory.

package copyrpc

/*
#include <stdlib.h>
*/
import "C"

import "unsafe"

const (
	batchOps       = 64       // that a new batch has room for
	batchBytes     = 16 << 10 // likewise
	batchBytesKept = 1 << 20  // a batch that grew larger is given back to the system
	batchOpsKept   = 16 << 10 // likewise
	batchesKept    = 16       // by a pool
)

// batch is an array of ops and the bytes that their PayloadOffset counts from. Go's memory would have to be pinned for each
// crossing, and is never what a NIC should see.
type batch struct {
	ops     []Op   // C memory; its length is the room
	payload []byte // C memory; likewise
	count   int
	bytes   int
}

func newBatch() *batch {
	return &batch{ops: grown[Op](nil, batchOps), payload: grown[byte](nil, batchBytes)}
}

func (b *batch) free() {
	C.free(unsafe.Pointer(unsafe.SliceData(b.ops)))
	C.free(unsafe.Pointer(unsafe.SliceData(b.payload)))
	*b = batch{}
}

// grown gives an array in C memory, with what the one before had, which is gone.
func grown[T any](array []T, room int) []T {
	memory := C.realloc(unsafe.Pointer(unsafe.SliceData(array)), C.size_t(room)*C.size_t(unsafe.Sizeof(*new(T))))
	if memory == nil {
		panic("copyrpc: no memory for ops or payloads") // as Go itself does without memory
	}
	return unsafe.Slice((*T)(memory), room)
}

// next gives the op to fill, with a copy of the payload in place and everything else to be written by the caller.
func (b *batch) next(payload []byte) (op *Op, offset uint64) {
	if b.count == len(b.ops) {
		b.ops = grown(b.ops, 2*b.count)
	}
	end := b.bytes + len(payload)
	if end > len(b.payload) {
		b.payload = grown(b.payload, max(2*len(b.payload), end))
	}
	offset = uint64(b.bytes)
	copy(b.payload[b.bytes:end], payload)
	b.bytes = end
	b.count++
	return &b.ops[b.count-1], offset
}

// payloadArgument is what crpc_submit is told of the payloads.
func (b *batch) payloadArgument() (unsafe.Pointer, int) {
	return unsafe.Pointer(unsafe.SliceData(b.payload)), b.bytes
}

// remove takes an op out that was not submitted; its payload stays until the batch is done.
func (b *batch) remove(i int) {
	copy(b.ops[i:b.count], b.ops[i+1:b.count])
	b.count--
}

// gather is a queue of one connection: `open` takes what comes, while `sending` goes to C, perhaps in several attempts.
type gather struct {
	open    *batch // guarded by the connection's mutex
	sending *batch // guarded by the poller's mutex, with the fields below
	sent    int    // ops of `sending` that are done with
}

// batchPool keeps batches that nobody uses, so that idle connections hold none. Guarded by the poller's queue mutex.
type batchPool struct{ free []*batch }

func (p *batchPool) get() *batch {
	if last := len(p.free) - 1; last >= 0 {
		b := p.free[last]
		p.free = p.free[:last]
		return b
	}
	return newBatch()
}

func (p *batchPool) put(b *batch) {
	if len(p.free) == batchesKept || len(b.payload) > batchBytesKept || len(b.ops) > batchOpsKept {
		b.free()
		return
	}
	b.count, b.bytes = 0, 0
	p.free = append(p.free, b)
}

func (p *batchPool) drain() {
	for _, b := range p.free {
		b.free()
	}
	p.free = nil
}
