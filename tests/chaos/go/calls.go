// calls.go: the worker's calls, and its answers to those of its peers.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const (
	burst           = 16
	payloadBytesMax = 8192
)

// call is a call to be made.
type call struct {
	copyrpc.Call
	id      uint64
	most    int // bytes of its reply
	begun   time.Time
	timeout time.Duration // 0: none
}

func (w *worker) endpointLife(it *copyrpc.Endpoint, connect, peer uint64, accepted bool) {
	l := w.live(it, connect, peer, accepted)
	var tasks sync.WaitGroup
	tasks.Add(1)
	go func() {
		defer tasks.Done()
		it.Serve(context.Background(), w.answer) // until it is over: who stops serving before refuses what comes
	}()
	info, _ := it.Info()
	rarity := 50
	if accepted {
		rarity = 500
	}
	for l.goOn(time.Duration(w.dice(2*int(w.pace))), rarity) {
		if accepted && !w.chance(10) || info.RequestBytesMax < headerBytes {
			continue
		}
		var calls sync.WaitGroup
		w.calls(l, it, info, &calls)
		if w.chance(4) { // it may even leave before they have ended
			tasks.Add(1)
			go func() {
				calls.Wait()
				tasks.Done()
			}()
		} else {
			calls.Wait()
		}
	}
	l.leave()
	l.tellEnd()
	tasks.Wait()
}

// timeout gives how long calls may take.
func (w *worker) timeout() time.Duration {
	switch w.dice(8) {
	case 0:
		return 0
	case 1:
		return time.Duration(1 + w.dice(1000000))
	case 2:
		return time.Millisecond + time.Duration(w.dice(100000000))
	}
	return 5 * time.Second
}

func (w *worker) newCall(info copyrpc.EndpointInfo) *call {
	most, reply := min(info.RequestBytesMax, payloadBytesMax), min(info.ReplyBytesMax, payloadBytesMax)
	if !w.chance(8) {
		most = min(most, 256)
	}
	if !w.chance(8) {
		reply = min(reply, 256)
	}
	c := &call{id: w.newIDs(1), most: w.dice(reply + 1)}
	c.Method, c.ReplyBytesMax = uint16(c.id), c.most
	if c.most == 0 {
		c.ReplyBytesMax = copyrpc.NoReplyBytes
	}
	c.Request = w.content.fill(make([]byte, headerBytes+w.dice(most-headerBytes+1)), c.id)
	return c
}

// calls begins some calls, each by itself or all as a batch.
func (w *worker) calls(l *life, it *copyrpc.Endpoint, info copyrpc.EndpointInfo, calls *sync.WaitGroup) {
	some := make([]*call, 1+w.dice(burst))
	for i := range some {
		some[i] = w.newCall(info)
	}
	if !w.chance(4) {
		for _, one := range some {
			one := one
			calls.Add(1)
			go func() {
				defer calls.Done()
				ctx, cancel := w.begun(l, []*call{one})
				defer cancel()
				reply, err := it.Do(ctx, one.Call)
				w.callEnded(one, reply, err)
			}()
		}
		return
	}
	calls.Add(1)
	go func() {
		defer calls.Done()
		ctx, cancel := w.begun(l, some)
		defer cancel()
		all := make([]copyrpc.Call, len(some))
		for i, one := range some {
			all[i] = one.Call
		}
		results, err := it.DoBatch(ctx, all)
		for i, one := range some {
			if err != nil { // none was sent
				w.refused(one.id, statusIn(err))
			} else {
				w.callEnded(one, results[i].Reply, results[i].Err)
			}
		}
	}()
}

// begun tells of the beginning of calls that end together. Some of them are canceled.
func (w *worker) begun(l *life, calls []*call) (context.Context, context.CancelFunc) {
	timeout := w.timeout()
	for _, one := range calls {
		one.begun, one.timeout = time.Now(), timeout
		w.begin(opCall, one.id, l.id, 0)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if timeout > 0 {
		var own context.CancelFunc
		ctx, own = context.WithTimeout(ctx, timeout)
		outer := cancel
		cancel = func() { own(); outer() }
	}
	if w.chance(12) {
		time.AfterFunc(time.Duration(w.dice(3000000)), cancel)
	}
	return ctx, cancel
}

func (w *worker) callEnded(c *call, reply []byte, err error) {
	var answer *copyrpc.ReplyError
	if errors.As(err, &answer) {
		w.ended(c.id, int32(answer.Status), w.replyVerdict(c, int32(answer.Status), answer.Payload), 0)
		return
	}
	if err == nil {
		w.ended(c.id, 0, w.replyVerdict(c, 0, reply), 0)
		return
	}
	verdict, left := uint64(right), time.Duration(0)
	if statusIn(err) == copyrpc.ErrTimeout && c.timeout > 0 {
		if left = max(c.timeout-time.Since(c.begun), 0); left > 0 {
			verdict = tooEarly
		}
	}
	w.over(c.id, err, verdict, uint64(left))
}

func (w *worker) replyVerdict(c *call, status int32, reply []byte) uint64 {
	if status != statusOf(c.id) {
		return wrongStatus
	}
	if len(reply) > c.most || c.most < headerBytes && len(reply) > 0 {
		return wrongLength
	}
	if c.most < headerBytes {
		return right
	}
	verdict, id := w.content.check(reply)
	if verdict == right && id != c.id|replyBit {
		return wrongID
	}
	return verdict
}

// ---- Answers ----

func (w *worker) answer(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
	verdict, id := w.content.check(request.Payload)
	if verdict == right && request.Method != uint16(id) {
		verdict = wrongID
	}
	drop := uint64(0)
	if w.chance(30) {
		drop = 1
	}
	w.journal.put(recordExecuted, int32(verdict), id, drop, 0)
	if w.mistaken("twice") {
		w.journal.put(recordExecuted, int32(verdict), id, drop, 0)
	}
	if w.chance(10) {
		select {
		case <-time.After(time.Duration(w.dice(20000000))):
		case <-ctx.Done():
		}
	}
	if drop != 0 {
		return nil, request.Drop()
	}
	var reply []byte
	if most := min(request.ReplyBytesMax, payloadBytesMax); most >= headerBytes {
		reply = w.content.fill(make([]byte, headerBytes+w.dice(most-headerBytes+1)), id|replyBit)
		if w.mistaken("wrong") {
			reply[len(reply)-1] ^= 1
		}
	}
	status := statusOf(id)
	if w.chance(4) { // by itself, instead of by what it returns
		return nil, request.ReplyStatus(copyrpc.Status(status), reply)
	}
	if status != 0 {
		return nil, &copyrpc.ReplyError{Status: copyrpc.Status(status), Payload: reply}
	}
	return reply, nil
}
