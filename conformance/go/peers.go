// peers.go: the lives of listeners and endpoints, calls, and requests.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// tie is what endpoints, channels and queues have in common here.
type tie struct {
	name  string
	ended atomic.Bool // its end is told, or who takes leave will
}

// peer is an endpoint under its name.
type peer struct {
	*copyrpc.Endpoint
	tie
	mode  atomic.Value // how it is served; if it is not, each request is told of
	arena arena
}

// ---- Connections ----

func (r *runner) listen(l line) (said, error) {
	if _, ok := l["channels"]; ok {
		listener, err := r.context.ListenChannels(l["address"], l.options()...)
		return listening(r, l["name"], listener, err, func(request *copyrpc.ChannelRequest) []byte { return request.Info.Token })
	}
	if _, ok := l["queues"]; ok {
		listener, err := r.context.ListenQueues(l["address"], l.options()...)
		return listening(r, l["name"], listener, err, func(request *copyrpc.QueueRequest) []byte { return request.Info.Private })
	}
	listener, err := r.context.Listen(l["address"], l.options()...)
	if _, ok := l["service"]; ok {
		return r.service(l["name"], listener, err)
	}
	return listening(r, l["name"], listener, err, func(request *copyrpc.ConnectRequest) []byte { return request.Info.Token })
}

// door is a listener of either kind.
type door interface {
	Address() string
	Stats() (copyrpc.ListenerStats, error)
	Close() error
}

type doorOf[Request any] interface {
	door
	AcceptRequest(context.Context) (Request, error)
}

// listening is the life of a listener.
func listening[Request any](r *runner, name string, listener doorOf[Request], err error, token func(Request) []byte) (said, error) {
	if err != nil {
		return nil, err
	}
	r.things.Store(name, listener)
	r.begin(func() {
		for {
			request, err := listener.AcceptRequest(r.ctx)
			if err != nil {
				return
			}
			text := words(token(request))
			event("connect_request", said{"listener": name, "connection": r.number(request), "token": text, "private": text})
		}
	})
	return describe(listener)
}

