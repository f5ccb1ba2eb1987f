// calls_raw.go: the verbs of calls in the form `raw`: with RawContext alone. What has no room waits here, in order, until the library says
// that there is some.
package main

import (
	"encoding/hex"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// rawLacks is what the form does not do. RawContext can do it, but it is for scenarios that run in no form.
var rawLacks = []string{
	"channel_connect", "channel_accept", "channel_reject", "channel_blob", "channel_join", "channel_disconnect", "channel_close",
	"channel_info", "channel_stats", "rails", "send", "receive", "cancel_send", "set_share", "hint_open", "hint_publish", "hint_close", "listen.channels", "open.rails",
	"grant", "revoke", "open_grant", "close_grant", "grant_info", "transfer", "call.after", "reply.after", "connect.lane", "accept.lane",
	"blob.lane", "register_dmabuf",
}

const (
	rawBatchOps   = 32      // that one Submit takes
	rawBatchBytes = 1 << 20 // of their payloads, unless the first one alone has more
)

// rawCall is a call on its way into the library.
type rawCall struct {
	op       copyrpc.Op
	payload  []byte // nil if it is in a region
	trace    *copyrpc.Trace
	due      time.Time
	canceled bool
}

// rawOfCalls is what a thing of the raw level is in the verbs of calls.
type rawOfCalls struct {
	// Of an endpoint.
	mode       string // how it is served; if it is not, each request is told of
	connected  bool
	lent       []byte // in places
	placeBytes int
	service    *rawThing // by whose listener it came; a listener that is served is its own
	// Of a listener that is served.
	connections int
	stops       bool
	// Of a request.
	request   copyrpc.Completion
	payload   []byte
	abandoned bool
	// Of a room.
	op   copyrpc.Op
	room []byte
}

func (thing *rawThing) endpoint() copyrpc.EndpointHandle { return copyrpc.EndpointHandle(thing.handle) }

// failure is a status as an error, with what a peer has answered.
func failure(status copyrpc.Status, answer []byte) error {
	switch {
	case status > 0:
		return &copyrpc.ReplyError{Status: status, Payload: answer}
	case status < 0:
		return &copyrpc.Error{Status: status}
	}
	return nil
}

// ---- Submitting ----

// submitCalls submits what there may be room for. A call behind one of the same endpoint that must wait, waits too.
func (r *raw) submitCalls() {
	var kept []*rawCall
	for waiting := r.calls; len(waiting) > 0; {
		var batch []*rawCall
		batch, kept, waiting = r.batch(waiting, kept)
		taken, status := r.context.Submit(len(batch))
		if taken < len(batch) && status != copyrpc.ErrAgain {
			tellResponse(int(batch[taken].op.UserData), nil, failure(status, nil))
			taken++
		} else if taken < len(batch) {
			r.full[batch[taken].op.Endpoint] = true
		}
		waiting = append(batch[taken:len(batch):len(batch)], waiting...)
	}
	r.calls = kept
}

// batch fills the arrays with the first calls of those that wait, and gives these, what is kept, and the rest.
func (r *raw) batch(waiting, kept []*rawCall) (batch, stay, rest []*rawCall) {
	bytes := 0
	for i, call := range waiting {
		op := call.op
		switch {
		case call.canceled:
			tellResponse(int(op.UserData), nil, failure(copyrpc.ErrCanceled, nil))
			continue
		case !call.due.IsZero():
			left := time.Until(call.due)
			if left <= 0 {
				tellResponse(int(op.UserData), nil, failure(copyrpc.ErrTimeout, nil))
				continue
			}
			op.TimeoutNs = uint64(left)
		}
		if r.full[op.Endpoint] {
			kept = append(kept, call)
			continue
		}
		if len(batch) == rawBatchOps || bytes > 0 && bytes+len(call.payload) > rawBatchBytes {
			return batch, kept, waiting[i:]
		}
		if call.trace != nil {
			call.trace.Put(r.context.Payload[bytes:])
			op.Flags, op.Token = op.Flags|copyrpc.OpTraced, uint64(bytes)
			bytes += copyrpc.TraceBytes
		}
		if op.Flags&copyrpc.OpRegion == 0 {
			op.PayloadOffset = uint64(bytes)
			bytes += copy(r.context.Payload[bytes:], call.payload)
		}
		r.context.Ops[len(batch)] = op
		batch = append(batch, call)
	}
	return batch, kept, nil
}

// submitOp submits one op that does not wait.
func (r *raw) submitOp(op copyrpc.Op, data []byte) error {
	if op.Flags&copyrpc.OpRegion == 0 {
		copy(r.context.Payload, data)
	}
	r.context.Ops[0] = op
	_, status := r.context.Submit(1)
	return failure(status, nil)
}

func (r *raw) callOp(endpoint copyrpc.EndpointHandle, l line) copyrpc.Op {
	op := copyrpc.Op{Opcode: copyrpc.OpCall, Method: uint16(l.number("method")), Endpoint: endpoint, UserData: uint64(l.number("id")),
		PayloadBytes: uint32(l.number("length")), ReplyBytesMax: uint32(l.number("reply_max")), TimeoutNs: uint64(l.milliseconds("timeout_ms"))}
	if l["idempotent"] == "1" {
		op.Flags = copyrpc.OpIdempotent
	}
	return op
}

func answerOp(request *rawThing, opcode uint8, status copyrpc.Status, length int) copyrpc.Op {
	return copyrpc.Op{Opcode: opcode, Flags: copyrpc.OpQuiet, Status: int32(status), Endpoint: request.endpoint(), Token: request.request.Token,
		PayloadBytes: uint32(length)}
}

// putInRegion has the op name the line's region, if it has one, and writes the payload there as far as there is room.
func (r *raw) putInRegion(op *copyrpc.Op, l line, index int, data []byte) {
	if l["region"] == "" {
		return
	}
	offset := l.number("offset") + index*len(data)
	if region := r.named(l["region"]); region != nil {
		op.Region = copyrpc.RegionHandle(region.handle)
		if offset+len(data) <= len(region.memory) {
			copy(region.memory[offset:], data)
		}
	}
	op.Flags = op.Flags&^copyrpc.OpQuiet | copyrpc.OpRegion
	op.PayloadOffset = uint64(offset)
}

// ---- Verbs ----

// obeyCalls is what the verbs of calls do; errNoVerb: it is none.
func (r *raw) obeyCalls(it *rawThing, verb string, l line) (said, error) {
	if it != nil {
		told, err := r.ofPeer(it, verb, l)
		if err == errNoVerb {
			told, err = r.ofListener(it, verb, l)
		}
		return told, err
	}
	switch verb {
	case "connect":
		thing, number := r.add(l["name"])
		endpoint, err := r.context.Connect(l["address"], number, l.options()...)
		thing.handle = uint64(endpoint)
		return nil, thing.failed(err)
	case "blob":
		thing, number := r.add(l["name"])
		endpoint, blob, err := r.context.Blob(number, l.options()...)
		thing.handle = uint64(endpoint)
		return said{"blob": hex.EncodeToString(blob)}, err
	case "listen":
		if l["queues"] == "1" {
			return nil, errNoVerb
		}
		thing, number := r.add(l["name"])
		listener, err := r.context.Listen(l["address"], number, l.options()...)
		if err != nil {
			return nil, err
		}
		thing.handle = uint64(listener)
		if l["service"] == "1" {
			thing.service = thing
		}
		return r.of(thing, "listener", l)
	case "stats":
		return fields(r.context.Stats())
	case "device":
		return tellDevice(l["device"])
	case "status_text":
		return tellStatusText(l["status"])
	case "log":
		entries, err := r.context.Log()
		return said{"entries": len(entries)}, err
	}
	return nil, errNoVerb
}

// ofPeer is what the verbs do that are about an endpoint, or about a request or a room of one.
func (r *raw) ofPeer(it *rawThing, verb string, l line) (said, error) {
	endpoint := it.endpoint()
	switch verb {
	case "join":
		return nil, it.failed(r.context.Join(endpoint, l.blob()))
	case "call":
		r.call(endpoint, l)
	case "cancel":
		return nil, r.cancel(endpoint, uint64(l.number("id")))
	case "serve":
		it.mode = l["mode"]
	case "disconnect":
		return nil, r.context.Disconnect(endpoint, l.leaveLimit())
	case "close":
		delete(r.full, endpoint) // nothing tells of it any more; what waits is refused now
		return nil, r.context.CloseEndpoint(endpoint)
	case "info":
		return fields(r.context.EndpointInfo(endpoint))
	case "stats":
		return fields(r.context.EndpointStats(endpoint))
	case "error":
		if l["endpoint"] == "" {
			return nil, errNoVerb
		}
		return tellError(r.context.EndpointError(endpoint))
	case "lend":
		return nil, r.lend(it, l)
	case "reply":
		return nil, r.reply(it, l)
	case "drop":
		status := copyrpc.OK
		if l["not_started"] == "1" {
			status = copyrpc.ErrNotStarted
		}
		return nil, r.submitOp(answerOp(it, copyrpc.OpDrop, status, 0), nil)
	case "request":
		return r.tellWaiting(it), nil
	case "payload":
		return told(it.payload), nil
	case "give_back":
		return nil, r.context.GiveBack(&it.request)
	case "reserve":
		return nil, r.reserve(it, l)
	case "commit":
		return nil, r.commit(it, l)
	case "abort":
		it.room = nil
		return nil, failure(r.context.Abort(endpoint), nil)
	default:
		return nil, errNoVerb
	}
	return nil, nil
}

func (r *raw) tellWaiting(request *rawThing) said {
	told := said{"abandoned": map[bool]int{true: 1}[request.abandoned], "waits_ms": time.Duration(request.request.UserData).Milliseconds(), "trace": ""}
	if trace, status := r.context.RequestTrace(request.endpoint(), request.request.Token); status == copyrpc.OK {
		told["trace"] = traceWords(trace)
	}
	return told
}

// leaveLimit is for how long taking leave may last.
func (l line) leaveLimit() time.Duration {
	if limit := l.milliseconds("timeout_ms"); limit > 0 {
		return limit
	}
	return copyrpc.Forever
}

// call leaves it to submitCalls to submit them.
func (r *raw) call(endpoint copyrpc.EndpointHandle, l line) {
	for i := 0; i < max(l.number("count"), 1); i++ {
		call := &rawCall{op: r.callOp(endpoint, l), payload: payload(l.number("length"), l.number("seed")+i), trace: l.trace()}
		call.op.UserData += uint64(i)
		if call.op.TimeoutNs > 0 {
			call.due = time.Now().Add(time.Duration(call.op.TimeoutNs))
		}
		if r.putInRegion(&call.op, l, i, call.payload); call.op.Flags&copyrpc.OpRegion != 0 {
			call.payload = nil
		}
		r.calls = append(r.calls, call)
	}
}

func (r *raw) cancel(endpoint copyrpc.EndpointHandle, id uint64) error {
	for _, call := range r.calls {
		call.canceled = call.canceled || call.op.Endpoint == endpoint && call.op.UserData == id
	}
	return r.submitOp(copyrpc.Op{Opcode: copyrpc.OpCancel, Endpoint: endpoint, Token: id}, nil)
}

func (r *raw) reply(request *rawThing, l line) error {
	data := request.payload
	if l["echo"] != "1" {
		data = payload(l.number("length"), l.number("seed"))
	}
	op := answerOp(request, copyrpc.OpReply, copyrpc.Status(l.number("status")), len(data))
	r.putInRegion(&op, l, 0, data)
	return r.submitOp(op, data)
}

func (r *raw) reserve(it *rawThing, l line) error {
	op := r.callOp(it.endpoint(), l)
	if l["request"] != "" {
		op = answerOp(it, copyrpc.OpReply, copyrpc.Status(l.number("status")), l.number("length"))
	}
	thing, _ := r.add(l["name"])
	thing.handle, thing.op = it.handle, op
	var status copyrpc.Status
	thing.room, status = r.context.Reserve(op)
	return failure(status, nil)
}

func (r *raw) commit(it *rawThing, l line) error {
	length := l.number("length")
	// The room is gone if the endpoint is.
	if _, err := r.context.EndpointInfo(it.endpoint()); err == nil && it.room != nil && length <= len(it.room) {
		copy(it.room, payload(length, l.number("seed")))
		it.room = nil
	}
	err := failure(r.context.Commit(it.endpoint(), length), nil)
	if err != nil && it.op.Opcode == copyrpc.OpCall { // as of calls that never had room
		tellResponse(int(it.op.UserData), nil, err)
		return nil
	}
	return err
}

func (r *raw) lend(it *rawThing, l line) error {
	region := r.named(l["region"])
	if region == nil {
		return errUnknown
	}
	offset, placeBytes, places := l.number("offset"), l.number("place_bytes"), l.number("places")
	err := r.context.LendArena(it.endpoint(), copyrpc.RegionHandle(region.handle), uint64(offset), uint32(placeBytes), uint32(places))
	if err == nil {
		it.lent, it.placeBytes = region.memory[offset:], placeBytes
	}
	return err
}
