// main.go: does in Go what run.py says on stdin, one line a step, and tells on stdout what comes of it. docs/conformance.md has
// the words. It decides nothing: what is right, only run.py knows.
package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// runner is what a scenario has made. `ctx` ends with it, and `begun` says when all that it began has told its last.
type runner struct {
	ctx     context.Context
	cancel  context.CancelFunc
	begun   sync.WaitGroup
	context *copyrpc.Context
	things  sync.Map // by name or number: *peer, *copyrpc.Listener, *copyrpc.ConnectRequest, *copyrpc.Request
	numbers atomic.Int32
	calls   map[string]context.CancelFunc
}

type peer struct {
	*copyrpc.Endpoint
	name  string
	mode  atomic.Value // how it is served; if it is not, each request is told of
	ended atomic.Bool  // its end is told, or who takes leave will
}

func newRunner() *runner {
	r := &runner{calls: map[string]context.CancelFunc{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *runner) begin(work func()) {
	r.begun.Add(1)
	go func() {
		defer r.begun.Done()
		work()
	}()
}

// number gives a thing one.
func (r *runner) number(thing any) string {
	number := strconv.Itoa(int(r.numbers.Add(1)))
	r.things.Store(number, thing)
	return number
}

// find gives the thing that a line names; nil if it names none.
func (r *runner) find(l line) (any, error) {
	for _, key := range []string{"endpoint", "listener", "connection", "request"} {
		if name, ok := l[key]; ok {
			if thing, ok := r.things.Load(name); ok {
				return thing, nil
			}
			return nil, errUnknown
		}
	}
	return nil, nil
}

func (r *runner) reset() {
	r.cancel()
	r.begun.Wait()
	r.things.Range(func(_, thing any) bool {
		if closer, ok := thing.(interface{ Close() error }); ok {
			closer.Close()
		}
		return true
	})
	r.context.Close()
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

func describeListener(listener *copyrpc.Listener) (string, error) {
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

// ---- Verbs, by what they are about ----

func (r *runner) ofEndpoint(it *peer, verb string, l line) (string, error) {
	switch verb {
	case "call":
		r.call(it, l)
	case "cancel":
		if cancel, ok := r.calls[l["id"]]; ok {
			cancel()
		} else {
			return "", errUnknown
		}
	case "serve":
		r.serve(it, l["mode"])
	case "disconnect":
		r.disconnect(it, l)
	case "close":
		return "", it.Close()
	case "info":
		return fields(it.Info())
	case "stats":
		return fields(it.Stats())
	default:
		return "", errNoVerb
	}
	return "", nil
}

func (r *runner) ofRequest(request *copyrpc.Request, verb string, l line) (string, error) {
	switch {
	case verb == "payload":
		return told(request.Payload), nil
	case verb == "drop":
		return "", request.Drop()
	case verb == "reply" && l["echo"] == "1":
		return "", request.Reply(request.Payload)
	case verb == "reply":
		return "", request.ReplyStatus(int32(l.number("status")), payload(l.number("length"), l.number("seed")))
	}
	return "", errNoVerb
}

func (r *runner) ofContext(verb string, l line) (_ string, err error) {
	switch verb {
	case "open":
		if r.context, err = copyrpc.Open(l.options()...); err != nil {
			return "", err
		}
		return r.ofContext("context", l)
	case "context":
		info, err := r.context.Info()
		told, _ := fields(info, err)
		return "driver_name=" + info.Driver + told, err
	case "stats":
		return fields(r.context.Stats())
	case "listen":
		return r.listen(l)
	case "connect":
		return r.connecting(l["name"], func() (*copyrpc.Endpoint, error) { return r.context.Dial(r.ctx, l["address"], l.options()...) })
	}
	return "", errNoVerb
}

func (r *runner) obey(verb string, l line) (string, error) {
	it, err := r.find(l)
	if err != nil {
		return "", err
	}
	switch it := it.(type) {
	case *peer:
		return r.ofEndpoint(it, verb, l)
	case *copyrpc.Request:
		return r.ofRequest(it, verb, l)
	case *copyrpc.Listener:
		if verb == "close_listener" {
			return "", it.Close()
		}
		return describeListener(it)
	case *copyrpc.ConnectRequest:
		if verb == "reject" {
			return "", it.Reject(uint32(l.number("reason")))
		}
		return r.connecting(l["name"], func() (*copyrpc.Endpoint, error) { return it.Accept(r.ctx, l.options()...) })
	}
	return r.ofContext(verb, l)
}

func main() {
	r := newRunner()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		l := line{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			l[key] = value
		}
		if words[0] == "reset" {
			r.reset()
			r = newRunner()
			tell("done status=CRPC_OK")
			continue
		}
		fields, err := r.obey(words[0], l)
		tell("done %s status=%s", fields, statusOf(err))
	}
	r.reset()
}
