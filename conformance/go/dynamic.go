// dynamic.go: the verbs of DCIs and DCTs.
package main

import (
	"github.com/copyrpc/copyrpc/bindings/go"
)

// initiator is a DCI under its name.
type initiator struct {
	*copyrpc.DCI
	tie
}

// PostReceive is what it has not: a line with that verb is refused.
func (*initiator) PostReceive(copyrpc.Buffer) (*copyrpc.Work, error) {
	return nil, &copyrpc.Error{Status: copyrpc.ErrUnsupported}
}

// dynamicTarget is a DCT under its name.
type dynamicTarget struct {
	*copyrpc.DCT
	tie
}

func (r *runner) openDynamic(verb string, l line) (said, error) {
	if verb == "dct_open" {
		dct, err := r.context.OpenDCT(r.queueOf(l))
		if err == nil {
			it := &dynamicTarget{DCT: dct, tie: tie{name: l["name"]}}
			r.live(it.name, it, &it.tie, dct)
		}
		return nil, err
	}
	dci, err := r.context.OpenDCI(r.queueOf(l))
	if err == nil {
		it := &initiator{DCI: dci, tie: tie{name: l["name"]}}
		r.live(it.name, it, &it.tie, dci)
	}
	return nil, err
}

// live names a queue without a peer, and tells of its end.
func (r *runner) live(name string, it any, tie *tie, queue interface {
	Handle() copyrpc.QueueHandle
	Done() <-chan struct{}
	Err() error
}) {
	r.things.Store(name, it)
	r.queueNames.Store(queue.Handle(), name)
	r.begin(func() {
		select {
		case <-queue.Done():
			r.over(tie, queue.Err())
		case <-r.ctx.Done():
		}
	})
}

// postInline sends what is inline, one after the other.
func (r *runner) postInline(it *initiator, l line) {
	p := postOf(l, nil)
	thing, _ := r.things.Load(l["target"])
	target, _ := thing.(*copyrpc.Target)
	to := copyrpc.Destination{Target: target, Stream: l.number("stream")}
	for i := 0; i < p.count && r.ctx.Err() == nil; i++ {
		data, op := p.parts(i)[0], p.opAt(i)
		var err error
		if op.Opcode == copyrpc.QueueWrite {
			err = it.WriteBytes(r.ctx, data, copyrpc.Remote{Address: op.RemoteAddress, Key: op.RemoteKey}, to)
		} else {
			err = it.SendBytes(r.ctx, data, to)
		}
		if r.ctx.Err() == nil {
			p.tell(i, statusOf(err), copyrpc.Completion{}, "")
		}
	}
}

func (r *runner) ofInitiator(it *initiator, verb string, l line) (said, error) {
	switch verb {
	case "post", "post_receive":
		if l.number("inline") != 0 {
			r.begin(func() { r.postInline(it, l) })
			return nil, nil
		}
		return nil, r.post(it, it.name, l)
	case "dc_target_open":
		target, err := it.OpenTarget(l.queueAddress(), copyrpc.TargetOptions{AccessKey: l.big("access_key")})
		if err == nil {
			r.things.Store(l["name"], target)
		}
		return nil, err
	case "stream_reset":
		return nil, it.ResetStream(l.number("stream"))
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

func ofDynamicTarget(it *dynamicTarget, verb string) (said, error) {
	switch verb {
	case "queue_address":
		return tellAddress(it.Address())
	case "queue_close":
		return nil, it.Close()
	case "queue_info":
		return fields(it.Info())
	}
	return nil, errNoVerb
}

// makeDynamic is what the verbs do, at the raw level, that make something.
func (r *raw) makeDynamic(thing *rawThing, number uint64, verb string, l line, options copyrpc.QueueOptions) (said, error) {
	switch verb {
	case "dci_open":
		queue, err := r.context.OpenDCI(number, options)
		thing.handle = uint64(queue)
		return nil, err
	case "dct_open":
		queue, err := r.context.OpenDCT(number, options)
		thing.handle = uint64(queue)
		return nil, err
	case "dc_target_open":
		target, err := r.context.OpenTarget(l.queueAddress(), copyrpc.TargetOptions{ForDCI: true, AccessKey: l.big("access_key")})
		thing.handle = uint64(target)
		return nil, err
	}
	return nil, errNoVerb
}
