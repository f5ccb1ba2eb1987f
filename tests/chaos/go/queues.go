// queues.go: the worker's queues. c/queues.c says what both sides do, and what is told of it.
package main

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const (
	queueRoomsMax = 16
	queueSlots    = 4 // that the peer writes
	queueBuffers  = 8 // for sends, and for receives
	slotBytes     = 8192
	counterBytes  = 64
	areaBytes     = counterBytes + (2*queueSlots+2*queueBuffers)*slotBytes
	greetingBytes = 24
)

// queueRoom is the memory of a queue: a counter and slots, of which the peer is told; and buffers of this side.
type queueRoom struct {
	offset                         int // in the region
	counter                        copyrpc.Buffer
	slots, copies, sends, receives []copyrpc.Buffer
}

func (w *worker) makeQueueRooms(count int) (err error) {
	w.queueRegion, err = w.context.NewRegion(count*areaBytes, copyrpc.LocalWrite|copyrpc.RemoteWrite|copyrpc.RemoteRead|copyrpc.RemoteAtomic)
	if err != nil {
		return err
	}
	info, err := w.queueRegion.Info()
	if err != nil {
		return err
	}
	w.queueMemory = info.Remote()
	for i, memory := 0, w.queueRegion.Bytes(); w.listen != "" && i < len(memory); i += 512 {
		memory[i] = 1 // so that its memory does not grow with the queues that it has seen
	}
	w.queueRooms = make(chan *queueRoom, count)
	for i := 0; i < count; i++ {
		r := &queueRoom{offset: i * areaBytes}
		offset := r.offset
		take := func(size int) copyrpc.Buffer {
			offset += size
			return w.queueRegion.Slice(offset-size, offset)
		}
		r.counter = take(counterBytes)
		for _, buffers := range []struct {
			list  *[]copyrpc.Buffer
			count int
		}{{&r.slots, queueSlots}, {&r.copies, queueSlots}, {&r.sends, queueBuffers}, {&r.receives, queueBuffers}} {
			for k := 0; k < buffers.count; k++ {
				*buffers.list = append(*buffers.list, take(slotBytes))
			}
		}
		w.queueRooms <- r
	}
	return nil
}

// takeQueueRoom gives nil if all are in use.
func (w *worker) takeQueueRoom() *queueRoom {
	select {
	case r := <-w.queueRooms:
		clear(r.counter.Bytes())
		for _, slot := range r.slots {
			clear(slot.Bytes())
		}
		return r
	default:
		return nil
	}
}

func (w *worker) leaveQueueRoom(r *queueRoom) {
	if r != nil {
		w.queueRooms <- r
	}
}

// ---- Connecting ----

func (w *worker) queueOptions(connect uint64, r *queueRoom) copyrpc.QueueOptions {
	greeting := binary.LittleEndian.AppendUint64(nil, connect)
	greeting = binary.LittleEndian.AppendUint64(greeting, w.queueMemory.Address+uint64(r.offset))
	greeting = binary.LittleEndian.AppendUint64(greeting, uint64(w.queueMemory.Key))
	return copyrpc.QueueOptions{Sends: 4 << w.dice(4), Receives: 4 << w.dice(2), Private: greeting}
}

// greeted gives what a peer has told: the id of its connect, and where its memory is.
func greeted(private []byte) (connect uint64, there copyrpc.Remote) {
	if len(private) < greetingBytes {
		return 0, copyrpc.Remote{}
	}
	return binary.LittleEndian.Uint64(private),
		copyrpc.Remote{Address: binary.LittleEndian.Uint64(private[8:]), Key: binary.LittleEndian.Uint32(private[16:])}
}

func (w *worker) dialQueue(connect uint64) {
	room := w.takeQueueRoom()
	if room == nil {
		return
	}
	defer w.leaveQueueRoom(room)
	w.begin(opConnect, connect, 2, 0)
	it, err := w.context.ConnectQueue(w.stopping, w.queues, w.queueOptions(connect, room))
	if w.connected(connect, err, false) {
		info, err := it.Info()
		_, there := greeted(info.Private)
		if err != nil { // it is over already
			there = copyrpc.Remote{}
		}
		w.queueLife(it, room, there, connect, 0, false)
	}
}

