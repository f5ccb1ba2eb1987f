// queues.go: the verbs of queues, and what comes of them.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"sync"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// pair is a queue under its name.
type pair struct {
	*copyrpc.Queue
	tie
}

// pool is the receives that queues share, under their name.
type pool struct {
	*copyrpc.SharedReceives
	name string
}

// ---- Connecting ----

func (l line) queueOptions(shared *copyrpc.SharedReceives) copyrpc.QueueOptions {
	return copyrpc.QueueOptions{
		Sends: l.number("sends"), SendPieces: l.number("send_pieces"), InlineBytes: l.number("inline_bytes"),
		Receives: l.number("receives"), ReceivePieces: l.number("receive_pieces"), Shared: shared,
		ConnectTimeout: l.milliseconds("connect_timeout_ms"), RetryTimeout: l.number("retry_timeout"), RetryCount: l.number("retry_count"),
		NotReadyRetryCount: l.number("not_ready_retry_count"), ReadsMax: l.number("reads_max"), Private: []byte(l["private"]),
		Sparse: l.number("sparse") != 0, QueueKey: uint32(l.number("queue_key")), Streams: l.number("streams"),
		StreamFailuresMax: l.number("stream_failures_max"), Tags: l.number("tags"), AccessKey: l.big("access_key"),
	}
}

// queueOf is queueOptions with the receives that the line names.
func (r *runner) queueOf(l line) copyrpc.QueueOptions {
	if thing, ok := r.things.Load(l["shared"]); ok {
		if tagged, ok := thing.(*tagPool); ok {
			return l.queueOptions(tagged.Shared())
		}
		return l.queueOptions(thing.(*pool).SharedReceives)
	}
	return l.queueOptions(nil)
}

// queueing is the life of a queue.
func (r *runner) queueing(name string, connect func() (*copyrpc.Queue, error)) (said, error) {
	r.begin(func() {
		queue, err := connect()
		it := &pair{Queue: queue, tie: tie{name: name}}
		if err == nil {
			r.queueNames.Store(queue.Handle(), name)
		}
		if !r.connected(name, it, err) {
			return
		}
		select {
		case <-queue.Done():
			r.over(&it.tie, queue.Err())
		case <-r.ctx.Done():
		}
	})
	return nil, nil
}

func (r *runner) makeQueue(verb string, l line) (said, error) {
	options := r.queueOf(l)
	switch verb {
	case "queue_connect":
		return r.queueing(l["name"], func() (*copyrpc.Queue, error) { return r.context.ConnectQueue(r.ctx, l["address"], options) })
	case "queue_blob":
		blob, err := r.context.NewQueueBlob(options)
		if err != nil {
			return nil, err
		}
		r.things.Store(l["name"], blob)
		r.queueBlobs[l["name"]] = blob
		return said{"blob": hex.EncodeToString(blob.Bytes)}, nil
	case "queue_open":
		shared, err := r.context.OpenSharedReceives(options)
		if err == nil {
			r.things.Store(l["name"], &pool{SharedReceives: shared, name: l["name"]})
		}
		return nil, err
	}
	return nil, errNoVerb
}

// ---- Ops ----

var opcodes = map[string]uint8{
	"send": copyrpc.QueueSend, "send_immediate": copyrpc.QueueSendImmediate, "send_invalidate": copyrpc.QueueSendInvalidate,
	"write": copyrpc.QueueWrite, "write_immediate": copyrpc.QueueWriteImmediate, "read": copyrpc.QueueRead,
	"compare_swap": copyrpc.QueueCompareSwap, "fetch_add": copyrpc.QueueFetchAdd, "nop": copyrpc.QueueNop, "": copyrpc.QueueReceive,
}

// place is a part of a region.
type place struct{ offset, length int }

// post is the ops of a line.
type post struct {
	id, count, step, remoteStep int
	op                          copyrpc.QueueOp // the first, without its memory
	places                      []place         // of the first
	pieces, inline, summary     bool
	memory                      []byte // of the region; of what is inline, its own

	ended    int
	status   any // of a summary: the first that is not CRPC_OK
	bytes    int // of a summary, with what was received
	checksum uint32
}