// service is the life of a listener that is served, as a program does it.
func (r *runner) service(name string, listener *copyrpc.Listener, err error) (said, error) {
	if err != nil {
		return nil, err
	}
	r.things.Store(name, listener)
	r.begin(func() {
		err := listener.Serve(r.ctx, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
			waits := make(chan struct{})
			r.answered.Store(request, waits)
			r.tellRequest(request, name, -1)
			select {
			case <-waits:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		if r.ctx.Err() == nil {
			event("stopped", said{"listener": name, "status": statusOf(err)})
		}
	})
	return describe(listener)
}

func (r *runner) stop(listener door, l line) error {
	it, ok := listener.(*copyrpc.Listener)
	if !ok {
		return errNoVerb
	}
	ctx, cancel := r.limited(l)
	r.begin(func() {
		defer cancel()
		it.Shutdown(ctx) // the end of Serve tells of it
	})
	return nil
}

func describe(listener door) (said, error) {
	told, err := fields(listener.Stats())
	return told.with(said{"address": listener.Address()}), err
}

// connected tells what came of connecting, and keeps it under its name; false if that is nothing.
func (r *runner) connected(name string, it any, err error) bool {
	if err == nil {
		r.things.Store(name, it)
	}
	event("connected", said{"endpoint": name, "status": statusOf(err)})
	return err == nil
}

// over tells of an end, unless it is our doing.
func (r *runner) over(it *tie, err error) {
	if !errors.Is(err, copyrpc.ErrClosed) && r.ctx.Err() == nil && !it.ended.Swap(true) {
		event("disconnected", said{"endpoint": it.name, "status": statusOf(err)})
	}
}

// leave takes leave, by the Shutdown of an endpoint or a channel, or the Drain of a queue.
func (r *runner) leave(it *tie, shutdown func(context.Context) error, l line) {
	ctx, cancel := r.limited(l)
	told := it.ended.Swap(true)
	r.begin(func() {
		defer cancel()
		if err := shutdown(ctx); !told {
			event("disconnected", said{"endpoint": it.name, "status": statusOf(err)})
		}
	})
}

// connecting is the life of an endpoint.
func (r *runner) connecting(name string, connect func() (*copyrpc.Endpoint, error)) (said, error) {
	r.begin(func() {
		endpoint, err := connect()
		it := &peer{Endpoint: endpoint, tie: tie{name: name}}
		if !r.connected(name, it, err) {
			return
		}
		if r.serves {
			err = endpoint.Serve(r.ctx, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) { return r.answer(ctx, it, request) })
		}
		for err == nil && !r.serves {
			var request *copyrpc.Request
			if request, err = endpoint.Receive(r.ctx); err == nil {
				r.take(it, request)
			}
		}
		r.over(&it.tie, err)
	})
	return nil, nil
}

// changes tells what becomes of the connections of an endpoint that reconnects: what is not told otherwise.
func (r *runner) changes(name string) copyrpc.Option {
	connected, connections := false, 0
	return copyrpc.WithConnectionState(func(state copyrpc.ConnectionState) {
		switch {
		case r.ctx.Err() != nil || state.Ended:
		case state.Connected:
			if connections++; connections > 1 {
				event("connected", said{"endpoint": name, "status": "CRPC_OK"})
			}
		case connected: // how many attempts fail is a matter of time
			event("reconnecting", said{"endpoint": name, "status": statusOf(state.Err)})
		}
		connected = state.Connected
	})
}

// blob makes one side of an endpoint, which is under its name when it is joined.
func (r *runner) blob(l line) (said, error) {
	blob, err := r.context.NewBlob(l.options()...)
	if err != nil {
		return nil, err
	}
	r.things.Store(l["name"], blob)
	r.blobs[l["name"]] = blob
	return said{"blob": hex.EncodeToString(blob.Bytes)}, nil
}

func (r *runner) limited(l line) (context.Context, context.CancelFunc) {
	if limit := l.milliseconds("timeout_ms"); limit > 0 {
		return context.WithTimeout(r.ctx, limit)
	}
	return context.WithCancel(r.ctx)
}

// ---- Calls and requests ----

func (r *runner) call(it *peer, l line) {
	for i := 0; i < max(l.number("count"), 1); i++ {
		id := l.number("id") + i
		call := copyrpc.Call{Method: uint16(l.number("method")), ReplyBytesMax: l.number("reply_max"),
			Request: payload(l.number("length"), l.number("seed")+i), After: l["after"] == "1", Idempotent: l["idempotent"] == "1",
			Trace: l.trace()}
		call.From = r.inRegion(l, l.number("offset")+i*len(call.Request), call.Request)
		if call.From.Region != nil {
			call.Request = nil
		}
		if call.ReplyBytesMax == 0 {
			call.ReplyBytesMax = copyrpc.NoReplyBytes
		}
		ctx, cancel := r.limited(l)
		r.calls[strconv.Itoa(id)] = cancel
		r.begin(func() {
			answer, err := it.Do(ctx, call)
			tellResponse(id, answer, err)
		})
	}
}

func tellResponse(id int, answer []byte, err error) {
	var reply *copyrpc.ReplyError
	if errors.As(err, &reply) {
		answer = reply.Payload
	}
	event("response", told(answer).with(said{"id": id, "status": statusOf(err)}))
}

// inRegion writes the payload to the line's region, and tells where it is then; nowhere if the line names none.
func (r *runner) inRegion(l line, offset int, data []byte) copyrpc.Buffer {
	thing, _ := r.things.Load(l["region"])
	region, ok := thing.(*copyrpc.Region)
	if !ok {
		return copyrpc.Buffer{}
	}
	buffer := region.Slice(offset, offset+len(data))
	copy(buffer.Bytes(), data)
	return buffer
}

// tellRequest tells of a request, and where it was placed.
func (r *runner) tellRequest(request *copyrpc.Request, endpoint string, placed int) {
	event("request", told(request.Payload).with(said{"endpoint": endpoint, "request": r.number(request), "method": request.Method,
		"reply_max": request.ReplyBytesMax, "placed": placed}))
}

func (r *runner) take(it *peer, request *copyrpc.Request) {
	mode, served := it.mode.Load().(string)
	if !served {
		r.tellRequest(request, it.name, it.arena.placed(request))
		return
	}
	defer request.Release()
	if answer, err := handle(request, mode); err != nil { // it came before Serve had begun
		request.ReplyStatus(copyrpc.StatusUnknown, nil)
	} else if mode == "echo" {
		request.Reply(answer)
	}
}

// handle is the handler of endpoints that are served.
func handle(request *copyrpc.Request, mode string) ([]byte, error) {
	switch mode {
	case "fail":
		return nil, errFailHere
	case "drop":
		return nil, request.Drop()
	}
	return request.Payload, nil
}

// answer is the handler of the form `serve`: it waits until it was told what to answer, unless it was told before.
func (r *runner) answer(ctx context.Context, it *peer, request *copyrpc.Request) ([]byte, error) {
	if mode, served := it.mode.Load().(string); served {
		return handle(request, mode)
	}
	waits := make(chan struct{})
	r.answered.Store(request, waits)
	r.take(it, request)
	select {
	case <-waits:
		return nil, nil
	case <-ctx.Done():
	}
	if !abandoned(request) {
		return nil, ctx.Err()
	}
	select { // run.py says when it is answered, also if nobody waits for that
	case <-waits:
		return nil, nil
	case <-it.Done():
		return nil, ctx.Err()
	}
}

// abandoned tells whether the caller of the request waits no more.
func abandoned(request *copyrpc.Request) bool {
	cause := context.Cause(request.Context())
	return request.Context().Err() != nil && (errors.Is(cause, copyrpc.ErrCanceled) || errors.Is(cause, copyrpc.ErrTimeout))
}

func tellWaiting(request *copyrpc.Request) said {
	fields := said{"abandoned": 0, "waits_ms": 0, "trace": ""}
	if trace, found := request.Trace(); found {
		fields["trace"] = traceWords(trace)
	}
	if abandoned(request) {
		fields["abandoned"] = 1
	}
	if deadline, known := request.Context().Deadline(); known {
		fields["waits_ms"] = max(time.Until(deadline).Milliseconds(), 1)
	}
	return fields
}

func (r *runner) serve(it *peer, mode string) {
	it.mode.Store(mode)
	if r.serves {
		return
	}
	r.begin(func() {
		it.Serve(r.ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) { return handle(request, mode) })
	})
}
