// queues_raw.go: the verbs of queues in a context that is opened with `arrays`: the raw level, where ops are posted in arrays, none waits
// for room, and completions come in their order.
package main

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"syscall"
	"unsafe"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const indexBits = 20 // of user_data: the index of an op in its line; above it, which line

// ---- Events ----

func (r *raw) takeOfQueue(done *copyrpc.Completion) {
	queue := r.things[done.EndpointUserData]
	status := copyrpc.Status(done.Status).Name()
	switch done.Kind {
	case copyrpc.CompletionWork:
		post, index := r.posts[done.UserData>>indexBits], int(done.UserData&(1<<indexBits-1))
		if post.op.Opcode == copyrpc.QueueReceive && sentFrom(done) != 0 {
			r.letter, r.letterHeader = *done, post.parts(index)[0]
		}
		post.tell(index, status, *done, queue.name)
	case copyrpc.CompletionConnectRequest:
		request, _ := r.add("")
		request.handle = uint64(done.Endpoint)
		info, _ := r.context.QueueInfo(done.Queue())
		event("connect_request", said{"listener": r.things[done.UserData].name, "connection": request.name, "private": words(info.Private)})
	case copyrpc.CompletionConnected:
		event("connected", said{"endpoint": queue.name, "status": status})
	case copyrpc.CompletionDisconnected:
		event("disconnected", said{"endpoint": queue.name, "status": status})
	case copyrpc.CompletionRoom:
		event("room", said{"endpoint": queue.name})
	case copyrpc.CompletionSRQLimit:
		tellLow(queue.name)
	}
}

// ---- Ops ----

func (r *raw) post(queue *rawThing, l line) (said, error) {
	var region copyrpc.RegionHandle
	var memory []byte
	if thing := r.named(l["region"]); thing != nil {
		region, memory = copyrpc.RegionHandle(thing.handle), thing.memory
	}
	p := postOf(l, memory)
	if target := r.named(l["target"]); target != nil {
		p.op.Target = copyrpc.TargetHandle(target.handle)
	}
	if p.inline { // C's, until it was copied
		mapped, err := syscall.Mmap(-1, 0, max(len(p.memory), 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return nil, err
		}
		defer syscall.Munmap(mapped)
		copy(mapped, p.memory)
		p.memory = mapped
	}
	return r.submit(queue, p, region)
}

// submit submits what there is room for.
func (r *raw) submit(queue *rawThing, p *post, region copyrpc.RegionHandle) (said, error) {
	r.posts = append(r.posts, p)
	accepted, status := 0, copyrpc.OK
	for status == copyrpc.OK && accepted < p.count {
		count := r.fill(p, accepted, region)
		var taken int
		taken, status = r.context.SubmitQueue(copyrpc.QueueHandle(queue.handle), count)
		accepted += taken
	}
	p.count = accepted
	told := said{"accepted": accepted}
	if accepted > 0 || status == copyrpc.OK || status == copyrpc.ErrAgain {
		return told, nil
	}
	return told, &copyrpc.Error{Status: status}
}

// fill writes ops from the first on, as many as there is room for in the array.
func (r *raw) fill(p *post, first int, region copyrpc.RegionHandle) int {
	count, pieces := 0, 0
	for ; first+count < p.count && count < rawOps && pieces+len(p.places) <= len(r.context.Pieces); count++ {
		i := first + count
		parts := p.parts(i)
		op := p.opAt(i)
		if p.pieces {
			op = p.inPieces(i, pieces)
			for _, part := range parts {
				r.context.Pieces[pieces] = copyrpc.Piece{Region: region, Address: addressOf(part), Bytes: uint32(len(part))}
				pieces++
			}
		} else if len(parts[0]) > 0 {
			op.Region, op.Address, op.Bytes = region, addressOf(parts[0]), uint32(len(parts[0]))
		}
		if p.inline {
			op.Flags |= copyrpc.QueueInline
		}
		op.UserData = uint64(len(r.posts)-1)<<indexBits | uint64(i)
		r.context.QueueOps[count] = op
	}
	return count
}

func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}

// ---- Verbs ----

// obeyQueues is what the verbs do that are not those of calls.
func (r *raw) obeyQueues(it *rawThing, verb string, l line) (said, error) {
	if it != nil && !strings.HasPrefix(verb, "queue_accept") && verb != "target_open" && verb != "dc_target_open" {
		return r.of(it, verb, l)
	}
	return r.make(it, verb, l)
}