func (l line) big(key string) uint64 {
	number, _ := strconv.ParseUint(l[key], 10, 64)
	return number
}

// postOf reads the line, and writes what is to be sent to the memory of its region, or to memory for what is inline.
func postOf(l line, memory []byte) *post {
	p := &post{id: l.number("id"), count: max(l.number("count"), 1), summary: l.number("summary") != 0, inline: l.number("inline") != 0,
		status: "CRPC_OK", memory: memory}
	p.op = copyrpc.QueueOp{Opcode: opcodes[l["opcode"]], Immediate: uint32(l.number("immediate")), RemoteKey: uint32(l.big("remote_key")),
		RemoteAddress: l.big("remote"), Operand: l.big("operand"), Address: l.big("compare"), Stream: uint16(l.number("stream"))}
	if _, ok := l["invalidate"]; ok {
		p.op.Immediate = uint32(l.big("invalidate"))
	}
	for flag, word := range map[uint8]string{copyrpc.QueueFence: "fence", copyrpc.QueueSolicited: "solicited", copyrpc.QueueSignal: "signal"} {
		if l.number(word) != 0 {
			p.op.Flags |= flag
		}
	}
	if _, p.pieces = l["lengths"]; p.pieces {
		offsets := append(l.numbers("offsets"), make([]int, copyrpc.QueuePiecesMax)...)
		for i, length := range l.numbers("lengths") {
			p.places = append(p.places, place{offsets[i], length})
		}
	} else {
		p.places = []place{{l.number("offset"), l.number("length")}}
		p.step = p.places[0].length
	}
	if _, ok := l["step"]; ok {
		p.step = l.number("step")
	}
	if _, atomic := l["operand"]; !atomic && p.op.RemoteAddress != 0 {
		p.remoteStep = p.step
	}
	if _, ok := l["remote_step"]; ok {
		p.remoteStep = l.number("remote_step")
	}
	if p.inline {
		p.memory = make([]byte, p.count*p.places[0].length)
	}
	if _, ok := l["seed"]; ok {
		for i := 0; i < p.count; i++ {
			data := payload(p.length(), l.number("seed")+i)
			for _, part := range p.parts(i) {
				data = data[copy(part, data):]
			}
		}
	}
	return p
}

func (p *post) length() (sum int) {
	for _, place := range p.places {
		sum += place.length
	}
	return sum
}

// parts are the memory of op i.
func (p *post) parts(i int) (parts [][]byte) {
	for _, place := range p.places {
		at := place.offset + i*p.step
		parts = append(parts, p.memory[at:at+place.length])
	}
	return parts
}

// opAt is op i, without its memory.
func (p *post) opAt(i int) copyrpc.QueueOp {
	op := p.op
	op.RemoteAddress += uint64(i * p.remoteStep)
	if op.Opcode == copyrpc.QueueSendImmediate || op.Opcode == copyrpc.QueueWriteImmediate {
		op.Immediate += uint32(i)
	}
	return op
}

// inPieces is op i, whose pieces begin at this index.
func (p *post) inPieces(i, first int) copyrpc.QueueOp {
	op := p.opAt(i)
	op.Flags |= copyrpc.QueuePieces
	op.Address, op.Bytes = uint64(first), uint32(len(p.places))
	return op
}

var summing sync.Mutex // of all summaries

