// trace.go: whose call it is: the part of W3C Trace Context that travels with a request, beside its payload.

package copyrpc

/*
#include <copyrpc.h>

// Addresses are integers for the same reason as in raw.go.
static int32_t copyrpc_go_request_get_trace(uintptr_t context, uint64_t endpoint, uint64_t token, uintptr_t trace)
{
    return crpc_request_get_trace((crpc_context *)context, (crpc_endpoint){.bits = endpoint}, token, (crpc_trace *)trace);
}
*/
import "C"

import "unsafe"

// Trace tells whose call it is, in the terms of W3C Trace Context: see [Call.Trace] and [Request.Trace]. Few programs
// fill one in by hand: the module github.com/copyrpc/copyrpc/bindings/go/otel does it for OpenTelemetry. Its tracestate and baggage do not travel.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte // the caller's span: the parent of what the handler does
	Flags   byte    // bit 0: it is sampled; bit 1: the TraceID is random
}

// OpTraced is a flag of OpCall: Token is the offset, in Payload, of a trace that [Trace.Put] has written.
const OpTraced = 16

// TraceBytes is how much room a [Trace] needs beside the payload of an op.
const TraceBytes = C.sizeof_crpc_trace

var (
	_ = [1]struct{}{}[OpTraced-C.CRPC_OP_TRACED]
	_ = [1]struct{}{}[unsafe.Offsetof(Trace{}.SpanID)-unsafe.Offsetof(C.crpc_trace{}.span_id)]
	_ = [1]struct{}{}[unsafe.Offsetof(Trace{}.Flags)-unsafe.Offsetof(C.crpc_trace{}.flags)]
	_ = [1]struct{}{}[unsafe.Sizeof(Trace{})-unsafe.Offsetof(C.crpc_trace{}.reserved)]
)

// Put writes the trace to the first TraceBytes of `room`, as [OpTraced] wants it.
func (trace *Trace) Put(room []byte) {
	bytes := (*[TraceBytes]byte)(room)
	own := (*[unsafe.Sizeof(Trace{})]byte)(unsafe.Pointer(trace))
	clear(bytes[copy(bytes[:], own[:]):])
}

// trace copies a trace behind the payloads, and names it in an op that is a call.
func (b *batch) trace(op *Op, trace *Trace) {
	end := b.bytes + TraceBytes
	if end > len(b.payload) {
		b.payload = grown(b.payload, max(2*len(b.payload), end))
	}
	trace.Put(b.payload[b.bytes:end])
	op.Flags |= OpTraced
	op.Token = uint64(b.bytes)
	b.bytes = end
}

// untraced is what the trace of a request points to if it has none.
var untraced Trace

// Trace tells whose call the request is. It returns false if its caller did not say, or if the request was answered before anyone had asked.
//
// Only the poller's thread may ask C. So who asks first waits for the poller; from then on the poller asks for each request of the
// connection when it comes. Where nobody wants traces, nothing is asked.
func (request *Request) Trace() (Trace, bool) {
	trace := request.trace.Load()
	if trace == nil {
		trace = request.askTrace()
	}
	return *trace, trace != &untraced
}

func (request *Request) askTrace() *Trace {
	c := request.connection
	if c == nil {
		return &untraced
	}
	p := c.poller
	p.mutex.Lock() // what keeps an answer from C meanwhile, and the connection from its end
	defer p.mutex.Unlock()
	if trace := request.trace.Load(); trace != nil {
		return trace
	}
	c.wantsTraces.Store(true)
	if request.answered.isSet() || c.over || request.lost() {
		return &untraced
	}
	trace := p.raw.traceOf(EndpointHandle(c.handle), request.token)
	request.trace.Store(trace)
	return trace
}

// traceOf gives the trace of an open request, or &untraced.
func (r *RawContext) traceOf(endpoint EndpointHandle, token uint64) *Trace {
	trace, status := r.RequestTrace(endpoint, token)
	if status != OK {
		return &untraced
	}
	own := trace // what escapes, only if there is one
	return &own
}

// RequestTrace gives the trace of a request that was not answered yet; `token` is that of its completion. ErrNotFound: its caller has sent none.
// ErrStale: there is no such request.
func (r *RawContext) RequestTrace(endpoint EndpointHandle, token uint64) (Trace, Status) {
	if r == nil || r.handle == nil {
		return Trace{}, ErrClosed
	}
	theirs := &r.scratch.trace
	status := C.copyrpc_go_request_get_trace(address(unsafe.Pointer(r.handle)), C.uint64_t(endpoint), C.uint64_t(token),
		address(unsafe.Pointer(theirs)))
	if status < 0 {
		return Trace{}, Status(status)
	}
	return *(*Trace)(unsafe.Pointer(theirs)), OK
}
