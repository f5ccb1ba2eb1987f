// poller.go: the one goroutine of a context that talks to C: it gathers what many goroutines want into batches, and spreads
// what has come.
//
// Locks, in the order in which they are taken: poller.mutex (the crpc_context, which belongs to one thread at a time), link.mutex
// (what the callers of one connection or channel share), poller.queueMutex (which of them want something). poller.lifeMutex comes
// after poller.mutex, also of another poller, whose mutex is never taken then.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// What one turn takes at most. Each turn costs about as much as ten calls, so the more the better; but with a thousand calls
	// open and all of them taken at once, the peer has nothing to do meanwhile.
	pollerCompletions = 512
	// How long an idle poller looks on before it sleeps. To sleep and be woken costs about as much; beyond it a program that
	// waits would burn a processor that others could use.
	spinTime = 20 * time.Microsecond
)

type poller struct {
	mutex       sync.Mutex
	raw         *RawContext
	connections map[uint64]*connection // by user_data of the endpoint
	channels    map[uint64]*channel    // by user_data of the channel
	queues      queueTable
	listeners   map[uint64]*acceptor   // by user_data of the listener
	handedOver  map[uint64]*handedOver // by user_data of the hand-over; those that have not come
	regions     map[*region]struct{}
	lastID      uint64      // of connections and listeners; never used again
	latest      *connection // the one that the completion before was for
	rails       bool        // it has them, so channels can be made
	withQueues  bool        // it was opened with them
	answered    [pollerCompletions]*pending

	overloaded atomic.Uint64 // requests of its connections that were refused for admission

	logFeed *logFeed // of WithSlog, or nil

	lifeMutex sync.RWMutex // held for reading, the crpc_context stays open

	queueMutex sync.Mutex
	queue      []service // those with something to send
	spare      []service // the array of the queue before
	pool       batchPool

	asleep atomic.Bool
	closed atomic.Bool
	done   chan struct{} // closed when the goroutine has ended
	over   chan struct{} // closed when all is closed
	settle func() bool   // prepareToSleep, made a func value once
}

func startPoller(op string, s *settings) (*poller, error) {
	raw, err := openRaw(op, RawSizes{Ops: 1, Completions: pollerCompletions, PayloadBytes: 1, ChannelOps: 1, QueueOps: 1, Pieces: 1, LaneOps: 1}, s)
	if err != nil {
		return nil, err
	}
	p := &poller{
		raw:         raw,
		connections: map[uint64]*connection{},
		channels:    map[uint64]*channel{},
		queues:      newQueueTable(),
		rails:       s.device.flags&C.CRPC_CONTEXT_RAILS != 0,
		withQueues:  s.device.flags&C.CRPC_CONTEXT_QUEUES != 0,
		listeners:   map[uint64]*acceptor{},
		handedOver:  map[uint64]*handedOver{},
		regions:     map[*region]struct{}{},
		done:        make(chan struct{}),
		over:        make(chan struct{}),
	}
	p.settle = p.prepareToSleep
	if s.logger != nil {
		if p.logFeed, err = newLogFeed(p, s.logger); err != nil {
			raw.Close()
			return nil, err
		}
		p.logFeed.tell(true) // also of what opening has logged
	}
	go p.run()
	return p, nil
}

func (p *poller) close() {
	p.shut()
	p.finishLog()
}

// finishLog waits, for a while at most, until the logger has all that was logged before shut.
func (p *poller) finishLog() {
	if p.logFeed != nil {
		p.logFeed.finish()
	}
}

// shut is close without that.
func (p *poller) shut() {
	if p.closed.Swap(true) {
		<-p.over
		return
	}
	p.kick()
	<-p.done
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, listener := range p.listeners {
		listener.finish(ErrClosed)
	}
	for _, c := range p.connections {
		c.finish(errorf("", ErrClosed, "the Context was closed"))
	}
	for _, c := range p.channels {
		c.finish(errorf("", ErrClosed, "the Context was closed"))
	}
	p.queues.finishAll(errorf("", ErrClosed, "the Context was closed"))
	if p.logFeed != nil {
		p.logFeed.take(true)
	}
	p.lifeMutex.Lock()
	p.raw.Close()
	p.lifeMutex.Unlock()
	for own := range p.regions { // deregistered by that, also what was in use
		own.end()
	}
	p.queueMutex.Lock()
	p.pool.drain()
	p.queueMutex.Unlock()
	close(p.over)
}

