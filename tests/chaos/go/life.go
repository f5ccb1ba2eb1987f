// life.go: the worker's connections: how they begin and end.
package main

import (
	"context"
	"encoding/binary"
	"strings"
	"syscall"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const leaveTime = 3 * time.Second

// link is an Endpoint, a Channel or a Queue.
type link interface {
	Done() <-chan struct{}
	Err() error
	Shutdown(context.Context) error
	Close() error
}

// life is a connection, from its connect to its end.
type life struct {
	*worker
	link
	id       uint64
	accepted bool
	closed   bool                // by this side
	end      chan copyrpc.Status // how it ended
}

// ---- Connecting ----

// connections keeps one connection at a time.
func (w *worker) connections() {
	defer w.lives.Done()
	for w.stopping.Err() == nil && w.failures.Load() < failuresMax {
		w.connection()
		time.Sleep(time.Duration(w.dice(2 * int(w.pace))))
	}
}

func (w *worker) connection() {
	var known []string // services
	for _, service := range []struct{ name, address string }{{"calls", w.connect}, {"channels", w.channels}, {"queues", w.queues}} {
		if service.address != "" {
			known = append(known, service.name)
		}
	}
	connect, service := w.newIDs(1), known[w.dice(len(known))]
	token := copyrpc.WithToken(binary.LittleEndian.AppendUint64(nil, connect))
	w.held.Add(1)
	defer w.held.Add(-1)
	if service == "queues" {
		w.dialQueue(connect)
		return
	}
	if service == "channels" {
		room := w.takeRoom()
		defer w.leaveRoom(room)
		w.begin(opConnect, connect, 1, 0)
		it, err := w.context.DialChannel(w.stopping, w.channels, append(w.channelOptions(), token)...)
		if w.connected(connect, err, false) {
			w.channelLife(it, room, connect, 0, false)
		}
		return
	}
	w.begin(opConnect, connect, 0, 0)
	it, err := w.context.Dial(w.stopping, w.connect, append(w.endpointOptions(), token)...)
	if w.connected(connect, err, false) {
		w.endpointLife(it, connect, 0, false)
	}
}

// connected tells what came of connecting.
func (w *worker) connected(connect uint64, err error, accepted bool) bool {
	status := statusIn(err)
	switch {
	case err == nil:
		w.failures.Store(0)
		w.ended(connect, 0, 0, 0)
		return true
	case status == copyrpc.ErrCanceled && w.stopping.Err() != nil:
		w.ended(connect, int32(copyrpc.ErrClosed), 0, 0)
	case status == copyrpc.ErrState || status == copyrpc.ErrStale || status == copyrpc.ErrNoResource:
		w.refused(connect, status)
	default:
		w.ended(connect, int32(status), 0, 0)
	}
	if !accepted && status != copyrpc.ErrRefused {
		w.failures.Add(1)
	}
	return false
}

func (w *worker) endpointOptions() []copyrpc.Option {
	return []copyrpc.Option{
		copyrpc.WithRingBytes(1 << (14 + w.dice(6))), copyrpc.WithCallsMax(1 << w.dice(9)), copyrpc.WithBatchWindow(1 + w.dice(64)),
		copyrpc.WithKeepalive(200 * time.Millisecond << w.dice(3)),
	}
}

func (w *worker) channelOptions() []copyrpc.Option {
	options := []copyrpc.Option{
		copyrpc.WithSlots(4 << w.dice(3)), copyrpc.WithSendsMax(depth), copyrpc.WithQueuePairs(1 + w.dice(2)), copyrpc.WithStripeBytesMin(4096),
		copyrpc.WithKeepalive(200 * time.Millisecond << w.dice(3)), copyrpc.WithRailRetry(50 * time.Millisecond),
	}
	if w.chance(2) {
		options = append(options, copyrpc.WithShare(w.dice(copyrpc.ShareWhole+1)))
	}
	if w.chance(4) {
		options = append(options, copyrpc.WithRailsUsed(0))
	}
	return options
}

// ---- Accepting ----

var leaked []byte

// leak leaks, if it is told to.
func (w *worker) leak() {
	if w.mistaken("descriptor") {
		syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	}
	if w.mistaken("memory") {
		leaked = make([]byte, 64<<20)
		for i := range leaked {
			leaked[i] = 1
		}
	}
	if w.mistaken("died") {
		panic("as it was told to")
	}
}

// rejected refuses a peer now and then. Those who have given up by now are no trouble.
func (w *worker) rejected(no bool, reject func(uint32) error) bool {
	if !no && w.stopping.Err() == nil && !w.chance(50) {
		return false
	}
	err := reject(1)
	if status := statusIn(err); status != copyrpc.OK && status != copyrpc.ErrState && status != copyrpc.ErrStale {
		w.trouble(2, err)
	}
	return true
}

// peerOf gives the id of the peer's connect, which is its token.
func peerOf(token []byte) uint64 {
	if len(token) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(token)
}

func (w *worker) acceptCalls(listener *copyrpc.Listener) {
	defer w.lives.Done()
	for {
		request, err := listener.AcceptRequest(w.stopping)
		if err != nil {
			return
		}
		w.leak()
		if w.rejected(false, request.Reject) {
			continue
		}
		w.held.Add(1)
		w.lives.Add(1)
		go func() {
			defer w.lives.Done()
			defer w.held.Add(-1)
			connect := w.newIDs(1)
			w.begin(opConnect, connect, 0, 0)
			it, err := request.Accept(w.stopping, w.endpointOptions()...)
			if w.connected(connect, err, true) {
				w.endpointLife(it, connect, peerOf(request.Info.Token), true)
			}
		}()
	}
}

func (w *worker) acceptChannels(listener *copyrpc.ChannelListener) {
	defer w.lives.Done()
	for {
		request, err := listener.AcceptRequest(w.stopping)
		if err != nil {
			return
		}
		w.leak()
		room := w.takeRoom()
		if w.rejected(room == nil, request.Reject) {
			w.leaveRoom(room)
			continue
		}
		w.held.Add(1)
		w.lives.Add(1)
		go func() {
			defer w.lives.Done()
			defer w.held.Add(-1)
			defer w.leaveRoom(room)
			connect := w.newIDs(1)
			w.begin(opConnect, connect, 1, 0)
			it, err := request.Accept(w.stopping, w.channelOptions()...)
			if w.connected(connect, err, true) {
				w.channelLife(it, room, connect, peerOf(request.Info.Token), true)
			}
		}()
	}
}

// ---- Ending ----

func (w *worker) live(it link, connect, peer uint64, accepted bool) *life {
	l := &life{worker: w, link: it, id: w.newIDs(1), accepted: accepted, end: make(chan copyrpc.Status, 1)}
	w.begin(opConnection, l.id, connect, peer)
	go func() {
		<-it.Done()
		l.end <- endOf(it.Err())
	}()
	return l
}

// endOf gives how a connection ended, of its Err. That both sides have taken leave only the text tells. After a close of this side
// nothing tells any more how it ended before.
func endOf(err error) copyrpc.Status {
	if status := statusIn(err); status != copyrpc.ErrDisconnected || !strings.Contains(err.Error(), "both sides have taken leave") {
		return status
	}
	return copyrpc.OK
}

// stay lasts until the connection ends, or this side leaves it.
func (l *life) stay() {
	rarity := 50
	if l.accepted {
		rarity = 500
	}
	for l.goOn(time.Duration(l.dice(2*int(l.pace))), rarity) {
	}
	l.leave()
	l.tellEnd()
}

// goOn waits for a while, and is whether the connection goes on after that.
func (l *life) goOn(pause time.Duration, rarity int) bool {
	select {
	case <-time.After(pause):
		return l.Err() == nil && !l.chance(rarity)
	case <-l.Done():
	case <-l.stopping.Done():
	}
	return false
}

// leave ends it in one of the ways there are, unless it is over.
func (l *life) leave() {
	limit := leaveTime
	if l.stopping.Err() == nil {
		if l.chance(3) {
			l.closed = true
			l.Close()
			return
		}
		if l.chance(2) {
			limit = time.Duration(l.dice(2000)) * time.Microsecond
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	l.closed = l.Shutdown(ctx) != nil
}

// tellEnd closes it, and tells how it ended.
func (l *life) tellEnd() {
	l.Close()
	status := <-l.end
	if status == copyrpc.ErrClosed && !l.closed {
		status = copyrpc.ErrDisconnected // Shutdown has closed it, whether it ended well or not
	}
	l.ended(l.id, int32(status), 0, 0)
}
