// intercept.go: what goes around a call.

package copyrpc

import (
	"context"
	"sync"
)

// CallFunc makes a call, as [Endpoint.Do] does.
type CallFunc func(ctx context.Context, call *Call) ([]byte, error)

// WithCallInterceptor puts interceptors around each call of the endpoint, the first outermost: Call, Do, CallBatch and
// DoBatch. Each gets what makes the call, and returns what calls it, once, several times or not at all. It may change
// the Call, which is its own, but not the bytes of the Request.
//
//	func measured(next copyrpc.CallFunc) copyrpc.CallFunc {
//		return func(ctx context.Context, call *copyrpc.Call) ([]byte, error) {
//			begun := time.Now()
//			reply, err := next(ctx, call)
//			observe(call.Method, copyrpc.StatusOf(err), time.Since(begun))
//			return reply, err
//		}
//	}
//
// For Dial, Listen, Accept and blobs. Several such options add up. With an interceptor, each call of a batch has a goroutine of its own: then a
// batch costs as much as so many calls.
func WithCallInterceptor(interceptors ...func(next CallFunc) CallFunc) Option {
	return func(s *settings) {
		for _, interceptor := range interceptors {
			if interceptor == nil {
				s.problem = errorf("", ErrInvalid, "an interceptor is nil")
			}
		}
		s.interceptors = append(s.interceptors, interceptors...)
	}
}

// intercepted is what makes the calls of a connection that has interceptors, and nil where there are none.
func (c *connection) intercepted(interceptors []func(next CallFunc) CallFunc) CallFunc {
	if len(interceptors) == 0 {
		return nil
	}
	inner := &Endpoint{connection: c} // nobody's: one that is lost is not reported
	around := func(ctx context.Context, call *Call) ([]byte, error) { return inner.do(ctx, call) }
	for i := len(interceptors) - 1; i >= 0; i-- {
		around = interceptors[i](around)
	}
	return around
}

// around gives what makes the endpoint's calls, if that is not the endpoint alone.
func (endpoint *Endpoint) around() CallFunc {
	if endpoint == nil || endpoint.connection == nil {
		return nil
	}
	return endpoint.connection.around
}

// interceptedBatch makes the calls of a batch one by one, at once. They gather by themselves.
func (c *connection) interceptedBatch(ctx context.Context, count int, from source) []Result {
	results := make([]Result, count)
	var ended sync.WaitGroup
	ended.Add(count)
	for i := range results {
		call := from.at(i)
		call.connection = c
		result := &results[i]
		go func() {
			defer ended.Done()
			result.Reply, result.Err = c.around(ctx, &call)
		}()
	}
	ended.Wait()
	return results
}
