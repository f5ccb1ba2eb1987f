package copyrpc_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// ---- The server, a process that is killed and started -------------------------------------------

// lastingServer is the variable that makes this program a server, at the address that it names.
const lastingServer = "TEST_LASTING_SERVER"

const (
	methodEcho = iota
	methodHold // answered when the server ends gracefully
)

// serveLasting writes the payload of each request to a file before it answers. SIGTERM ends it gracefully.
func serveLasting(address, file string) {
	done, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := copyrpc.Listen(address, patient()...)
	if err != nil {
		panic(err)
	}
	fmt.Println("listening")
	err = listener.Serve(ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		if _, err := done.Write(append(request.Payload[:len(request.Payload):len(request.Payload)], '\n')); err != nil {
			panic(err)
		}
		if request.Method == methodHold {
			<-ctx.Done()
		}
		return request.Payload, nil
	})
	if err != nil {
		panic(err)
	}
}

type process struct {
	address, file string
	command       *exec.Cmd // nil: it does not run
}

var ports atomic.Int32

func newProcess(t testing.TB) *process {
	p := &process{address: host() + ":" + strconv.Itoa(int(23000+ports.Add(1)))}
	file, err := os.CreateTemp(t.TempDir(), "done")
	check(t, err)
	p.file = file.Name()
	check(t, file.Close())
	t.Cleanup(func() { p.end(t, syscall.SIGKILL) })
	return p
}

func (p *process) start(t testing.TB) {
	t.Helper()
	p.command = exec.Command(os.Args[0], p.file)
	p.command.Env = append(os.Environ(), lastingServer+"="+p.address)
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	check(t, err)
	check(t, p.command.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
}

func (p *process) end(t testing.TB, how syscall.Signal) {
	if p.command != nil {
		check(t, p.command.Process.Signal(how))
		p.command.Wait()
		p.command = nil
	}
}

// done is what it has begun, of all its lives, and how often.
func (p *process) done(t testing.TB) map[string]int {
	text, err := os.ReadFile(p.file)
	check(t, err)
	found := map[string]int{}
	for _, line := range bytes.Split(text, []byte("\n")) {
		if len(line) > 0 {
			found[string(line)]++
		}
	}
	return found
}

func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func (p *process) waitFor(t testing.TB, payload string, count int) {
	t.Helper()
	until(t, payload, func() bool { return p.done(t)[payload] >= count })
}

func lastingOptions(options ...copyrpc.Option) []copyrpc.Option {
	return append([]copyrpc.Option{copyrpc.WithReconnect(2*time.Millisecond, 20*time.Millisecond),
		copyrpc.WithKeepalive(200 * time.Millisecond)}, options...)
}

// lasting is an endpoint that comes back, and what it has told.
type lasting struct {
	*copyrpc.Endpoint
	states chan copyrpc.ConnectionState
}

func dialLasting(t testing.TB, addresses string, options ...copyrpc.Option) *lasting {
	t.Helper()
	l := &lasting{states: make(chan copyrpc.ConnectionState, 10000)}
	var err error
	hear := copyrpc.WithConnectionState(func(state copyrpc.ConnectionState) { l.states <- state })
	l.Endpoint, err = openContext(t).Dial(limited(t), addresses, lastingOptions(append(options, hear)...)...)
	check(t, err)
	t.Cleanup(func() { l.Close() })
	l.until(t, "it connects", connected)
	return l
}

func connected(state copyrpc.ConnectionState) bool { return state.Connected }
func away(state copyrpc.ConnectionState) bool      { return !state.Connected }

func (l *lasting) until(t testing.TB, what string, condition func(copyrpc.ConnectionState) bool) copyrpc.ConnectionState {
	t.Helper()
	for {
		select {
		case state := <-l.states:
			if condition(state) {
				return state
			}
		case <-time.After(60 * time.Second):
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// going is a call under way.
func (l *lasting) going(t testing.TB, call copyrpc.Call) <-chan copyrpc.Result {
	result, ctx := make(chan copyrpc.Result, 1), limited(t)
	go func() {
		reply, err := l.Do(ctx, call)
		result <- copyrpc.Result{Reply: reply, Err: err}
	}()
	return result
}

func (l *lasting) echo(t testing.TB, payload string) {
	t.Helper()
	reply, err := l.Do(limited(t), copyrpc.Call{Request: []byte(payload), Idempotent: true})
	if err != nil || string(reply) != payload {
		t.Fatalf("%q, %v instead of %q", reply, err, payload)
	}
}

func (l *lasting) info(t testing.TB) copyrpc.EndpointInfo {
	t.Helper()
	info, err := l.Info()
	check(t, err)
	return info
}