// control runs what talks to C outside of the poller's goroutine, and has the poller look at what came of it.
func (p *poller) control(op string, talk func() error) error {
	p.mutex.Lock()
	if p.closed.Load() {
		p.mutex.Unlock()
		return newError(op, ErrClosed)
	}
	err := talk()
	p.mutex.Unlock()
	p.kick()
	return err
}

func (p *poller) newID() uint64 {
	p.lastID++
	return p.lastID
}

// ---- The goroutine ------------------------------------------------------------------------------

func (p *poller) run() {
	defer close(p.done)
	var idleSince time.Time
	spinning := false
	for !p.closed.Load() {
		p.mutex.Lock()
		busy := p.turn()
		p.mutex.Unlock()
		switch {
		case busy:
			spinning = false
		case !spinning:
			spinning, idleSince = true, time.Now()
		case time.Since(idleSince) > spinTime:
			p.sleep()
			spinning = false
			continue
		}
		// Those who were woken run first, so that what they want next gathers.
		runtime.Gosched()
	}
}

// turn sends what has gathered and spreads what has come; false if there was nothing of either.
func (p *poller) turn() bool {
	busy := p.sendQueued()
	count, status := p.raw.Poll()
	if status != OK {
		Warn("polling failed: " + status.Error()) // cannot be, by the header
	}
	for i := 0; i < count; {
		i += p.spread(p.raw.Completions[i:count])
	}
	if p.logFeed != nil {
		p.logFeed.look(p.raw.Completions[:count])
	}
	return busy || count > 0
}

func (p *poller) sleep() {
	if err := p.raw.sleeper.sleep(p.settle); err != nil {
		Warn("sleeping failed: " + err.Error())
		time.Sleep(time.Millisecond) // stay alive, without burning a processor
	}
	p.asleep.Store(false)
}

