// flight.go: what an endpoint has done last.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

// FlightRecords gives what the endpoint has done last, in a context [WithFlightRecords]: a line for each op and each completion,
// oldest first. When the connection has ended, they are in the log ([WithLog]).
func (endpoint *Endpoint) FlightRecords() (string, error) {
	const op = "flight records"
	c, err := endpoint.valid(op)
	if err != nil {
		return "", err
	}
	return infoOf(&c.link, "", (*RawContext).FlightRecords)
}

// FlightRecords gives what an endpoint has done last, also when its connection has ended, until it is closed.
func (r *RawContext) FlightRecords(endpoint EndpointHandle) (string, error) {
	const op = "flight records"
	if r == nil || r.handle == nil {
		return "", newError(op, ErrClosed)
	}
	records, err := readText(op, func(text *C.char, room C.uint64_t) C.int64_t {
		return C.crpc_endpoint_flight_records(r.handle, endpoint.c(), text, room)
	})
	return string(records), err
}
