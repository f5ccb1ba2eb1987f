// metrics.go: what a context has counted, as text for Prometheus.

package copyrpc

/*
#include <stdlib.h>
#include <copyrpc.h>
*/
import "C"

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"unicode/utf8"
	"unsafe"
)

const methodNameBytesMax = 255

// methodNames has the names of methods of all routers. A name always has the same number.
var methodNames sync.Map

// WithMetrics opens a context that counts and times calls and requests by method: see [Context.WriteMetrics]. The environment
// variable COPYRPC_METRICS=1 does the same for all contexts, also for the one of Dial and Listen. For Open and OpenRaw.
func WithMetrics() Option {
	return func(s *settings) { s.device.flags |= C.CRPC_CONTEXT_METRICS }
}

// WriteMetrics writes all metrics of the context as text in the format of Prometheus (text/plain; version=0.0.4). A context
// [WithMetrics] has also calls and requests, by method and status. Methods have the names that they have in a [Router].
func (c *Context) WriteMetrics(w io.Writer) error {
	return writeText(w, func() ([]byte, error) {
		return asked(c, "context metrics", func(r *RawContext) ([]byte, error) { return r.Metrics(false) })
	})
}

// WriteEndpointMetrics writes the same, and all of each endpoint.
func (c *Context) WriteEndpointMetrics(w io.Writer) error {
	return writeText(w, func() ([]byte, error) {
		return asked(c, "context metrics", func(r *RawContext) ([]byte, error) { return r.Metrics(true) })
	})
}

func writeText(w io.Writer, read func() ([]byte, error)) error {
	text, err := read()
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// MetricsHandler serves what WriteMetrics writes.
func (c *Context) MetricsHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var text bytes.Buffer
		if err := c.WriteMetrics(&text); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text.Bytes()) // whoever has gone needs no text
	})
}

// Metrics gives the metrics of the context as text; `endpoints`: also all of each endpoint.
func (r *RawContext) Metrics(endpoints bool) ([]byte, error) {
	const op = "context metrics"
	if r == nil || r.handle == nil {
		return nil, newError(op, ErrClosed)
	}
	var status C.int32_t = C.CRPC_OK
	methodNames.Range(func(method, name any) bool {
		text := C.CString(name.(string))
		status = C.crpc_context_name_method(r.handle, C.uint16_t(method.(uint16)), text)
		C.free(unsafe.Pointer(text))
		return status == C.CRPC_OK
	})
	if status != C.CRPC_OK {
		return nil, newError(op, Status(status))
	}
	var flags C.uint32_t
	if endpoints {
		flags = C.CRPC_METRICS_ENDPOINTS
	}
	return readText(op, func(text *C.char, room C.uint64_t) C.int64_t {
		return C.crpc_context_metrics(r.handle, flags, text, room)
	})
}

// readText reads what a function of C writes to a buffer with so much room. It returns how long all of it is, which may be a little
// more the second time: the flight recorder tells how long ago things were.
func readText(op string, write func(text *C.char, room C.uint64_t) C.int64_t) ([]byte, error) {
	length := write(nil, 0)
	if length < 0 {
		return nil, newError(op, Status(length))
	}
	text := make([]byte, length+length/8+64)
	length = write((*C.char)(unsafe.Pointer(&text[0])), C.uint64_t(len(text)))
	return text[:min(int(length), len(text)-1)], nil
}

// MethodName gives the name that any [Router] of the program has for a method, and "" if none has.
func MethodName(method uint16) string {
	name, _ := methodNames.Load(method)
	text, _ := name.(string)
	return text
}

// noteMethod takes note of a name, as far as metrics take it.
func noteMethod(method uint16, name string) {
	for len(name) > methodNameBytesMax {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	if name != "" && utf8.ValidString(name) {
		methodNames.Store(method, name)
	}
}