// tell tells the end of op i. What was posted one by one calls this from several goroutines.
func (p *post) tell(i int, status any, done copyrpc.Completion, over string) {
	receives, matches := p.op.Opcode == copyrpc.QueueReceive, p.op.Opcode == copyrpc.QueueTagAdd
	kind := "completed"
	if receives {
		kind = "taken"
	} else if matches {
		kind = "matched"
	}
	var data []byte
	members, source := said{}, sentFrom(&done)
	if status == "CRPC_OK" && (receives || matches || p.op.Opcode == copyrpc.QueueRead) {
		for _, part := range p.parts(i) {
			data = append(data, part...)
		}
		if receives || matches {
			tagged, header := p.tellMessage(i, &done)
			members, data = tagged, data[header:done.PayloadBytes]
		}
		if receives && source != 0 {
			data = data[copyrpc.QueueHeaderBytes:]
		}
		members = members.with(told(data))
	}
	summing.Lock()
	p.ended++
	p.bytes += len(data)
	p.checksum = crc32.Update(p.checksum, crc32.IEEETable, data)
	if p.status == "CRPC_OK" {
		p.status = status
	}
	last := p.ended == p.count
	summing.Unlock()
	switch {
	case p.summary && last:
		event(kind, said{"id": p.id, "status": p.status, "ended": p.ended, "length": p.bytes, "checksum": p.checksum})
		return
	case p.summary:
		return
	case status == "CRPC_OK" && (p.op.Opcode == copyrpc.QueueCompareSwap || p.op.Opcode == copyrpc.QueueFetchAdd):
		members["before"] = big(done.Token)
	case status == "CRPC_OK" && matches:
		members["queue"] = over
	case status == "CRPC_OK" && receives:
		received := done.Received()
		if received.HasImmediate {
			members["immediate"] = received.Immediate
		} else if received.HasInvalidated {
			members["invalidated"] = received.Invalidated
		}
		members["written"], members["queue"] = received.Written, over
		if source != 0 {
			members["source"] = source
		}
	}
	event(kind, members.with(said{"id": p.id + i, "status": status, "opcode": done.Method}))
}

// poster is a queue, or receives that queues share.
type poster interface {
	PostReceive(copyrpc.Buffer) (*copyrpc.Work, error)
}

// sender is a queue that sends, with a peer or to targets.
type sender interface {
	Post(copyrpc.QueueOp, copyrpc.Buffer) (*copyrpc.Work, error)
}

// batcher is a queue that sends, with pieces.
type batcher interface {
	BatchWithPieces(count, pieces int) (*copyrpc.QueueBatch, error)
}

func (r *runner) post(it poster, name string, l line) error {
	var region *copyrpc.Region
	var memory []byte
	if thing, ok := r.things.Load(l["region"]); ok {
		region = thing.(*copyrpc.Region)
		memory = region.Bytes()
	}
	p := postOf(l, memory)
	p.op.Target = r.targetHandle(l)
	if _, ok := l["tag"]; ok {
		p.fillTags("send_tagged", l)
	}
	queue, _ := it.(*copyrpc.Queue)
	sends, _ := it.(sender)
	batches, _ := it.(batcher)
	switch {
	case p.inline:
		r.begin(func() { r.postBytes(queue, p) })
		return nil
	case p.pieces:
		return r.batch(batches, p, region, name)
	}
	for i := 0; i < p.count; i++ {
		var buffer copyrpc.Buffer
		if region != nil {
			at := p.places[0].offset + i*p.step
			buffer = region.Slice(at, at+p.places[0].length)
		}
		var work *copyrpc.Work
		var err error
		if p.op.Opcode != copyrpc.QueueReceive {
			work, err = sends.Post(p.opAt(i), buffer)
		} else {
			work, err = it.PostReceive(buffer)
		}
		if err != nil {
			p.tell(i, statusOf(err), copyrpc.Completion{}, name)
			continue
		}
		i := i
		r.begin(func() {
			if done, err := work.Wait(r.ctx); r.ctx.Err() == nil {
				r.letter.took(done, buffer, r.nameOf(done, name))
				p.tell(i, statusOf(err), done, r.nameOf(done, name))
			}
		})
	}
	return nil
}

// nameOf is the name of the queue over which a message came.
func (r *runner) nameOf(done copyrpc.Completion, otherwise string) string {
	if name, ok := r.queueNames.Load(done.Queue()); ok {
		return name.(string)
	}
	return otherwise
}

