// events_raw.go: what completions of calls tell in the form `raw`, and listeners, also those that are served.
package main

import (
	"github.com/copyrpc/copyrpc/bindings/go"
)

func (r *raw) takeOfCalls(done *copyrpc.Completion) {
	thing := r.things[done.EndpointUserData]
	status := copyrpc.Status(done.Status).Name()
	switch done.Kind {
	case copyrpc.CompletionResponse:
		tellResponse(int(done.UserData), done.View(), failure(copyrpc.Status(done.Status), done.View()))
		r.giveBack(done)
	case copyrpc.CompletionRequest:
		r.takeRequest(thing, done)
	case copyrpc.CompletionAbandoned:
		for _, one := range r.things {
			one.abandoned = one.abandoned || one.request.Token == done.Token && one.endpoint() == done.Endpoint && one.request.Kind != 0
		}
	case copyrpc.CompletionConnectRequest:
		r.takeConnectRequest(r.things[done.UserData], done)
	case copyrpc.CompletionRoom:
		delete(r.full, done.Endpoint)
	case copyrpc.CompletionConnected:
		delete(r.full, done.Endpoint) // one that reconnects has another peer now
		if thing.service != nil {
			r.takeChange(thing, done)
			return
		}
		thing.connected = done.Status == 0
		event("connected", said{"endpoint": thing.name, "status": status})
	case copyrpc.CompletionReconnecting:
		if thing.connected { // how many attempts fail is a matter of time
			event("reconnecting", said{"endpoint": thing.name, "status": status})
		}
		thing.connected = false
	case copyrpc.CompletionDisconnected:
		delete(r.full, done.Endpoint) // what waits is refused now
		if thing.service != nil {
			r.takeChange(thing, done)
			return
		}
		event("disconnected", said{"endpoint": thing.name, "status": status})
	}
}

// ---- Requests ----

func (r *raw) takeRequest(endpoint *rawThing, done *copyrpc.Completion) {
	name := endpoint.name
	if endpoint.service != nil {
		name = endpoint.service.name
	}
	answered := rawThing{handle: uint64(done.Endpoint), rawOfCalls: rawOfCalls{request: *done}}
	switch {
	case endpoint.service != nil && endpoint.service.stops:
		r.submitOp(answerOp(&answered, copyrpc.OpDrop, copyrpc.ErrNotStarted, 0), nil)
	case endpoint.mode == "drop":
		r.submitOp(answerOp(&answered, copyrpc.OpDrop, copyrpc.OK, 0), nil)
	case endpoint.mode == "fail":
		r.submitOp(answerOp(&answered, copyrpc.OpReply, copyrpc.StatusUnknown, 0), nil) // as Serve does
	case endpoint.mode == "echo":
		r.submitOp(answerOp(&answered, copyrpc.OpReply, copyrpc.OK, len(done.View())), done.View())
	default:
		r.keepRequest(endpoint, name, done)
		return
	}
	r.giveBack(done)
}

// keepRequest keeps a request and its payload, a copy unless that stays in its place, and tells of it.
func (r *raw) keepRequest(endpoint *rawThing, name string, done *copyrpc.Completion) {
	request, _ := r.add("")
	request.handle, request.request = uint64(done.Endpoint), *done
	placed := -1
	if done.Flags&copyrpc.CompletionPlaced != 0 {
		request.payload = done.View()
		placed = int(addressOf(request.payload)-addressOf(endpoint.lent)) / endpoint.placeBytes
	} else {
		buffer := make([]byte, done.PayloadBytes)
		length, _ := r.context.Retain(done, buffer) // run.py misses what could not be kept
		request.payload = buffer[:length]
	}
	event("request", told(request.payload).with(said{"endpoint": name, "request": request.name, "method": done.Method,
		"reply_max": done.ReplyBytesMax, "placed": placed}))
}

// giveBack gives the place of a payload back, if it is in one.
func (r *raw) giveBack(done *copyrpc.Completion) {
	if done.Flags&copyrpc.CompletionPlaced != 0 {
		r.context.GiveBack(done)
	}
}

// ---- Listeners ----

// ofListener is what the verbs do that are about a listener, or about who asks it to connect.
func (r *raw) ofListener(it *rawThing, verb string, l line) (said, error) {
	switch verb {
	case "accept":
		thing, number := r.add(l["name"])
		thing.handle = it.handle
		return nil, thing.failed(r.context.Accept(it.endpoint(), number, l.options()...))
	case "reject":
		return nil, r.context.Reject(it.endpoint(), uint32(l.number("reason")))
	case "stop":
		_, err := r.context.DrainListener(copyrpc.ListenerHandle(it.handle), l.leaveLimit())
		it.stops = true
		it.tellStopped()
		return nil, err
	}
	return nil, errNoVerb
}

func (r *raw) takeConnectRequest(listener *rawThing, done *copyrpc.Completion) {
	if listener.service != nil {
		r.acceptFor(listener, done.Endpoint)
		return
	}
	connection, _ := r.add("")
	connection.handle = uint64(done.Endpoint)
	info, _ := r.context.EndpointInfo(done.Endpoint)
	event("connect_request", said{"listener": listener.name, "connection": connection.name, "token": words(info.Token), "private": ""})
}

// Listeners that are served: as in a program, peers are accepted, and their ends are nobody's concern.

func (r *raw) acceptFor(service *rawThing, endpoint copyrpc.EndpointHandle) {
	connection, number := r.add("")
	connection.handle, connection.service = uint64(endpoint), service
	if r.context.Accept(endpoint, number) == nil {
		service.connections++
	}
}

// takeChange is about a connection of a service that has come, or has gone.
func (r *raw) takeChange(connection *rawThing, done *copyrpc.Completion) {
	service := connection.service
	if done.Kind == copyrpc.CompletionConnected && done.Status == 0 {
		if service.stops {
			r.context.Disconnect(done.Endpoint, copyrpc.Forever)
		}
		return
	}
	r.context.CloseEndpoint(done.Endpoint)
	service.connections--
	service.tellStopped()
}

func (service *rawThing) tellStopped() {
	if service.stops && service.connections == 0 {
		event("stopped", said{"listener": service.name, "status": "CRPC_OK"})
	}
}
