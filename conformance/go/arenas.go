// arenas.go: the verbs of arenas, and in which place a payload lies.
package main

import (
	"sync"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// arena is what an endpoint's peer was lent. The mutex is held while that is done: payloads may land before Lend has returned.
type arena struct {
	mutex      sync.Mutex
	memory     copyrpc.Buffer
	placeBytes int
}

// placed is the number of the place of a request's payload; -1: it lies in none.
func (a *arena) placed(request *copyrpc.Request) int {
	if !request.Placed() {
		return -1
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return int(addressOf(request.Payload)-addressOf(a.memory.Bytes())) / a.placeBytes
}

func (r *runner) lend(it *peer, l line) error {
	thing, _ := r.things.Load(l["region"])
	region, ok := thing.(*copyrpc.Region)
	if !ok {
		return errUnknown
	}
	placeBytes := l.number("place_bytes")
	memory := region.Slice(l.number("offset"), l.number("offset")+l.number("places")*placeBytes)
	it.arena.mutex.Lock()
	defer it.arena.mutex.Unlock()
	err := it.Lend(memory, placeBytes)
	if err == nil {
		it.arena.memory, it.arena.placeBytes = memory, placeBytes
	}
	return err
}
