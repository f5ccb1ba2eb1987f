// spread.go: requests that are handed over to other contexts, so that the connections of one listener are polled by several
// goroutines.

package copyrpc

import "context"

// place gives the poller that the connection is to be made in, and the request's handle there.
func (request *ConnectRequest) place(ctx context.Context, op string) (*poller, uint64, error) {
	a := request.acceptor
	handle := uint64(request.endpoint)
	if len(a.spread) == 0 {
		return a.poller, handle, nil
	}
	to := a.spread[int(a.turn.Add(1)-1)%len(a.spread)]
	if to == a.poller {
		return to, handle, nil
	}
	handle, err := a.handOver(ctx, op, handle, to)
	return to, handle, err
}

// handOver gives a request to another poller, and waits until that has it. If it fails, the peer is refused.
func (a *acceptor) handOver(ctx context.Context, op string, handle uint64, to *poller) (uint64, error) {
	id, h, err := to.expect(op, a.kind)
	if err == nil {
		err = a.poller.control(op, func() error {
			to.lifeMutex.RLock() // its own mutex may be held for long, and by one who waits for ours
			defer to.lifeMutex.RUnlock()
			return a.poller.raw.handOver(a.kind, op, handle, to.raw, id)
		})
		if err != nil {
			to.forget(id, h)
		}
	}
	if err != nil {
		a.poller.control(op, func() error { return a.poller.raw.close(a.kind, op, handle) })
		return 0, err
	}
	select {
	case handle = <-h.arrived:
		return handle, nil
	case <-ctx.Done():
		to.forget(id, h)
		return 0, contextError(op, ctx)
	case <-to.over:
		return 0, newError(op, ErrClosed)
	}
}

// handedOver is a request that comes from another poller.
type handedOver struct {
	kind    linkKind
	arrived chan uint64 // of capacity 1: its handle
}

// expect makes an id for a request that is to be handed over to this poller.
func (p *poller) expect(op string, kind linkKind) (uint64, *handedOver, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed.Load() {
		return 0, nil, newError(op, ErrClosed)
	}
	id, h := p.newID(), &handedOver{kind: kind, arrived: make(chan uint64, 1)}
	p.handedOver[id] = h
	return id, h, nil
}

// forget refuses the peer if its request has come, or as soon as it comes: nobody waits for it.
func (p *poller) forget(id uint64, h *handedOver) {
	p.control("hand over", func() error {
		delete(p.handedOver, id)
		select {
		case handle := <-h.arrived:
			return p.raw.close(h.kind, "hand over", handle)
		default:
			return nil
		}
	})
}

// requested is what the poller calls for a CompletionConnectRequest that is of none of its listeners.
func (p *poller) requested(done *Completion) {
	if h := p.handedOver[done.UserData]; h != nil {
		delete(p.handedOver, done.UserData)
		h.arrived <- uint64(done.Endpoint)
		return
	}
	kind := endpoints
	if done.ofChannel() {
		kind = channels
	} else if done.ofQueue() {
		kind = queues
	}
	p.raw.close(kind, "hand over", uint64(done.Endpoint))
}
