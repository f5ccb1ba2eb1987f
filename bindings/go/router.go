// router.go: a handler for each method.

package copyrpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// Router has a handler for each method, and its method Serve is the [Handler] that calls the right one:
//
//	var router copyrpc.Router
//	router.HandleName("kv.get", get)
//	err := listener.Serve(ctx, router.Serve)
//
// A request for a method that it does not have is answered with [StatusUnimplemented]. The zero Router has none.
type Router struct {
	mutex   sync.RWMutex
	methods map[uint16]route
}

type route struct {
	name    string // "" = it has only its number
	handler Handler
}

// Handle has `handler` answer the method with that number. Like HandleName, it may be called at any time, and by any
// goroutine. It panics if the method has a handler already, or if there is none to set: that is a mistake in the
// program.
func (r *Router) Handle(method uint16, handler Handler) { r.add(method, route{handler: handler}) }

// HandleName has `handler` answer the method with that name, which is called with the number that [MethodNumber]
// gives. It also panics, with the names of both, if another name has the same number.
func (r *Router) HandleName(name string, handler Handler) {
	if name == "" || strings.ContainsRune(name, 0) {
		panic(errorf("router", ErrInvalid, "%q is no name of a method", name))
	}
	r.add(MethodNumber(name), route{name, handler})
}

func (r *Router) add(method uint16, it route) {
	if it.handler == nil {
		panic(errorf("router", ErrInvalid, "the handler of %s is nil", called(method, it.name)))
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	other, taken := r.methods[method]
	if taken && other.name == it.name {
		panic(errorf("router", ErrBusy, "%s has a handler already", called(method, it.name)))
	}
	if taken {
		panic(errorf("router", ErrBusy, "%s and %s have the same number: rename one, or give it a number of its own below %#x",
			called(method, other.name), called(method, it.name), MethodNamed))
	}
	if r.methods == nil {
		r.methods = map[uint16]route{}
	}
	r.methods[method] = it
	noteMethod(method, it.name)
}

// Name gives the name with which the method was set, and "" if there was none.
func (r *Router) Name(method uint16) string {
	r.mutex.RLock()
	defer r.mutex.RUnlock()
	return r.methods[method].name
}

// Serve calls the handler of the request's method. It is a [Handler].
func (r *Router) Serve(ctx context.Context, request *Request) ([]byte, error) {
	r.mutex.RLock()
	it, found := r.methods[request.Method]
	r.mutex.RUnlock()
	if !found {
		return nil, Errorf(StatusUnimplemented, "there is no %s here", called(request.Method, ""))
	}
	return it.handler(ctx, request)
}

// called names a method for people.
func called(method uint16, name string) string {
	if name != "" {
		return fmt.Sprintf("method %q (%#x)", name, method)
	}
	if method >= MethodNamed {
		return fmt.Sprintf("method %#x", method)
	}
	return fmt.Sprintf("method %d", method)
}
