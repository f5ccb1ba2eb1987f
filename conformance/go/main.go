// main.go: does in Go what run.py says on stdin, one line a step, and tells on stdout what comes of it. docs/conformance.md has
// the verbs. It decides nothing: what is right, only run.py knows.
package main

import (
	"bufio"
	"context"
	"log"
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
	things  sync.Map // by name or number: *peer, *copyrpc.Listener, *copyrpc.ConnectRequest, *copyrpc.Request, *copyrpc.Blob, *copyrpc.Region, and those of channels and queues
	numbers atomic.Int32
	calls   map[string]context.CancelFunc
	blobs   map[string]*copyrpc.Blob // also when they are joined
	halves  map[string]*copyrpc.ChannelBlob
	sends   map[string]func() // that cancel them

	hint     *copyrpc.ShareHint // that this runner writes; one is enough
	hintName string

	raw        *raw // instead of context
	queueBlobs map[string]*copyrpc.QueueBlob
	queueNames sync.Map // by copyrpc.QueueHandle
	letter     letter
	serves     bool                       // the form: handlers answer requests
	answered   sync.Map                   // channels that are closed when a *copyrpc.Request is answered, which handlers wait for
	tagWorks   sync.Map                   // *copyrpc.TagWork by number
	dmabufs    map[*copyrpc.Region][]byte // their memory, which stays mapped until the runner ends: a few pages
}

