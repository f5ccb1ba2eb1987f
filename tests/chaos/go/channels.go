// channels.go: the worker's messages over channels. c/channels.c says what is sent and received.
package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const (
	roomsMax  = 16 // channels that a server may have
	tags      = 3
	openOfTag = 4
	depth     = tags * openOfTag
	small     = 16384
	roomBytes = 2 * openOfTag * (messageBytesMax + (tags-1)*small)
)

// room is the memory of a channel, which stays in use until its last op has ended.
type room struct {
	sends, receives [depth]copyrpc.Buffer
}

func bytesOf(slot int) int {
	if slot%tags == 0 {
		return messageBytesMax
	}
	return small
}

func (w *worker) makeRooms(count int) (err error) {
	w.region, err = w.context.NewRegion(count*roomBytes, copyrpc.LocalWrite|copyrpc.RemoteWrite)
	if err != nil {
		return err
	}
	if memory := w.region.Bytes(); w.listen != "" { // so that its memory does not grow with the channels that it has seen
		for i := 0; i < len(memory); i += 512 {
			memory[i] = 1
		}
	}
	w.rooms = make(chan *room, count)
	offset := 0
	for i := 0; i < count; i++ {
		r := &room{}
		for slot := 0; slot < depth; slot++ {
			for _, buffer := range []*copyrpc.Buffer{&r.sends[slot], &r.receives[slot]} {
				*buffer = w.region.Slice(offset, offset+bytesOf(slot)).Tagged(uint32(slot % tags))
				offset += bytesOf(slot)
			}
		}
		w.rooms <- r
	}
	return nil
}

// takeRoom gives nil if all are in use.
func (w *worker) takeRoom() *room {
	select {
	case r := <-w.rooms:
		return r
	default:
		return nil
	}
}

func (w *worker) leaveRoom(r *room) {
	if r != nil && !w.mistaken("slot") {
		w.rooms <- r
	}
}

// lane is a channel at work.
type lane struct {
	*life
	channel *copyrpc.Channel
	room    *room
	shut    atomic.Bool // the peer leaves: no receive is accepted any more
	tasks   sync.WaitGroup
}

func (w *worker) channelLife(it *copyrpc.Channel, r *room, connect, peer uint64, accepted bool) {
	l := &lane{life: w.live(it, connect, peer, accepted), channel: it, room: r}
	l.tasks.Add(1 + tags)
	go l.receives()
	for tag := 0; tag < tags; tag++ {
		go l.sends(tag)
	}
	l.stay()
	l.tasks.Wait()
}

// ---- Receives ----

// receives posts receives while there are free buffers: into one, or into several as a group.
func (l *lane) receives() {
	defer l.tasks.Done()
	back := make(chan int, depth)
	var free []int
	for slot := 0; slot < depth; slot++ {
		free = append(free, slot)
	}
	// The binding does not tell messages' numbers. Here all are posted in order, and they count from 0.
	for number := uint64(0); !l.shut.Load(); number++ {
		for len(free) == 0 || len(back) > 0 {
			select {
			case slot := <-back:
				free = append(free, slot)
			case <-l.Done():
				return
			}
		}
		count := 1
		if !l.chance(2) {
			count = min(2+l.dice(copyrpc.GroupMax-1), len(free))
		}
		slots := make([]int, count)
		for i := range slots {
			at := l.dice(len(free))
			slots[i] = free[at]
			free = append(free[:at], free[at+1:]...)
		}
		if !l.receive(number, slots, back) {
			return
		}
	}
}

func (l *lane) receive(number uint64, slots []int, back chan<- int) bool {
	first, buffers := l.newIDs(len(slots)), make([]copyrpc.Buffer, len(slots))
	for i, slot := range slots {
		buffers[i] = l.room.receives[slot]
		l.begin(opReceive, first+uint64(i), l.id, uint64(slot%tags)|uint64(i)<<8|uint64(len(slots))<<16)
	}
	transfer, err := l.channel.PostReceive(buffers...)
	if err != nil { // it is over, or leaves
		for i := range slots {
			l.refused(first+uint64(i), statusIn(err))
		}
		return false
	}
	l.tasks.Add(1)
	go func() {
		defer l.tasks.Done()
		err := transfer.Wait(context.Background())
		if statusIn(err) == copyrpc.ErrClosing {
			l.shut.Store(true)
		}
		for i, slot := range slots {
			verdict, sender := uint64(right), uint64(0)
			if err == nil {
				verdict, sender = l.content.check(buffers[i].Bytes()[:transfer.Sizes()[i]])
				sender = l.misordered(sender)
			}
			l.over(first+uint64(i), err, number<<8|verdict, sender)
			back <- slot
		}
	}()
	return true
}

var (
	keptMutex sync.Mutex
	kept      uint64 // for a mistake: the message before this
)

// misordered takes the message before for this one, if it is told to.
func (l *lane) misordered(sender uint64) uint64 {
	keptMutex.Lock()
	defer keptMutex.Unlock()
	if kept != 0 && l.mistaken("order") {
		kept, sender = sender, kept
	} else {
		kept = sender
	}
	return sender
}

// ---- Sends ----

// sends sends messages of one tag: their order is that of their ids.
func (l *lane) sends(tag int) {
	defer l.tasks.Done()
	free := make(chan int, openOfTag)
	for slot := tag; slot < depth; slot += tags {
		free <- slot
	}
	pause := int(l.pace)
	if l.accepted {
		pause *= 4
	}
	for {
		select {
		case slot := <-free:
			if !l.send(slot, free) {
				return
			}
		case <-l.Done():
			return
		}
		select {
		case <-time.After(time.Duration(l.dice(pause))):
		case <-l.Done():
			return
		}
	}
}

// send sends one message; false if the channel takes no more.
func (l *lane) send(slot int, free chan<- int) bool {
	most := small / 2
	if l.chance(4) {
		most = bytesOf(slot)
	}
	buffer, id := l.room.sends[slot], l.newIDs(1)
	buffer.Length = headerBytes + l.dice(most-headerBytes+1)
	l.content.fill(buffer.Bytes(), id)
	l.begin(opSend, id, l.id, uint64(buffer.Tag))
	if l.chance(10) { // waits for its end, which may not take long: no other of its tag is sent meanwhile
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(l.dice(20000000)))
		defer cancel()
		var err error
		if l.chance(2) {
			err = l.channel.Send(ctx, buffer)
		} else {
			err = l.channel.SendBytes(ctx, buffer.Bytes(), buffer.Tag)
		}
		l.over(id, err, 0, 0)
		free <- slot
		return true
	}
	transfer, err := l.channel.PostSend(buffer)
	if err != nil { // it is over, or leaves
		l.refused(id, statusIn(err))
		return false
	}
	l.tasks.Add(1)
	go func() {
		defer l.tasks.Done()
		l.over(id, transfer.Wait(context.Background()), 0, 0)
		free <- slot
	}()
	if l.chance(20) {
		transfer.Cancel()
	}
	return true
}
