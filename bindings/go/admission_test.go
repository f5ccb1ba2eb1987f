package copyrpc_test

import (
	"context"
	"errors"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// held has handlers that wait until they are let go; "x" is answered at once.
type held struct {
	begun chan struct{}
	goOn  chan struct{}
}

func newHeld() *held { return &held{make(chan struct{}, 100), make(chan struct{})} }

func (h *held) handle(_ context.Context, request *copyrpc.Request) ([]byte, error) {
	h.begun <- struct{}{}
	<-h.goOn
	return request.Payload, nil
}

// hold makes `count` calls, and returns when handlers have all of them.
func (h *held) hold(t *testing.T, client *copyrpc.Endpoint, count int) <-chan error {
	ended := make(chan error, count)
	ctx := limited(t)
	for i := 0; i < count; i++ {
		go func() {
			_, err := client.Call(ctx, []byte("held"))
			ended <- err
		}()
	}
	for i := 0; i < count; i++ {
		came(t, h.begun, "a handler")
	}
	return ended
}

func (h *held) letGo(t *testing.T, ended <-chan error) {
	close(h.goOn)
	for i := 0; i < cap(ended); i++ {
		check(t, came(t, ended, "a held call"))
	}
}

func isOverload(t *testing.T, client *copyrpc.Endpoint) {
	t.Helper()
	_, err := client.Call(limited(t), []byte("one more"))
	if !errors.Is(err, copyrpc.StatusResourceExhausted) {
		t.Fatalf("a request beyond the bound: %v", err)
	}
}

func TestRequestsBeyondTheBoundAreRefusedAtOnce(t *testing.T) {
	h := newHeld()
	s := serveOne(t, h.handle, copyrpc.WithRequestsMax(3))
	second, err := openContext(t).Dial(limited(t), s.listener.Address())
	check(t, err)
	defer second.Close()
	first, rest := h.hold(t, s.client, 2), h.hold(t, second, 1)
	for i := 0; i < 5; i++ { // the bound is that of all connections of the listener
		isOverload(t, s.client)
		isOverload(t, second)
	}
	// Whoever has no room for a text is told, too.
	if _, err = second.Do(limited(t), copyrpc.Call{ReplyBytesMax: copyrpc.NoReplyBytes}); !errors.Is(err, copyrpc.StatusResourceExhausted) {
		t.Error(err)
	}
	stats, err := s.listener.Stats()
	check(t, err)
	if stats.Overloaded != 11 {
		t.Errorf("%d refused, not 11", stats.Overloaded)
	}
	h.letGo(t, first)
	check(t, came(t, rest, "the other held call"))
	for i := 0; i < 10; i++ { // each handler that has ended makes room, a moment after its reply
		for {
			if _, err = s.client.Call(limited(t), []byte("again")); !errors.Is(err, copyrpc.StatusResourceExhausted) {
				break
			}
		}
		check(t, err)
	}
}

func TestAnEndpointHasABoundOfItsOwn(t *testing.T) {
	h := newHeld()
	p := newPair(t)
	client, server := p.connect(t, limited(t), copyrpc.WithRequestsMax(1))
	// The one that dialed serves here.
	serveUntilTheEnd(t, client, h.handle)
	ended := h.hold(t, server, 1)
	isOverload(t, server)
	isOverload(t, server)
	stats, err := client.Stats()
	check(t, err)
	all, err := p.clientContext.Stats()
	check(t, err)
	if stats.Overloaded != 2 || all.Overloaded != 2 {
		t.Errorf("the endpoint has refused %d, and its context %d", stats.Overloaded, all.Overloaded)
	}
	h.letGo(t, ended)
}

func TestRequestsThatCameBeforeServeAreBoundToo(t *testing.T) {
	h := newHeld()
	p := newPair(t)
	client, server := p.connect(t, limited(t), copyrpc.WithRequestsMax(1))
	results := make(chan []copyrpc.Result, 1)
	ctx := limited(t)
	go func() {
		all, _ := server.CallBatch(ctx, [][]byte{[]byte("1"), []byte("2"), []byte("3")})
		results <- all
	}()
	for {
		info, err := client.Info()
		check(t, err)
		if info.RequestsOpen == 3 {
			break
		}
	}
	serveUntilTheEnd(t, client, h.handle)
	came(t, h.begun, "the first")
	close(h.goOn)
	good := 0
	for _, result := range came(t, results, "the batch") {
		if result.Err == nil {
			good++
		} else if !errors.Is(result.Err, copyrpc.StatusResourceExhausted) {
			t.Error(result.Err)
		}
	}
	stats, err := client.Stats()
	check(t, err)
	if good != 1 || stats.Overloaded != 2 {
		t.Errorf("%d answered, %d refused", good, stats.Overloaded)
	}
}

func TestABoundThatIsNone(t *testing.T) {
	_, err := copyrpc.Listen(host()+":0", copyrpc.WithRequestsMax(-1))
	is(t, err, copyrpc.ErrInvalid)
}