// postBytes sends what is inline, one after the other.
func (r *runner) postBytes(queue *copyrpc.Queue, p *post) {
	for i := 0; i < p.count && r.ctx.Err() == nil; i++ {
		data, op := p.parts(i)[0], p.opAt(i)
		var err error
		if op.Opcode == copyrpc.QueueWrite {
			err = queue.WriteBytes(r.ctx, data, copyrpc.Remote{Address: op.RemoteAddress, Key: op.RemoteKey})
		} else {
			err = queue.SendBytes(r.ctx, data)
		}
		if r.ctx.Err() == nil {
			p.tell(i, statusOf(err), copyrpc.Completion{}, "")
		}
	}
}

// batch posts ops in pieces, of which single ones have no form.
func (r *runner) batch(queue batcher, p *post, region *copyrpc.Region, name string) error {
	batch, err := queue.BatchWithPieces(p.count, p.count*len(p.places))
	if err != nil {
		return err
	}
	for i := range batch.Ops() {
		batch.Ops()[i] = p.inPieces(i, i*len(p.places))
		for j, place := range p.places {
			at := place.offset + i*p.step
			if err := batch.Pieces()[i*len(p.places)+j].SetBuffer(region.Slice(at, at+place.length)); err != nil {
				return err
			}
		}
	}
	if err := batch.Submit(p.count); err != nil {
		return err
	}
	r.begin(func() {
		defer batch.Close()
		completions, err := batch.Wait(r.ctx)
		if r.ctx.Err() != nil {
			return
		}
		for i := 0; i < p.count; i++ {
			if completions == nil { // the queue was closed
				p.tell(i, statusOf(err), copyrpc.Completion{}, name)
				continue
			}
			status := copyrpc.Status(completions[i].Status)
			p.tell(i, status.Name(), completions[i], r.nameOf(completions[i], name))
		}
	})
	return nil
}

// ---- Verbs ----

func (r *runner) ofQueue(it *pair, verb string, l line) (said, error) {
	switch verb {
	case "post", "post_receive", "send_tagged":
		return nil, r.post(it.Queue, it.name, l)
	case "queue_modify":
		return nil, it.Modify(l.changes()...)
	case "queue_fail":
		return nil, it.Fail()
	case "error":
		return tellError(it.Err())
	case "queue_drain":
		r.leave(&it.tie, it.Drain, l)
		return nil, nil
	case "queue_close":
		return nil, it.Close()
	case "queue_info":
		info, err := it.Info()
		told, _ := fields(info, err)
		return told.with(said{"private": words(info.Private)}), err
	case "queue_stats":
		return fields(it.Stats())
	}
	return nil, errNoVerb
}

func (r *runner) ofPool(it *pool, verb string, l line) (said, error) {
	switch verb {
	case "post_receive":
		return nil, r.post(it.SharedReceives, it.name, l)
	case "run_low":
		return nil, r.low(it, l.number("limit"))
	case "queue_close":
		return nil, it.Close()
	case "queue_info":
		return fields(it.Info())
	case "queue_stats":
		return fields(it.Stats())
	}
	return nil, errNoVerb
}

// words are private data, as far as they are text: the network may have added zeros.
func words(data []byte) string {
	for i, b := range data {
		if b == 0 {
			return string(data[:i])
		}
	}
	return string(data)
}

// look reads and writes memory, without the device.
func look(memory []byte, l line) (said, error) {
	length := 8
	if _, ok := l["length"]; ok {
		length = l.number("length")
	}
	part := memory[l.number("offset") : l.number("offset")+length]
	if _, ok := l["seed"]; ok {
		copy(part, payload(length, l.number("seed")))
	} else if _, ok := l["value"]; ok {
		binary.LittleEndian.PutUint64(part, l.big("value"))
	}
	value := make([]byte, 8)
	copy(value, memory[l.number("offset"):])
	return told(part).with(said{"value": big(binary.LittleEndian.Uint64(value))}), nil
}