func newRunner() *runner {
	r := &runner{calls: map[string]context.CancelFunc{}, blobs: map[string]*copyrpc.Blob{}, halves: map[string]*copyrpc.ChannelBlob{}, sends: map[string]func(){},
		queueBlobs: map[string]*copyrpc.QueueBlob{}, dmabufs: map[*copyrpc.Region][]byte{}}
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

// references are the members that name what a command is about: the first one that is there.
var references = []string{"endpoint", "listener", "connection", "request", "room", "channel", "queue", "region", "grant", "target"}

// find gives the thing that a line names; nil if it names none.
func (r *runner) find(l line) (any, error) {
	for _, key := range references {
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
	if r.raw != nil {
		r.raw.close()
	}
	r.cancel()
	r.things.Range(func(_, thing any) bool { // so that no handler waits for its grace to pass, and then answers
		if it, ok := thing.(*peer); ok {
			it.Close()
		}
		return true
	})
	r.begun.Wait()
	r.things.Range(func(_, thing any) bool {
		if closer, ok := thing.(interface{ Close() error }); ok {
			closer.Close()
		}
		return true
	})
	r.context.Close()
}

// ---- Verbs, by what they are about ----

func (r *runner) ofEndpoint(it *peer, verb string, l line) (said, error) {
	switch verb {
	case "call":
		r.call(it, l)
	case "cancel":
		if cancel, ok := r.calls[l["id"]]; ok {
			cancel()
		} else {
			return nil, errUnknown
		}
	case "serve":
		r.serve(it, l["mode"])
	case "disconnect":
		r.leave(&it.tie, it.Shutdown, l)
	case "close":
		return nil, it.Close()
	case "info":
		return fields(it.Info())
	case "stats":
		return fields(it.Stats())
	case "lend":
		return nil, r.lend(it, l)
	case "reserve":
		return nil, r.reserve(l, nil, it.Reserve)
	case "error":
		return tellError(it.Err())
	default:
		return nil, r.ofLane(it, verb, l)
	}
	return nil, nil
}

func (r *runner) ofRequest(request *copyrpc.Request, verb string, l line) (said, error) {
	switch {
	case verb == "payload":
		return told(request.Payload), nil
	case verb == "reserve":
		return nil, r.reserve(l, request, func(_ copyrpc.Call, bytes int) (*copyrpc.Reservation, error) {
			return request.Reserve(copyrpc.Status(l.number("status")), bytes)
		})
	case verb == "drop" && l["not_started"] == "1":
		return nil, request.DropNotStarted()
	case verb == "drop":
		return nil, request.Drop()
	case verb == "request":
		return tellWaiting(request), nil
	case verb == "give_back":
		request.Release()
		return nil, nil
	case verb == "reply" && l["region"] != "":
		data := payload(l.number("length"), l.number("seed"))
		return nil, request.ReplyBuffer(copyrpc.Status(l.number("status")), r.inRegion(l, l.number("offset"), data))
	case verb == "reply" && l["after"] == "1":
		return nil, request.ReplyAfter(r.ctx, payload(l.number("length"), l.number("seed")))
	case verb == "reply" && l["echo"] == "1":
		return nil, request.Reply(request.Payload)
	case verb == "reply":
		return nil, request.ReplyStatus(copyrpc.Status(l.number("status")), payload(l.number("length"), l.number("seed")))
	}
	return nil, errNoVerb
}

func (r *runner) ofRegion(region *copyrpc.Region, verb string, l line) (said, error) {
	switch verb {
	case "region":
		return regionFields(region.Info())
	case "memory":
		if memory, ok := r.dmabufs[region]; ok {
			return look(memory, l)
		}
		return look(region.Bytes(), l)
	case "deregister":
		return nil, region.Close()
	}
	return nil, errNoVerb
}

// ofInfo is what `context` answers.
func ofInfo(info copyrpc.ContextInfo) said {
	return said{"device": info.Device, "driver_name": info.Driver, "endpoints": info.Endpoints,
		"traffic_class": info.TrafficClass, "service_level": info.ServiceLevel}
}

func (r *runner) ofContext(verb string, l line) (_ said, err error) {
	switch verb {
	case "open":
		r.serves = l["form"] == "serve"
		if r.context, err = copyrpc.Open(l.contextOptions()...); err != nil {
			return nil, err
		}
		return r.ofContext("context", l)
	case "context":
		info, err := r.context.Info()
		return ofInfo(info), err
	case "stats":
		return fields(r.context.Stats())
	case "device":
		return tellDevice(l["device"])
	case "log":
		entries, err := r.context.Log()
		return said{"entries": len(entries)}, err
	case "register_dmabuf":
		return nil, r.registerDmabuf(l)
	case "status_text":
		return tellStatusText(l["status"])
	case "listen":
		return r.listen(l)
	case "connect":
		return r.connecting(l["name"], func() (*copyrpc.Endpoint, error) {
			return r.context.Dial(r.ctx, l["address"], append(l.options(), r.changes(l["name"]))...)
		})
	case "blob":
		return r.blob(l)
	case "register":
		region, err := r.context.NewRegion(l.number("length"), copyrpc.Access(l.number("access")))
		if err == nil {
			r.things.Store(l["name"], region)
		}
		return nil, err
	}
	if verb == "datagrams_open" {
		return r.openDatagrams(l)
	}
	if verb == "dci_open" || verb == "dct_open" {
		return r.openDynamic(verb, l)
	}
	if verb == "tags_open" {
		return r.openTags(l)
	}
	if verb == "target_of" {
		return r.targetOf(l)
	}
	if strings.HasPrefix(verb, "queue_") {
		return r.makeQueue(verb, l)
	}
	return r.makeChannel(verb, l)
}

func (r *runner) obey(verb string, l line) (_ said, err error) {
	if verb == "open" && (l["arrays"] == "1" || l["form"] == "raw") {
		if r.raw, err = openRaw(l); err != nil {
			return nil, err
		}
		verb = "context"
	}
	if r.raw != nil {
		return r.raw.obey(verb, l)
	}
	it, err := r.find(l)
	if err != nil {
		return nil, err
	}
	if half := r.halves[l["channel"]]; verb == "channel_join" {
		return r.opening(l["channel"], func() (*copyrpc.Channel, error) { return half.Join(r.ctx, l.blob()) })
	}
	if blob := r.queueBlobs[l["queue"]]; verb == "queue_join" {
		return r.queueing(l["queue"], func() (*copyrpc.Queue, error) { return blob.Join(r.ctx, l.blob()) })
	}
	if blob := r.blobs[l["endpoint"]]; verb == "join" && blob != nil {
		return r.connecting(l["endpoint"], func() (*copyrpc.Endpoint, error) { return blob.Join(r.ctx, l.blob()) })
	}
	switch it := it.(type) {
	case *peer:
		return r.ofEndpoint(it, verb, l)
	case *copyrpc.Request:
		told, err := r.ofRequest(it, verb, l)
		if waits, ok := r.answered.Load(it); ok && err == nil && (verb == "reply" || verb == "drop") {
			close(waits.(chan struct{}))
			r.answered.Delete(it)
		}
		return told, err
	case *lane:
		return r.ofChannel(it, verb, l)
	case *copyrpc.ChannelBlob:
		if verb == "channel_close" {
			return nil, it.Close()
		}
		return nil, errNoVerb
	case *copyrpc.ChannelRequest:
		if verb == "channel_reject" {
			return nil, it.Reject(uint32(l.number("reason")))
		}
		return r.opening(l["name"], func() (*copyrpc.Channel, error) { return it.Accept(r.ctx, l.channelOptions()...) })
	case *pair:
		return r.ofQueue(it, verb, l)
	case *pool:
		return r.ofPool(it, verb, l)
	case *tagPool:
		return r.ofTagPool(it, verb, l)
	case *letters:
		return r.ofLetters(it, verb, l)
	case *initiator:
		return r.ofInitiator(it, verb, l)
	case *dynamicTarget:
		return ofDynamicTarget(it, verb)
	case *copyrpc.Target:
		return r.ofTarget(it, verb)
	case *copyrpc.QueueBlob:
		switch verb {
		case "queue_close":
			return nil, it.Close()
		case "queue_modify":
			return nil, it.Modify(l.changes()...)
		}
		return nil, errNoVerb
	case *copyrpc.QueueRequest:
		if verb == "queue_reject" {
			return nil, it.Reject([]byte(l["private"]))
		}
		options := r.queueOf(l)
		return r.queueing(l["name"], func() (*copyrpc.Queue, error) { return it.Accept(r.ctx, options) })
	case *copyrpc.Region:
		return r.ofRegion(it, verb, l)
	case *room:
		return nil, r.ofRoom(it, verb, l)
	case *copyrpc.Grant:
		return ofGrant(it, verb)
	case *copyrpc.Blob:
		if verb == "close" {
			return nil, it.Close()
		}
		return nil, errNoVerb
	case door:
		switch verb {
		case "close_listener":
			return nil, it.Close()
		case "stop":
			return nil, r.stop(it, l)
		}
		return describe(it)
	case *copyrpc.ConnectRequest:
		if verb == "reject" {
			return nil, it.Reject(uint32(l.number("reason")))
		}
		return r.connecting(l["name"], func() (*copyrpc.Endpoint, error) { return it.Accept(r.ctx, l.options()...) })
	}
	return r.ofContext(verb, l)
}

func hello(known *commands) said {
	return said{"protocol": 1, "name": "go", "language": "Go", "verbs": known.verbs(), "lacks": []string{}, "capabilities": []string{"early_cancel", "room_events"},
		"forms": said{"serve": []string{"lend", "give_back"}, "raw": rawLacks}}
}

func main() {
	known, err := readCommands(os.Args[1], "window", "wait", "cache_info", "cache_forget")
	if err != nil {
		log.Fatal(err)
	}
	r := newRunner()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		verb, l, refused := known.take(input.Bytes())
		switch {
		case refused != nil:
			say(refused)
		case verb == "hello":
			say(hello(known).with(said{"done": "CRPC_OK"}))
		case verb == "reset":
			r.reset()
			r = newRunner()
			say(said{"done": "CRPC_OK"})
		default:
			fields, err := r.obey(verb, l)
			say(fields.with(said{"done": statusOf(err)}))
		}
	}
	r.reset()
}
