// peers.go: the lives of listeners and endpoints, calls, and requests.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/copyrpc/copyrpc/bindings/go"
)

type peer struct {
	*copyrpc.Endpoint
	name  string
	mode  atomic.Value // how it is served; if it is not, each request is told of
	ended atomic.Bool  // its end is told, or who takes leave will
}

// ---- Connections ----

func (r *runner) listen(l line) (string, error) {
	listener, err := r.context.Listen(l["address"], l.options()...)
	if err != nil {
		return "", err
	}
	r.things.Store(l["name"], listener)
	r.begin(func() {
		for {
			request, err := listener.AcceptRequest(r.ctx)
			if err != nil {
				return
			}
			tell("event kind=connect_request listener=%s connection=%s token=%s", l["name"], r.number(request), request.Info.Token)
		}
	})
	return describeListener(listener)
}

func describeListener(listener interface {
	Address() string
	Stats() (copyrpc.ListenerStats, error)
}) (string, error) {
	told, err := fields(listener.Stats())
	return "address=" + listener.Address() + told, err
}

// connecting is the life of an endpoint.
func (r *runner) connecting(name string, connect func() (*copyrpc.Endpoint, error)) (string, error) {
	r.begin(func() {
		endpoint, err := connect()
		it := &peer{Endpoint: endpoint, name: name}
		if err == nil {
			r.things.Store(name, it)
		}
		tell("event kind=connected endpoint=%s status=%s", name, statusOf(err))
		for err == nil {
			var request *copyrpc.Request
			if request, err = endpoint.Receive(r.ctx); err == nil {
				r.take(it, request)
			}
		}
		if endpoint != nil && !errors.Is(err, copyrpc.ErrClosed) && r.ctx.Err() == nil && !it.ended.Swap(true) {
			tell("event kind=disconnected endpoint=%s status=%s", name, statusOf(err))
		}
	})
	return "", nil
}

// blob makes one side of an endpoint, which is under its name when it is joined.
func (r *runner) blob(l line) (string, error) {
	blob, err := r.context.NewBlob(l.options()...)
	if err != nil {
		return "", err
	}
	r.things.Store(l["name"], blob)
	r.blobs[l["name"]] = blob
	return "blob=" + hex.EncodeToString(blob.Bytes), nil
}

func (r *runner) disconnect(it *peer, l line) {
	ctx, cancel := r.limited(l)
	told := it.ended.Swap(true)
	r.begin(func() {
		defer cancel()
		if err := it.Shutdown(ctx); !told {
			tell("event kind=disconnected endpoint=%s status=%s", it.name, statusOf(err))
		}
	})
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
		id := strconv.Itoa(l.number("id") + i)
		call := copyrpc.Call{Method: uint16(l.number("method")), ReplyBytesMax: l.number("reply_max"),
			Request: payload(l.number("length"), l.number("seed")+i)}
		if call.ReplyBytesMax == 0 {
			call.ReplyBytesMax = copyrpc.NoReplyBytes
		}
		ctx, cancel := r.limited(l)
		r.calls[id] = cancel
		r.begin(func() {
			answer, err := it.Do(ctx, call)
			var reply *copyrpc.ReplyError
			if errors.As(err, &reply) {
				answer = reply.Payload
			}
			tell("event kind=response id=%s status=%s %s", id, statusOf(err), told(answer))
		})
	}
}

func (r *runner) take(it *peer, request *copyrpc.Request) {
	mode, served := it.mode.Load().(string)
	if !served {
		tell("event kind=request endpoint=%s request=%s method=%d %s reply_max=%d", it.name, r.number(request), request.Method,
			told(request.Payload), request.ReplyBytesMax)
	} else if answer, err := handle(request, mode); err != nil { // it came before Serve had begun
		request.ReplyStatus(copyrpc.StatusHandlerFailed, nil)
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

func (r *runner) serve(it *peer, mode string) {
	it.mode.Store(mode)
	r.begin(func() {
		it.Serve(r.ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) { return handle(request, mode) })
	})
}