// make is what the verbs do that make something.
func (r *raw) make(request *rawThing, verb string, l line) (said, error) {
	if verb == "context" {
		info, err := r.context.Info()
		return ofInfo(info), err
	}
	options := l.queueOptions(nil)
	if shared := r.named(l["shared"]); shared != nil {
		options.ReceiveQueue = copyrpc.QueueHandle(shared.handle)
	}
	thing, number := r.add(l["name"])
	switch verb {
	case "listen":
		listener, err := r.context.ListenQueues(l["address"], number)
		if err != nil {
			return nil, err
		}
		thing.handle = uint64(listener)
		return r.of(thing, "listener", l)
	case "register":
		return nil, r.register(thing, l)
	case "queue_connect":
		queue, err := r.context.ConnectQueue(l["address"], number, options)
		thing.handle = uint64(queue)
		return nil, thing.failed(err)
	case "queue_accept":
		thing.handle = request.handle
		return nil, thing.failed(r.context.AcceptQueue(copyrpc.QueueHandle(request.handle), number, options))
	case "queue_blob":
		queue, blob, err := r.context.QueueBlob(number, options)
		thing.handle = uint64(queue)
		return said{"blob": hex.EncodeToString(blob)}, err
	case "queue_open":
		queue, err := r.context.OpenSharedReceives(number, options)
		thing.handle = uint64(queue)
		return nil, err
	case "datagrams_open":
		queue, err := r.context.OpenDatagrams(number, options)
		thing.handle = uint64(queue)
		return nil, err
	case "tags_open":
		queue, err := r.context.OpenTaggedReceives(number, options)
		thing.handle = uint64(queue)
		return nil, err
	case "target_open":
		target, err := r.context.OpenTarget(l.queueAddress(), copyrpc.TargetOptions{QueueKey: uint32(l.number("queue_key"))})
		thing.handle = uint64(target)
		return nil, err
	case "target_of":
		target, err := r.context.TargetOf(&r.letter, r.letterHeader)
		thing.handle = uint64(target)
		return nil, err
	}
	return r.makeDynamic(thing, number, verb, l, options)
}

func (r *raw) register(thing *rawThing, l line) (err error) {
	thing.memory, err = syscall.Mmap(-1, 0, max(l.number("length"), 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return err
	}
	region, err := r.context.Register(unsafe.Pointer(unsafe.SliceData(thing.memory)), l.number("length"), copyrpc.Access(l.number("access")))
	thing.handle = uint64(region)
	return err
}

// of is what the verbs do that are about something.
func (r *raw) of(it *rawThing, verb string, l line) (said, error) {
	queue := copyrpc.QueueHandle(it.handle)
	switch verb {
	case "post", "post_receive":
		return r.post(it, l)
	case "post_tag", "remove_tag", "sync_tags", "send_tagged":
		return r.postTags(it, verb, l)
	case "memory":
		return look(it.memory, l)
	case "region":
		return regionFields(r.context.RegionInfo(copyrpc.RegionHandle(it.handle)))
	case "deregister":
		return nil, r.context.Deregister(copyrpc.RegionHandle(it.handle))
	case "listener":
		info, err := r.context.ListenerInfo(copyrpc.ListenerHandle(it.handle))
		return said{"address": info.Address, "requests": info.Requests, "refused": info.Refused}, err
	case "close_listener":
		return nil, r.context.CloseListener(copyrpc.ListenerHandle(it.handle))
	case "queue_join":
		return nil, it.failed(r.context.JoinQueue(queue, l.blob()))
	case "queue_reject":
		return nil, r.context.RejectQueue(queue, []byte(l["private"]))
	case "queue_address":
		return tellAddress(r.context.QueueAddress(queue))
	case "queue_join_address":
		return nil, it.failed(r.context.JoinQueueAddress(queue, l.queueAddress()))
	case "target_address":
		return tellAddress(r.context.TargetAddress(copyrpc.TargetHandle(it.handle)))
	case "target_close":
		return nil, r.context.CloseTarget(copyrpc.TargetHandle(it.handle))
	case "queue_modify", "run_low":
		return nil, r.context.ModifyQueue(queue, l.changes()...)
	case "error":
		return tellError(r.context.QueueError(queue))
	case "queue_fail":
		return nil, r.context.FailQueue(queue)
	case "queue_drain":
		limit := l.milliseconds("timeout_ms")
		if limit == 0 {
			limit = copyrpc.Forever
		}
		return nil, r.context.DrainQueue(queue, limit)
	case "queue_close":
		return nil, r.context.CloseQueue(queue)
	case "stream_reset":
		return nil, r.context.ResetStream(queue, l.number("stream"))
	case "queue_info":
		info, err := r.context.QueueInfo(queue)
		told, _ := fields(info, err)
		return told.with(said{"private": words(info.Private)}), err
	case "queue_stats":
		return fields(r.context.QueueStats(queue))
	}
	return nil, errNoVerb
}

func tellAddress(address copyrpc.QueueAddress, err error) (said, error) {
	if err != nil {
		return nil, err
	}
	link := map[bool]int{true: 1, false: 2}[address.InfiniBand]
	gid := address.GID.As16()
	return said{"queue_pair_number": address.QueuePairNumber, "packet_sequence_number": address.PacketSequenceNumber, "link": link,
		"mtu_bytes": address.MTUBytes, "lid": address.LID, "gid": hex.EncodeToString(gid[:])}, nil
}

func (l line) queueAddress() copyrpc.QueueAddress {
	gid, _ := hex.DecodeString(l["gid"])
	return copyrpc.QueueAddress{
		QueuePairNumber: uint32(l.number("queue_pair_number")), PacketSequenceNumber: uint32(l.number("packet_sequence_number")),
		InfiniBand: l.number("link") == 1, MTUBytes: l.number("mtu_bytes"), LID: uint32(l.number("lid")),
		GID: netip.AddrFrom16([16]byte(append(gid, make([]byte, 16)...)[:16])),
	}
}
