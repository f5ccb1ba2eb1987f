package copyrpc_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// host is an address of an RDMA device: simnic's first rail, unless the environment says otherwise (tests/place.h).
func host() string {
	if address := os.Getenv("TEST_ADDRESS"); address != "" {
		return address
	}
	return "127.0.0.1"
}

// limited gives a context that ends a test which hangs, well before `go test` does.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails the test unless err is an error of that status, with a text for people.
func is(t testing.TB, err error, status copyrpc.Status) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Fatalf("got %v, want %s", err, status.Name())
	}
	var e *copyrpc.Error
	if !errors.As(err, &e) || e.Status != status || e.Message == "" || e.Op == "" {
		t.Fatalf("%#v is no *Error with status, Op and Message", err)
	}
}

// patient has connecting take as long as a busy machine needs, unless the options say otherwise. Dial has that from its context's
// deadline; who accepts has not, and the default is 5 s.
func patient(options ...copyrpc.Option) []copyrpc.Option {
	return append([]copyrpc.Option{copyrpc.WithConnectTimeout(time.Minute)}, options...)
}

// pair is a client and a server endpoint in contexts of their own.
type pair struct {
	clientContext, serverContext *copyrpc.Context
	listener                     *copyrpc.Listener
	client, server               *copyrpc.Endpoint
}

func openContext(t testing.TB, options ...copyrpc.Option) *copyrpc.Context {
	t.Helper()
	c, err := copyrpc.Open(options...)
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func newPair(t testing.TB, options ...copyrpc.Option) *pair {
	t.Helper()
	ctx := limited(t)
	p := &pair{clientContext: openContext(t), serverContext: openContext(t)}
	var err error
	p.listener, err = p.serverContext.Listen(host()+":0", patient(options...)...)
	check(t, err)
	t.Cleanup(func() { p.listener.Close() })
	p.client, p.server = p.connect(t, ctx, options...)
	return p
}

func (p *pair) connect(t testing.TB, ctx context.Context, options ...copyrpc.Option) (client, server *copyrpc.Endpoint) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = p.listener.Accept(ctx)
		accepted <- err
	}()
	client, err := p.clientContext.Dial(ctx, p.listener.Address(), options...)
	check(t, err)
	check(t, <-accepted)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func echo(_ context.Context, request *copyrpc.Request) ([]byte, error) { return request.Payload, nil }

// serve has the server's side answer until the test ends.
func (p *pair) serve(t testing.TB, handler copyrpc.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		p.server.Serve(ctx, handler)
	}()
	t.Cleanup(func() { cancel(); done.Wait() })
}

// warnings collects what Warn gets while the test runs.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

var collected warnings

func TestMain(m *testing.M) {
	if address := os.Getenv(lastingServer); address != "" {
		serveLasting(address, os.Args[1])
		os.Exit(0)
	}
	copyrpc.Warn = func(text string) {
		collected.mutex.Lock()
		collected.texts = append(collected.texts, text)
		collected.mutex.Unlock()
	}
	os.Exit(m.Run())
}

func (w *warnings) take() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// mapped is memory that is not Go's, until the test ends.
func mapped(t testing.TB, bytes int) []byte {
	t.Helper()
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	check(t, err)
	t.Cleanup(func() { syscall.Munmap(memory) })
	return memory
}

func pointer(memory []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(memory)) }

// isSender tells whether a datagram came from an address. Within an InfiniBand subnet the GID does not travel, and the LID says it.
func isSender(from, here copyrpc.QueueAddress) bool {
	return from.QueuePairNumber == here.QueuePairNumber && from.LID == here.LID && (from.GID == here.GID || here.InfiniBand)
}
