// main.go: does in Go what run.py says on stdin, one line a step, and tells on stdout what comes of it. docs/conformance.md has
// the words. It decides nothing: what is right, only run.py knows.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// runner is what a scenario has made. `ctx` ends with it, and `begun` says when all that it began has told its last.
type runner struct {
	ctx         context.Context
	cancel      context.CancelFunc
	begun       sync.WaitGroup
	context     *copyrpc.Context
	listeners   map[string]*copyrpc.Listener
	mutex       sync.Mutex // guards what follows
	numbered    int
	endpoints   map[string]*copyrpc.Endpoint
	connections map[string]*copyrpc.ConnectRequest
	requests    map[string]*copyrpc.Request
	modes       map[string]string          // of endpoints that are served
	ended       map[*copyrpc.Endpoint]bool // whose end is told, or will be
	calls       map[string]context.CancelFunc
}

func newRunner() *runner {
	r := &runner{
		listeners: map[string]*copyrpc.Listener{}, endpoints: map[string]*copyrpc.Endpoint{},
		connections: map[string]*copyrpc.ConnectRequest{}, requests: map[string]*copyrpc.Request{}, modes: map[string]string{}, ended: map[*copyrpc.Endpoint]bool{}, calls: map[string]context.CancelFunc{},
	}
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

func named[T any](r *runner, table map[string]T, l line, key string) (T, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	thing, ok := table[l[key]]
	if !ok {
		return thing, errUnknown
	}
	return thing, nil
}

func numbered[T any](r *runner, table map[string]T, thing T) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.numbered++
	table[strconv.Itoa(r.numbered)] = thing
	return r.numbered
}

// claimEnd gives true once for each endpoint: to who is to tell of its end.
func (r *runner) claimEnd(endpoint *copyrpc.Endpoint) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	claimed := r.ended[endpoint]
	r.ended[endpoint] = true
	return !claimed
}

// ---- Connections ----

func (r *runner) describe() (string, error) {
	info, err := r.context.Info()
	return fmt.Sprintf("device=%s driver=%s endpoints=%d", info.Device, info.Driver, info.Endpoints), err
}

func (r *runner) reset() {
	r.cancel()
	r.begun.Wait()
	for _, endpoint := range r.endpoints {
		endpoint.Close()
	}
	for _, listener := range r.listeners {
		listener.Close()
	}
	if r.context != nil {
		r.context.Close()
	}
}

func (r *runner) listen(l line) (string, error) {
	listener, err := r.context.Listen(l["address"], l.options()...)
	if err != nil {
		return "", err
	}
	r.listeners[l["listener"]] = listener
	r.begin(func() {
		for {
			request, err := listener.AcceptRequest(r.ctx)
			if err != nil {
				return
			}
			tell("event kind=connect_request listener=%s connection=%d token=%s", l["listener"],
				numbered(r, r.connections, request), request.Info.Token)
		}
	})
	return describeListener(listener)
}

func describeListener(listener *copyrpc.Listener) (string, error) {
	stats, err := listener.Stats()
	return fmt.Sprintf("address=%s requests=%d refused=%d", listener.Address(), stats.Requests, stats.Refused), err
}

// connecting is the life of an endpoint.
func (r *runner) connecting(name string, connect func() (*copyrpc.Endpoint, error)) {
	r.begin(func() {
		endpoint, err := connect()
		if err == nil {
			r.mutex.Lock()
			r.endpoints[name] = endpoint
			r.mutex.Unlock()
		}
		tell("event kind=connected endpoint=%s status=%s", name, statusOf(err))
		for err == nil {
			var request *copyrpc.Request
			if request, err = endpoint.Receive(r.ctx); err == nil {
				if mode, e := named(r, r.modes, line{"endpoint": name}, "endpoint"); e == nil {
					serveOne(request, mode) // it came before Serve had begun
					continue
				}
				tell("event kind=request endpoint=%s request=%d method=%d %s reply_max=%d", name,
					numbered(r, r.requests, request), request.Method, told(request.Payload), request.ReplyBytesMax)
			} else if !errors.Is(err, copyrpc.ErrClosed) && r.ctx.Err() == nil && r.claimEnd(endpoint) {
				tell("event kind=disconnected endpoint=%s status=%s", name, statusOf(err))
			}
		}
	})
}

func (r *runner) disconnect(endpoint *copyrpc.Endpoint, l line) {
	ctx, cancel := r.ctx, context.CancelFunc(func() {})
	if limit := l.milliseconds("timeout_ms"); limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	first := r.claimEnd(endpoint)
	r.begin(func() {
		defer cancel()
		if err := endpoint.Shutdown(ctx); first {
			tell("event kind=disconnected endpoint=%s status=%s", l["endpoint"], statusOf(err))
		}
	})
}

// ---- Calls and requests ----

