// tags.go: the verbs of receives with tags (TM-SRQs), and of messages for them.
package main

import (
	"github.com/copyrpc/copyrpc/bindings/go"
)

// tagPool is receives with tags under their name.
type tagPool struct {
	*copyrpc.TaggedReceives
	pool
}

func (r *runner) openTags(l line) (said, error) {
	tagged, err := r.context.OpenTaggedReceives(l.queueOptions(nil))
	if err == nil {
		r.things.Store(l["name"], &tagPool{TaggedReceives: tagged, pool: pool{SharedReceives: tagged.Shared(), name: l["name"]}})
	}
	return nil, err
}

var tagOpcodes = map[string]uint8{
	"post_tag": copyrpc.QueueTagAdd, "remove_tag": copyrpc.QueueTagRemove, "sync_tags": copyrpc.QueueTagSync, "send_tagged": copyrpc.QueueSend,
}

// fillTags completes what postOf has read of a line about tags.
func (p *post) fillTags(verb string, l line) {
	p.op.Opcode = tagOpcodes[verb]
	switch verb {
	case "post_tag":
		p.op.RemoteAddress, p.remoteStep, p.op.Operand = l.big("tag"), l.number("tag_step"), copyrpc.TagMaskAll
		if _, ok := l["mask"]; ok {
			p.op.Operand = l.big("mask")
		}
	case "send_tagged": // each is a header and its payload
		length := p.places[0].length
		p.places[0].length += copyrpc.TagHeaderBytes
		if _, ok := l["step"]; !ok {
			p.step = p.places[0].length
		}
		for i := 0; i < p.count; i++ {
			part := p.parts(i)[0]
			copyrpc.WriteTagHeader(part, l.big("tag")+uint64(i*l.number("tag_step")), uint32(l.number("context")))
			copy(part[copyrpc.TagHeaderBytes:], payload(length, l.number("seed")+i))
		}
	}
}

// tellMessage is what the fields of a message with a tag say; the receive of an unexpected one has its header.
func (p *post) tellMessage(i int, done *copyrpc.Completion) (told said, header int) {
	tag, context := done.Token, done.Matched().Context
	if p.op.Opcode == copyrpc.QueueReceive {
		if !done.Received().Unexpected {
			return said{}, 0
		}
		read, _ := copyrpc.ReadTagHeader(p.parts(i)[0])
		tag, context, header = read.Tag, read.Context, copyrpc.TagHeaderBytes
	}
	return said{"tag": big(tag), "context": context}, header
}

// ---- With goroutines ----

func (r *runner) postTags(it *tagPool, l line) error {
	thing, ok := r.things.Load(l["region"])
	if !ok {
		return errUnknown
	}
	region := thing.(*copyrpc.Region)
	p := postOf(l, region.Bytes())
	p.fillTags("post_tag", l)
	for i := 0; i < p.count; i++ {
		at := p.places[0].offset + i*p.step
		op := p.opAt(i)
		work, err := it.TaggedReceives.PostReceive(region.Slice(at, at+p.places[0].length), op.RemoteAddress, op.Operand)
		if err != nil {
			p.tell(i, statusOf(err), copyrpc.Completion{}, it.name)
			continue
		}
		r.tagWorks.Store(p.id+i, work)
		i := i
		r.begin(func() {
			matched, err := work.Wait(r.ctx)
			if r.ctx.Err() != nil {
				return
			}
			p.tellMatched(i, statusOf(err), matched, r.nameOf(copyrpc.Completion{Endpoint: copyrpc.EndpointHandle(matched.Queue)}, it.name))
		})
	}
	return nil
}

// tellMatched is tell, of what has no Completion.
func (p *post) tellMatched(i int, status any, matched copyrpc.Matched, over string) {
	members := said{"id": p.id + i, "status": status}
	if status == "CRPC_OK" {
		members = members.with(told(p.parts(i)[0][:matched.Bytes]), said{"tag": big(matched.Tag), "context": matched.Context, "queue": over})
	}
	event("matched", members)
}

func (r *runner) removeTag(l line) error {
	thing, ok := r.tagWorks.Load(l.number("of"))
	if !ok {
		event("completed", said{"id": l.number("id"), "status": copyrpc.ErrNotFound.Name()})
		return nil
	}
	r.begin(func() {
		removed, err := thing.(*copyrpc.TagWork).Remove(r.ctx)
		if err == nil && !removed {
			err = &copyrpc.Error{Status: copyrpc.ErrNotFound}
		}
		if r.ctx.Err() == nil {
			event("completed", said{"id": l.number("id"), "status": statusOf(err)})
		}
	})
	return nil
}

func (r *runner) syncTags(it *tagPool, l line) {
	r.begin(func() {
		if err := it.Sync(r.ctx); r.ctx.Err() == nil {
			event("completed", said{"id": l.number("id"), "status": statusOf(err)})
		}
	})
}

func (r *runner) ofTagPool(it *tagPool, verb string, l line) (said, error) {
	switch verb {
	case "post_tag":
		return nil, r.postTags(it, l)
	case "remove_tag":
		return nil, r.removeTag(l)
	case "sync_tags":
		r.syncTags(it, l)
		return nil, nil
	}
	return r.ofPool(&it.pool, verb, l)
}

// ---- In arrays ----

// postTags posts what one of the verbs of tags says.
func (r *raw) postTags(queue *rawThing, verb string, l line) (said, error) {
	var memory []byte
	var region copyrpc.RegionHandle
	if thing := r.named(l["region"]); thing != nil {
		region, memory = copyrpc.RegionHandle(thing.handle), thing.memory
	}
	p := postOf(l, memory)
	p.fillTags(verb, l)
	if verb == "remove_tag" {
		p.op.Operand = r.addedTag(l.number("of"))
	}
	return r.submit(queue, p, region)
}

// addedTag is the user_data of what was posted under this number.
func (r *raw) addedTag(id int) uint64 {
	for number := len(r.posts) - 1; number >= 0; number-- {
		if p := r.posts[number]; p.op.Opcode == copyrpc.QueueTagAdd && id >= p.id && id < p.id+p.count {
			return uint64(number)<<indexBits | uint64(id-p.id)
		}
	}
	return copyrpc.TagMaskAll
}