func (w *worker) acceptQueues(listener *copyrpc.QueueListener) {
	defer w.lives.Done()
	for {
		request, err := listener.AcceptRequest(w.stopping)
		if err != nil {
			return
		}
		w.leak()
		room := w.takeQueueRoom()
		if w.rejected(room == nil, func(uint32) error { return request.Reject(nil) }) {
			w.leaveQueueRoom(room)
			continue
		}
		w.held.Add(1)
		w.lives.Add(1)
		go func() {
			defer w.lives.Done()
			defer w.held.Add(-1)
			defer w.leaveQueueRoom(room)
			connect := w.newIDs(1)
			w.begin(opConnect, connect, 2, 0)
			peer, there := greeted(request.Info.Private)
			it, err := request.Accept(w.stopping, w.queueOptions(connect, room))
			if w.connected(connect, err, true) {
				w.queueLife(it, room, there, connect, peer, true)
			}
		}()
	}
}

// ---- At work ----

// queueLink is a Queue as a link.
type queueLink struct{ *copyrpc.Queue }

func (q queueLink) Shutdown(ctx context.Context) error { return q.Drain(ctx) }

// queueLane is a queue at work.
type queueLane struct {
	*life
	queue *copyrpc.Queue
	room  *queueRoom
	there copyrpc.Remote
	tasks sync.WaitGroup
}

func (w *worker) queueLife(it *copyrpc.Queue, r *queueRoom, there copyrpc.Remote, connect, peer uint64, accepted bool) {
	l := &queueLane{life: w.live(queueLink{it}, connect, peer, accepted), queue: it, room: r, there: there}
	if there.Address != 0 {
		l.tasks.Add(3 + queueSlots)
		go l.receives()
		go l.sends()
		go l.adds()
		for slot := 0; slot < queueSlots; slot++ {
			go l.accesses(slot)
		}
	}
	l.stay()
	l.tasks.Wait()
	l.tellFound()
}

// tellFound tells what the peer has left, now that it reaches the room no more.
func (l *queueLane) tellFound() {
	if l.mistaken("spoiled") {
		copy(l.room.slots[0].Bytes()[8:], "what nobody has written to it, not even one who does wrong")
	}
	if l.mistaken("miscounted") {
		l.room.counter.Bytes()[1] += 4
	}
	for i, slot := range l.room.slots {
		data, verdict, id := slot.Bytes(), uint64(right), uint64(0)
		if size := binary.LittleEndian.Uint64(data[8:]); size > slotBytes {
			verdict, id = wrongLength, binary.LittleEndian.Uint64(data)
		} else if size != 0 || binary.LittleEndian.Uint64(data) != 0 {
			verdict, id = l.content.check(data[:size])
		}
		l.journal.put(recordFound, int32(i), l.id, id, verdict)
	}
	l.journal.put(recordFound, -1, l.id, binary.LittleEndian.Uint64(l.room.counter.Bytes()), 0)
}

// rest waits for a while, and is whether the queue goes on after that.
func (l *queueLane) rest() bool {
	pause := int(l.pace)
	if l.accepted {
		pause *= 4
	}
	select {
	case <-time.After(time.Duration(l.dice(pause))):
		return true
	case <-l.Done():
		return false
	}
}

func (l *queueLane) someBytes() int {
	most := slotBytes
	if l.chance(3) {
		most = 60
	} else if l.chance(2) {
		most = 1000
	}
	return headerBytes + l.dice(most-headerBytes+1)
}