func (r *runner) call(endpoint *copyrpc.Endpoint, l line) {
	for i := 0; i < max(l.number("count"), 1); i++ {
		id := l.number("id") + i
		call := copyrpc.Call{Method: uint16(l.number("method")), ReplyBytesMax: l.number("reply_max"),
			Request: payload(l.number("length"), uint32(l.number("seed")+i))}
		if call.ReplyBytesMax == 0 {
			call.ReplyBytesMax = copyrpc.NoReplyBytes
		}
		ctx, cancel := context.WithCancel(r.ctx)
		if limit := l.milliseconds("timeout_ms"); limit > 0 {
			ctx, cancel = context.WithTimeout(r.ctx, limit)
		}
		r.mutex.Lock()
		r.calls[strconv.Itoa(id)] = cancel
		r.mutex.Unlock()
		r.begin(func() {
			answer, err := endpoint.Do(ctx, call)
			var reply *copyrpc.ReplyError
			if errors.As(err, &reply) {
				answer = reply.Payload
			}
			tell("event kind=response id=%d status=%s %s", id, statusOf(err), told(answer))
		})
	}
}

// handle is the handler of served endpoints.
func handle(request *copyrpc.Request, mode string) ([]byte, error) {
	switch mode {
	case "fail":
		return nil, errFailHere
	case "drop":
		return nil, request.Drop()
	}
	return request.Payload, nil
}

func (r *runner) serve(endpoint *copyrpc.Endpoint, name, mode string) {
	r.mutex.Lock()
	r.modes[name] = mode
	r.mutex.Unlock()
	r.begin(func() {
		endpoint.Serve(r.ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) { return handle(request, mode) })
	})
}

func serveOne(request *copyrpc.Request, mode string) {
	if answer, err := handle(request, mode); err != nil {
		request.ReplyStatus(copyrpc.StatusHandlerFailed, nil)
	} else if mode == "echo" {
		request.Reply(answer)
	}
}

func reply(request *copyrpc.Request, l line) error {
	if l["echo"] == "1" {
		return request.Reply(request.Payload)
	}
	return request.ReplyStatus(int32(l.number("status")), payload(l.number("length"), uint32(l.number("seed"))))
}

// ---- Looking ----

func describeInfo(endpoint *copyrpc.Endpoint) (string, error) {
	info, err := endpoint.Info()
	return fmt.Sprintf("request_bytes_max=%d reply_bytes_max=%d calls_max=%d calls_open=%d requests_open=%d",
		info.RequestBytesMax, info.ReplyBytesMax, info.CallsMax, info.CallsOpen, info.RequestsOpen), err
}

func describeStats(stats copyrpc.Stats, err error) (string, error) {
	return fmt.Sprintf("calls=%d responses=%d calls_failed=%d requests=%d replies=%d late_responses=%d batches_sent=%d "+
		"batches_received=%d bytes_sent=%d bytes_received=%d mailbox_reads=%d protocol_errors=%d", stats.Calls, stats.Responses,
		stats.CallsFailed, stats.Requests, stats.Replies, stats.LateResponses, stats.BatchesSent, stats.BatchesReceived,
		stats.BytesSent, stats.BytesReceived, stats.MailboxReads, stats.ProtocolErrors), err
}

// ofEndpoint are the verbs whose first word is an endpoint.
func (r *runner) ofEndpoint(endpoint *copyrpc.Endpoint, verb string, l line) (fields string, err error) {
	switch verb {
	case "call":
		r.call(endpoint, l)
	case "serve":
		r.serve(endpoint, l["endpoint"], l["mode"])
	case "disconnect":
		r.disconnect(endpoint, l)
	case "close":
		err = endpoint.Close()
	case "info":
		return describeInfo(endpoint)
	case "stats":
		return describeStats(endpoint.Stats())
	}
	return "", err
}

func (r *runner) obey(verb string, l line) (fields string, err error) {
	switch verb {
	case "open":
		options := append(l.options(), copyrpc.WithDevice(l["device"]), copyrpc.WithDriver(l["driver"]))
		if r.context, err = copyrpc.Open(options...); err == nil {
			return r.describe()
		}
	case "context":
		return r.describe()
	case "listen":
		return r.listen(l)
	case "listener", "close_listener":
		listener, err := named(r, r.listeners, l, "listener")
		if err == nil && verb == "listener" {
			return describeListener(listener)
		} else if err == nil {
			err = listener.Close()
		}
		return "", err
	case "connect":
		r.connecting(l["endpoint"], func() (*copyrpc.Endpoint, error) { return r.context.Dial(r.ctx, l["address"], l.options()...) })
	case "accept", "reject":
		connection, err := named(r, r.connections, l, "connection")
		if err == nil && verb == "reject" {
			err = connection.Reject(uint32(l.number("reason")))
		} else if err == nil {
			r.connecting(l["endpoint"], func() (*copyrpc.Endpoint, error) { return connection.Accept(r.ctx, l.options()...) })
		}
		return "", err
	case "stats":
		if _, ok := l["endpoint"]; !ok {
			return describeStats(r.context.Stats())
		}
		fallthrough
	case "call", "serve", "disconnect", "close", "info":
		endpoint, err := named(r, r.endpoints, l, "endpoint")
		if err == nil {
			fields, err = r.ofEndpoint(endpoint, verb, l)
		}
		return fields, err
	case "cancel":
		cancel, err := named(r, r.calls, l, "id")
		if err == nil {
			cancel()
		}
		return "", err
	case "reply", "drop", "payload":
		request, err := named(r, r.requests, l, "request")
		if err == nil && verb == "payload" {
			fields = told(request.Payload)
		} else if err == nil && verb == "drop" {
			err = request.Drop()
		} else if err == nil {
			err = reply(request, l)
		}
		return fields, err
	default:
		err = errNoVerb
	}
	return fields, err
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
