// arena.go: memory that a side lends the peer of an endpoint, where payloads land that the peer sends from regions.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import "math"

// CompletionPlaced is a flag of CompletionRequest and CompletionResponse: the payload is in the endpoint's arena, and stays there
// until GiveBack.
const CompletionPlaced = 4

var _ = [1]struct{}{}[CompletionPlaced-C.CRPC_COMPLETION_PLACED]

// ArenaPlacesMax is how many places an arena has at most.
const ArenaPlacesMax = 24

var _ = [1]struct{}{}[ArenaPlacesMax-C.CRPC_ARENA_PLACES_MAX]

// LendArena lends an endpoint's peer memory of a region, from `offset` on: `places` of placeBytes each. See crpc_arena_lend.
func (r *RawContext) LendArena(endpoint EndpointHandle, region RegionHandle, offset uint64, placeBytes, places uint32) error {
	const op = "lend"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	theirs := newCError()
	return asError(op, C.crpc_arena_lend(r.handle, endpoint.c(), region.c(), C.uint64_t(offset), C.uint32_t(placeBytes),
		C.uint32_t(places), &theirs), &theirs)
}

// GiveBack lets the peer use the place of a payload again. `completion` has CompletionPlaced.
func (r *RawContext) GiveBack(completion *Completion) error {
	return r.giveBack(completion.Endpoint, uint64(uintptr(completion.payload)))
}

func (r *RawContext) giveBack(endpoint EndpointHandle, payload uint64) error {
	return r.ask("give back", func() C.int32_t { return C.crpc_arena_give_back(r.handle, endpoint.c(), C.uint64_t(payload)) })
}

// Lend lends the peer an arena: memory of a region, cut into places of placeBytes, at most [ArenaPlacesMax], each a multiple of 16
// bytes. What the peer sends from a region then lands there, from 2 KiB on, and nothing is copied: the Payload of a
// request is in its place until [Request.Release]. A request may be longer than the ring. If no place is free, payloads come by
// the ring, as ever. Replies to this side's calls are copied, and their places given back at once. The region needs LocalWrite, and
// cannot be closed before the endpoint.
func (endpoint *Endpoint) Lend(memory Buffer, placeBytes int) error {
	const op = "lend"
	c, err := endpoint.valid(op)
	if err != nil {
		return err
	}
	if memory.Region == nil || placeBytes <= 0 || placeBytes > math.MaxInt32 {
		return errorf(op, ErrInvalid, "an arena is part of a Region, in places of 1 to %d bytes", math.MaxInt32)
	}
	region, address, problem := memory.place(op, c.poller)
	if problem != nil {
		return problem
	}
	own := memory.Region.region
	return c.poller.control(op, func() error {
		err := c.poller.raw.LendArena(EndpointHandle(c.handle), region, address-own.info.Address, uint32(placeBytes),
			uint32(min(memory.Length/placeBytes, math.MaxInt32)))
		if err == nil {
			c.arena = own
		}
		return err
	})
}

// Placed tells whether the Payload is in an arena that this side has lent. It is not a copy then, and valid until Release.
func (request *Request) Placed() bool { return request.place != 0 }

// Keep makes the Payload of a request that is Placed stay after its handler has ended, until Release.
func (request *Request) Keep() { request.kept.Store(true) }

// Release lets the peer use the place of the Payload again, which must not be read any more. Of a request that is not Placed, and
// of one that was released, it does nothing. Serve does it when a handler has ended, unless the handler has called Keep.
func (request *Request) Release() {
	if request.place == 0 || request.released.Swap(true) {
		return
	}
	c := request.connection
	// The connection may have ended: then there is nobody to give it back to.
	_ = c.poller.control("release", func() error {
		if request.lost() {
			return nil
		}
		return c.poller.raw.giveBack(EndpointHandle(c.handle), request.place)
	})
	request.arena.users.Add(-1)
}

// placed: the payload of this request is where it has landed. The poller's mutex is held, here and in unplaced.
func (request *Request) placed(completion *Completion, c *connection) {
	request.Payload = completion.View()
	request.place, request.arena = uint64(uintptr(completion.payload)), c.arena
	request.arena.users.Add(1)
}

// unplaced: nobody gets this request.
func (request *Request) unplaced() {
	if request.place != 0 && !request.released.Swap(true) {
		if !request.lost() {
			_ = request.connection.poller.raw.giveBack(EndpointHandle(request.connection.handle), request.place)
		}
		request.arena.users.Add(-1)
	}
}
