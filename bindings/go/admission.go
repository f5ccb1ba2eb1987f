// admission.go: a bound on the requests that handlers have at a time.

package copyrpc

import "sync/atomic"

// WithRequestsMax sets how many handlers of Serve may run at a time; any number, if not set or 0. What comes beyond it
// is answered with [StatusResourceExhausted] at once, without a goroutine, and is counted: Stats.Overloaded. For Listen,
// this is the bound of all connections of the listener together; for Dial, blobs and Accept, of the one endpoint.
func WithRequestsMax(count int) Option {
	return func(s *settings) {
		s.number("the bound on requests", count)
		s.admission = newAdmission(count)
	}
}

// admission counts the handlers that run, of one endpoint or of all of a listener. nil: any number may.
type admission struct {
	most    int64
	running atomic.Int64
	refused atomic.Uint64
}

func newAdmission(most int) *admission {
	if most <= 0 {
		return nil
	}
	return &admission{most: int64(most)}
}

// enter tells whether one more handler may run; then `leave` must follow.
func (a *admission) enter() bool {
	if a == nil {
		return true
	}
	if a.running.Add(1) > a.most {
		a.running.Add(-1)
		return false
	}
	return true
}

func (a *admission) leave() {
	if a != nil {
		a.running.Add(-1)
	}
}

func (a *admission) overloaded() uint64 {
	if a == nil {
		return 0
	}
	return a.refused.Load()
}

// sharedAdmission is an option of Accept: the bound of the listener, unless another option follows.
func sharedAdmission(a *admission) Option { return func(s *settings) { s.admission = a } }

// overload answers a request that no handler may have now, and whose place in an arena was given back.
func (request *Request) overload() {
	c := request.connection
	c.serving.admission.refused.Add(1)
	c.overloaded.Add(1)
	c.poller.overloaded.Add(1)
	request.fail(StatusResourceExhausted, "the server has as many requests open as it takes: try again later")
}