// prepareToSleep arms the context; true if there is something to do instead. Whoever adds something after `asleep` was set
// will kick.
func (p *poller) prepareToSleep() bool {
	p.asleep.Store(true)
	p.queueMutex.Lock()
	queued := len(p.queue) > 0
	p.queueMutex.Unlock()
	if queued || p.closed.Load() {
		return true
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.logFeed != nil {
		p.logFeed.beforeSleep()
	}
	return p.raw.arm() != OK
}

// kick makes sure that the poller looks again.
func (p *poller) kick() {
	if p.asleep.Load() && p.asleep.CompareAndSwap(true, false) {
		p.raw.sleeper.wake()
	}
}

// ---- Sending ------------------------------------------------------------------------------------

// enlist has a connection, a channel or a queue visited by sendQueued.
func (p *poller) enlist(s service) {
	p.queueMutex.Lock()
	p.queue = append(p.queue, s)
	p.queueMutex.Unlock()
}

func (p *poller) takeBatch() *batch {
	p.queueMutex.Lock()
	defer p.queueMutex.Unlock()
	return p.pool.get()
}

func (p *poller) putBatch(b *batch) {
	p.queueMutex.Lock()
	p.pool.put(b)
	p.queueMutex.Unlock()
}

func (p *poller) sendQueued() bool {
	p.queueMutex.Lock()
	if len(p.queue) == 0 {
		p.queueMutex.Unlock()
		return false
	}
	queue := p.queue
	p.queue = p.spare[:0]
	p.queueMutex.Unlock()
	for i, s := range queue {
		s.send()
		queue[i] = nil
	}
	p.spare = queue
	return true
}

// send gives C what the connection has gathered. Replies and cancels first: they never wait for room, and calls may.
func (c *connection) send() {
	p := c.poller
	if c.room != nil { // its end enlists the connection again
		c.mutex.Lock()
		c.queued = false
		c.mutex.Unlock()
		return
	}
	c.mutex.Lock()
	c.queued = false
	if c.over {
		c.mutex.Unlock()
		return
	}
	c.carryOutCancels()
	c.mutex.Unlock()
	for c.take(&c.answers) {
		if c.submit(&c.answers) == ErrAgain {
			c.enlistLocking() // cancels have a queue of their own in C that the next poll empties
			break
		}
		p.putBatch(c.answers.done())
	}
	for !c.blocked && c.take(&c.calls) {
		if c.submit(&c.calls) == ErrAgain {
			c.blocked = true // until CompletionRoom
			break
		}
		p.putBatch(c.calls.done())
	}
}

// take makes what is open the batch being sent, unless there is one; false if there is neither.
func (c *connection) take(g *gather) bool {
	if g.sending == nil {
		c.mutex.Lock()
		g.sending, g.open, g.sent = g.open, nil, 0
		c.mutex.Unlock()
	}
	return g.sending != nil
}

func (g *gather) done() *batch {
	b := g.sending
	g.sending = nil
	return b
}

// submit sends a batch as far as it goes: OK when every op was taken or has failed, ErrAgain when the rest must wait.
func (c *connection) submit(g *gather) Status {
	b := g.sending
	for g.sent < b.count {
		payload, bytes := b.payloadArgument()
		taken, reason := c.poller.raw.submit(&b.ops[g.sent], b.count-g.sent, payload, bytes)
		g.sent += taken
		if reason == ErrAgain {
			return ErrAgain
		}
		if reason != OK && g.sent < b.count {
			failed := &b.ops[g.sent]
			g.sent++
			if failed.Opcode == OpCall || failed.UserData != 0 {
				c.mutex.Lock()
				c.fail(failed.UserData, reason)
				c.mutex.Unlock()
			} // of a reply or a cancel: the connection is going, and says so by itself
		}
	}
	return OK
}

// ---- Spreading ----------------------------------------------------------------------------------

// spread handles the first completion, and with it those after it that are responses of the same connection; it tells how
// many these were.
func (p *poller) spread(completions []Completion) int {
	first := &completions[0]
	switch first.Kind {
	case CompletionConnectRequest:
		if listener := p.listeners[first.UserData]; listener != nil {
			listener.requested(first)
		} else {
			p.requested(first)
		}
		return 1
	case CompletionDevice:
		Warn("the device changed: " + Status(first.Status).Error())
		return 1
	}
	if first.ofQueue() || first.Kind == CompletionWork {
		return p.queues.spread(completions)
	}
	if first.ofChannel() {
		if c := p.channels[first.EndpointUserData]; c != nil {
			c.spread(first)
		}
		return 1
	}
	c := p.connectionOf(first.EndpointUserData)
	if c == nil {
		return 1 // of an endpoint that we have closed, or that was never accepted
	}
	switch first.Kind {
	case CompletionResponse:
		return c.responses(completions)
	case CompletionReply:
		c.replied(first)
	case CompletionRequest:
		c.request(first)
	case CompletionAbandoned:
		c.abandoned(first)
	case CompletionRoom:
		c.blocked = false
		c.enlistLocking()
		if c.lane != nil {
			c.lane.room()
		}
	case CompletionConnected:
		if c.lasting == nil || !c.lasting.back(c) {
			c.connectedWith(Status(first.Status))
		}
	case CompletionReconnecting:
		c.reconnecting(Status(first.Status))
	case CompletionDisconnected:
		c.disconnected(Status(first.Status))
	}
	return 1
}

func (p *poller) connectionOf(id uint64) *connection {
	if p.latest == nil || p.latest.id != id {
		p.latest = p.connections[id]
	}
	return p.latest
}

// responses has two passes, because callers gather under the same mutex: the table under it, then all that takes longer.
func (c *connection) responses(completions []Completion) int {
	count := 1
	for count < len(completions) && completions[count].Kind == CompletionResponse && completions[count].EndpointUserData == c.id {
		count++
	}
	answered := &c.poller.answered
	c.mutex.Lock()
	for i := 0; i < count; i++ {
		done := &completions[i]
		p, index := c.table.find(done.UserData)
		if p != nil && p.many == nil {
			c.table.remove(index)
		} else if p != nil && p.finish(done.UserData, done.Status, done.View()) {
			c.table.remove(index)
			p.wake()
			p = nil
		} else {
			p = nil
		}
		answered[i] = p
	}
	c.mutex.Unlock()
	for i, p := range answered[:count] {
		if p != nil {
			p.finish(0, completions[i].Status, completions[i].View())
			p.wake()
			answered[i] = nil
		}
		if completions[i].Flags&CompletionPlaced != 0 {
			_ = c.poller.raw.GiveBack(&completions[i])
		}
	}
	return count
}
