// datagrams.go: the verbs of queues for datagrams, and of their targets.
package main

import (
	"sync"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// letters is a queue for datagrams under its name.
type letters struct {
	*copyrpc.Datagrams
	tie
}

// letter is the datagram that came last, and where it lies.
type letter struct {
	sync.Mutex
	received copyrpc.Received
	buffer   copyrpc.Buffer
	over     string // the name of its queue
}

// sentFrom is the number of the queue pair that has sent what a receive has taken; 0 of what is no datagram.
func sentFrom(done *copyrpc.Completion) uint32 {
	if done.PayloadBytes == 0 || done.Flags&copyrpc.CompletionOfDCT != 0 {
		return 0
	}
	return done.Source()
}

// took keeps it, if it is one.
func (l *letter) took(done copyrpc.Completion, buffer copyrpc.Buffer, over string) {
	if sentFrom(&done) == 0 {
		return
	}
	l.Lock()
	l.received, l.buffer, l.over = done.Received(), buffer, over
	l.Unlock()
}

func (r *runner) openDatagrams(l line) (said, error) {
	queue, err := r.context.OpenDatagrams(r.queueOf(l))
	if err != nil {
		return nil, err
	}
	it := &letters{Datagrams: queue, tie: tie{name: l["name"]}}
	r.things.Store(it.name, it)
	r.queueNames.Store(queue.Handle(), it.name)
	r.begin(func() {
		select {
		case <-queue.Done():
			r.over(&it.tie, queue.Err())
		case <-r.ctx.Done():
		}
	})
	return nil, nil
}

func (r *runner) targetOf(l line) (said, error) {
	r.letter.Lock()
	defer r.letter.Unlock()
	thing, ok := r.things.Load(r.letter.over)
	if !ok {
		return nil, errUnknown
	}
	target, err := thing.(*letters).TargetOf(r.letter.received, r.letter.buffer)
	if err == nil {
		r.things.Store(l["name"], target)
	}
	return nil, err
}

// targetHandle is what ops call the target that the line names; 0: it names none.
func (r *runner) targetHandle(l line) copyrpc.TargetHandle {
	if target, ok := r.things.Load(l["target"]); ok {
		return target.(*copyrpc.Target).Handle()
	}
	return 0
}

// postLetters sends what is inline, one after the other.
func (r *runner) postLetters(it *letters, l line) {
	p := postOf(l, nil)
	thing, _ := r.things.Load(l["target"])
	target, _ := thing.(*copyrpc.Target)
	for i := 0; i < p.count && r.ctx.Err() == nil; i++ {
		err := it.SendBytes(r.ctx, p.parts(i)[0], target)
		if r.ctx.Err() == nil {
			p.tell(i, statusOf(err), copyrpc.Completion{}, "")
		}
	}
}

func (r *runner) ofLetters(it *letters, verb string, l line) (said, error) {
	switch verb {
	case "post":
		if l.number("inline") != 0 {
			r.begin(func() { r.postLetters(it, l) })
			return nil, nil
		}
		return nil, r.post(it.Datagrams, it.name, l)
	case "post_receive":
		return nil, r.post(it.Datagrams, it.name, l)
	case "target_open":
		target, err := it.OpenTarget(l.queueAddress(), copyrpc.TargetOptions{QueueKey: uint32(l.number("queue_key"))})
		if err == nil {
			r.things.Store(l["name"], target)
		}
		return nil, err
	case "queue_address":
		return tellAddress(it.Address())
	case "queue_modify":
		return nil, it.Modify(l.changes()...)
	case "queue_drain":
		r.leave(&it.tie, it.Drain, l)
		return nil, nil
	case "queue_close":
		return nil, it.Close()
	case "queue_info":
		return fields(it.Info())
	case "queue_stats":
		return fields(it.Stats())
	}
	return nil, errNoVerb
}

func (r *runner) ofTarget(target *copyrpc.Target, verb string) (said, error) {
	switch verb {
	case "target_address":
		return tellAddress(target.Address())
	case "target_close":
		return nil, target.Close()
	}
	return nil, errNoVerb
}