// receives keeps a receive in each buffer. They complete in the order in which they are posted.
func (l *queueLane) receives() {
	defer l.tasks.Done()
	type posted struct {
		id     uint64
		work   *copyrpc.Work
		buffer copyrpc.Buffer
	}
	var open []posted
	post := func(buffer copyrpc.Buffer) bool {
		id := l.newIDs(1)
		l.begin(opQueueReceive, id, l.id, 0)
		work, err := l.queue.PostReceive(buffer)
		if err != nil { // it is over
			l.refused(id, statusIn(err))
			return false
		}
		open = append(open, posted{id, work, buffer})
		return true
	}
	alive := true
	for _, buffer := range l.room.receives {
		alive = alive && post(buffer)
	}
	for len(open) > 0 {
		first := open[0]
		open = open[1:]
		done, err := first.work.Wait(context.Background())
		verdict, sender := uint64(right), uint64(0)
		if err == nil {
			got := done.Received()
			verdict, sender = l.content.check(first.buffer.Bytes()[:got.Bytes])
			if got.HasImmediate && got.Immediate != uint32(sender) {
				verdict = wrongID
			}
		}
		l.over(first.id, err, verdict, sender)
		alive = alive && err == nil && post(first.buffer)
	}
}

// sends sends messages: their order is that of their ids.
func (l *queueLane) sends() {
	defer l.tasks.Done()
	free := make(chan copyrpc.Buffer, queueBuffers)
	for _, buffer := range l.room.sends {
		free <- buffer
	}
	for l.rest() {
		select {
		case buffer := <-free:
			if !l.send(buffer, free) {
				return
			}
		case <-l.Done():
			return
		}
	}
}

// send sends one message; false if the queue takes no more.
func (l *queueLane) send(buffer copyrpc.Buffer, free chan<- copyrpc.Buffer) bool {
	whole, id := buffer, l.newIDs(1)
	buffer.Length = l.someBytes()
	l.content.fill(buffer.Bytes(), id)
	l.begin(opQueueSend, id, l.id, 0)
	if buffer.Length <= 60 && l.chance(2) { // inline; and it waits for its end
		err := l.queue.SendBytes(context.Background(), buffer.Bytes())
		l.over(id, err, 0, 0)
		free <- whole
		return err == nil
	}
	op := copyrpc.QueueOp{Opcode: copyrpc.QueueSend}
	if l.chance(3) {
		op.Opcode, op.Immediate = copyrpc.QueueSendImmediate, uint32(id)
	}
	work, err := l.queue.Post(op, buffer)
	if err != nil { // it is over, or leaves
		l.refused(id, statusIn(err))
		return false
	}
	l.tasks.Add(1)
	go func() {
		defer l.tasks.Done()
		_, err := work.Wait(context.Background())
		l.over(id, err, 0, 0)
		free <- whole
	}()
	return true
}

// accesses writes one slot of the peer, and reads it again.
func (l *queueLane) accesses(slot int) {
	defer l.tasks.Done()
	there := l.there.At(counterBytes + slot*slotBytes)
	buffer, last := l.room.copies[slot], uint64(0)
	for l.rest() {
		id, verdict := l.newIDs(1), uint64(right)
		var err error
		if last != 0 && l.chance(2) {
			clear(buffer.Bytes())
			l.begin(opRead, id, l.id, uint64(slot))
			err = l.queue.Read(context.Background(), buffer, there)
			if err == nil {
				var found uint64
				if verdict, found = l.content.check(buffer.Bytes()); verdict == right && found != last {
					verdict = wrongID
				}
			}
		} else {
			buffer.Length = l.someBytes()
			l.content.fill(buffer.Bytes(), id)
			l.begin(opWrite, id, l.id, uint64(slot))
			if buffer.Length <= 60 && l.chance(2) {
				err = l.queue.WriteBytes(context.Background(), buffer.Bytes(), there)
			} else {
				err = l.queue.Write(context.Background(), buffer, there)
			}
			last = id
		}
		l.over(id, err, verdict, 0)
		if err != nil {
			return
		}
	}
}

// adds adds 1 to the peer's counter, which nobody else does.
func (l *queueLane) adds() {
	defer l.tasks.Done()
	for count := uint64(0); l.rest(); count++ {
		id, verdict := l.newIDs(1), uint64(right)
		l.begin(opAdd, id, l.id, 0)
		before, err := l.queue.FetchAdd(context.Background(), l.there, 1)
		if err == nil && before != count {
			verdict = wrongBytes
		}
		l.over(id, err, verdict, 0)
		if err != nil {
			return
		}
	}
}
