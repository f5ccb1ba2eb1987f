// raw.go: a context of the raw level, and the one goroutine that has it: it submits, polls, and sleeps. queues_raw.go has the verbs of
// queues, calls_raw.go those of calls.
package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const (
	rawOps          = 1024
	rawPayloadBytes = 128 << 20 // the longest payload of an op; what is not used takes no memory
)

// raw is a context of the raw level, and what a scenario has made of it. One goroutine has it: run.
type raw struct {
	context *copyrpc.RawContext
	jobs    chan func()
	stop    atomic.Value // func(), that ends run's sleep
	ended   chan struct{}
	over    bool

	things []*rawThing // user_data is the index
	posts  []*post
	calls  []*rawCall                      // that wait for room, in order
	full   map[copyrpc.EndpointHandle]bool // those that had none, until they tell of it

	letter       copyrpc.Completion // the datagram that came last
	letterHeader []byte
}

// rawThing is an endpoint, a queue, a listener, a request, a room, a region or a target.
type rawThing struct {
	name   string
	handle uint64 // of a request or a room, that of its endpoint
	memory []byte // of a region
	rawOfCalls
}

func openRaw(l line) (*raw, error) {
	sizes := copyrpc.RawSizes{QueueOps: rawOps, Pieces: copyrpc.SubmitPiecesMax, PayloadBytes: rawPayloadBytes}
	context, err := copyrpc.OpenRaw(sizes, l.contextOptions()...)
	if err != nil {
		return nil, err
	}
	r := &raw{context: context, jobs: make(chan func(), 1), ended: make(chan struct{}), full: map[copyrpc.EndpointHandle]bool{}}
	r.stop.Store(func() {})
	go r.run()
	return r, nil
}

// run polls, submits what waits, does what do asks for, and sleeps.
func (r *raw) run() {
	for !r.over {
		count, _ := r.context.Poll()
		for i := 0; i < count; i++ {
			r.take(&r.context.Completions[i])
		}
		r.submitCalls()
		ctx, cancel := r.sleepLimit()
		r.stop.Store(func() { cancel() }) // before it looks for a job: who has one looks for this after it
		select {
		case job := <-r.jobs:
			job()
		default:
			if count == 0 {
				r.context.Wait(ctx)
			}
		}
		cancel()
	}
	r.context.Close()
	for _, thing := range r.things {
		if thing.memory != nil {
			syscall.Munmap(thing.memory)
		}
	}
	close(r.ended)
}

// sleepLimit is how long run may sleep: calls that wait for room have deadlines, which nobody else watches.
func (r *raw) sleepLimit() (context.Context, context.CancelFunc) {
	var first time.Time
	for _, call := range r.calls {
		if !call.due.IsZero() && (first.IsZero() || call.due.Before(first)) {
			first = call.due
		}
	}
	if first.IsZero() {
		return context.WithCancel(context.Background())
	}
	return context.WithDeadline(context.Background(), first)
}

// do has run do something, and waits for it.
func (r *raw) do(job func()) {
	done := make(chan struct{})
	r.jobs <- func() {
		job()
		close(done)
	}
	r.stop.Load().(func())()
	<-done
}

func (r *raw) close() {
	r.do(func() { r.over = true })
	<-r.ended
}

func (r *raw) add(name string) (*rawThing, uint64) {
	thing := &rawThing{name: name}
	if name == "" {
		thing.name = strconv.Itoa(len(r.things))
	}
	r.things = append(r.things, thing)
	return thing, uint64(len(r.things) - 1)
}

// named is the latest thing of a name; nil if there is none.
func (r *raw) named(name string) *rawThing {
	for i := len(r.things) - 1; i >= 0; i-- {
		if r.things[i].name == name {
			return r.things[i]
		}
	}
	return nil
}

// obey does what a line says, of a context that is open.
func (r *raw) obey(verb string, l line) (told said, err error) {
	r.do(func() {
		var it *rawThing
		for _, key := range references {
			if name, ok := l[key]; ok {
				if it = r.named(name); it == nil {
					err = errUnknown
					return
				}
				break
			}
		}
		if told, err = r.obeyCalls(it, verb, l); err == errNoVerb {
			told, err = r.obeyQueues(it, verb, l)
		}
	})
	return told, err
}

// take tells what a completion is about.
func (r *raw) take(done *copyrpc.Completion) {
	switch {
	case done.Kind == copyrpc.CompletionDevice: // of no thing
	case done.Flags&copyrpc.CompletionOfQueue != 0:
		r.takeOfQueue(done)
	default:
		r.takeOfCalls(done)
	}
}

// failed tells of connecting that failed at once as of connecting that failed later.
func (thing *rawThing) failed(err error) error {
	if err != nil {
		event("connected", said{"endpoint": thing.name, "status": statusOf(err)})
	}
	return nil
}
