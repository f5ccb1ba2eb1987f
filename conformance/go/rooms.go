// rooms.go: payloads of calls and replies that are written in place.
package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// room is a reservation under its name, and the call that it is for.
type room struct {
	*copyrpc.Reservation
	call    line             // what the command has said
	request *copyrpc.Request // that it answers; nil: it is for a call
}

// reserve waits for room.
func (r *runner) reserve(l line, request *copyrpc.Request, reserve func(copyrpc.Call, int) (*copyrpc.Reservation, error)) error {
	call := copyrpc.Call{Method: uint16(l.number("method")), ReplyBytesMax: l.number("reply_max")}
	if call.ReplyBytesMax == 0 {
		call.ReplyBytesMax = copyrpc.NoReplyBytes
	}
	reserved, err := reserve(call, l.number("length"))
	for errors.Is(err, copyrpc.ErrAgain) && r.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		reserved, err = reserve(call, l.number("length"))
	}
	if err == nil {
		r.things.Store(l["name"], &room{Reservation: reserved, call: l, request: request})
	}
	return err
}

func (r *runner) ofRoom(it *room, verb string, l line) error {
	switch verb {
	case "abort":
		return it.Abort()
	case "commit":
		copy(it.Bytes(), payload(l.number("length"), l.number("seed")))
		if it.request != nil {
			err := it.Commit(l.number("length"))
			if waits, ok := r.answered.LoadAndDelete(it.request); ok && err == nil {
				close(waits.(chan struct{}))
			}
			return err
		}
		ctx, cancel := r.limited(it.call)
		id := it.call.number("id")
		r.calls[strconv.Itoa(id)] = cancel
		if err := it.Commit(l.number("length")); err != nil {
			tellResponse(id, nil, err)
			return nil
		}
		r.begin(func() {
			answer, err := it.Wait(ctx)
			tellResponse(id, answer, err)
		})
		return nil
	}
	return errNoVerb
}
