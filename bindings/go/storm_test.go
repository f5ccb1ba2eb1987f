package copyrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// stormInterval is the time between two signals.
const stormInterval = 200 * time.Microsecond

// storm has an interval timer send signals to this process, until as many have come as TEST_INTERRUPTS says. Some thread takes each,
// of Go's or in C. `over` is closed then, and the timer has ended.
func storm(t *testing.T) (over <-chan struct{}) {
	t.Helper()
	wanted := 1000
	if text := os.Getenv("TEST_INTERRUPTS"); text != "" {
		var err error
		wanted, err = strconv.Atoi(text)
		check(t, err)
	}
	signals, ended := make(chan os.Signal, 100), make(chan struct{})
	signal.Notify(signals, syscall.SIGALRM)
	setTimer := func(interval time.Duration) {
		value := [2]syscall.Timeval{syscall.NsecToTimeval(int64(interval)), syscall.NsecToTimeval(int64(interval))}
		_, _, errno := syscall.Syscall(syscall.SYS_SETITIMER, 0 /* ITIMER_REAL */, uintptr(unsafe.Pointer(&value)), 0)
		if errno != 0 {
			panic(errno)
		}
	}
	stop := sync.OnceFunc(func() {
		setTimer(0)
		close(ended)
	})
	go func() {
		for taken := 0; taken < wanted; taken++ {
			select {
			case <-signals:
			case <-ended:
				return
			}
		}
		t.Logf("%d signals were taken", wanted)
		stop()
	}()
	t.Cleanup(func() { // a signal that is late must still have somebody who takes it
		stop()
		time.Sleep(10 * time.Millisecond)
		signal.Ignore(syscall.SIGALRM)
	})
	setTimer(stormInterval)
	return ended
}

func isOver(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// Every call gets its own reply, every request comes once, and calls that are canceled end.
func TestAStormOnCalls(t *testing.T) {
	p := newPair(t)
	const callers = 20
	var mutex sync.Mutex
	next := map[uint64]uint64{} // of each caller, the number that comes next
	var twice atomic.Int64
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		caller, number := binary.LittleEndian.Uint64(request.Payload), binary.LittleEndian.Uint64(request.Payload[8:])
		mutex.Lock()
		defer mutex.Unlock()
		if number != next[caller] {
			twice.Add(1)
		}
		next[caller]++
		return request.Payload, nil
	})
	ctx := limited(t)
	over := storm(t)
	var all sync.WaitGroup
	failed := make(chan error, callers+1)
	var calls atomic.Uint64
	for caller := uint64(0); caller < callers; caller++ {
		all.Add(1)
		go func(caller uint64) {
			defer all.Done()
			last := false
			for number := uint64(0); !last; number++ {
				last = isOver(over)
				request := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, caller), number)
				reply, err := p.client.Call(ctx, request)
				if err == nil && !bytes.Equal(reply, request) {
					err = fmt.Errorf("caller %d: another one's reply", caller)
				}
				if err != nil {
					failed <- err
					return
				}
				calls.Add(1)
			}
		}(caller)
	}
	// The other way nobody answers: these are canceled, or their time passes.
	all.Add(1)
	go func() {
		defer all.Done()
		for i := 0; !isOver(over); i++ {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			if i%2 == 0 {
				cancel()
			}
			_, err := p.server.Call(short, nil)
			cancel()
			if !errors.Is(err, copyrpc.ErrCanceled) && !errors.Is(err, copyrpc.ErrTimeout) {
				failed <- fmt.Errorf("nobody answers: %v", err)
				return
			}
		}
	}()
	all.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	if twice.Load() != 0 {
		t.Fatalf("%d requests came twice, or were lost", twice.Load())
	}
	t.Logf("%d calls", calls.Load())
}

// Connecting, serving and its end, raw contexts that wait.
func TestAStormOnConnections(t *testing.T) {
	ctx := limited(t)
	over := storm(t)
	connections := 0
	for last := false; !last; {
		last = isOver(over)
		listener, err := copyrpc.Listen(host()+":0", patient()...)
		check(t, err)
		serving, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- listener.Serve(serving, echo) }()
		for i := 0; i < 10; i++ {
			client, err := copyrpc.Dial(ctx, listener.Address())
			check(t, err)
			reply, err := client.Call(ctx, []byte("once"))
			check(t, err)
			if string(reply) != "once" {
				t.Fatalf("%q", reply)
			}
			if i%2 == 0 {
				check(t, client.Shutdown(ctx))
			}
			check(t, client.Close())
			connections++
		}
		stop()
		check(t, <-ended)
	}
	t.Logf("%d connections", connections)
}

// What waits without anything coming is not woken for good, nor left asleep.
func TestAStormOnRawWaits(t *testing.T) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{Ops: 1, Completions: 16, PayloadBytes: 1})
	check(t, err)
	defer raw.Close()
	over := storm(t)
	waits := 0
	for ; !isOver(over); waits++ {
		short, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
		err := raw.Wait(short)
		cancel()
		if err != nil {
			is(t, err, copyrpc.ErrTimeout)
		}
		if count, status := raw.Poll(); count != 0 || status != copyrpc.OK {
			t.Fatalf("%d completions, %v", count, status)
		}
	}
	t.Logf("%d waits", waits)
}

// Every message arrives, once and in order.
func TestAStormOnChannels(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	over := storm(t)
	received := make(chan error, 1)
	var count uint64
	go func() {
		for ; ; count++ {
			message, err := p.right.ReceiveBytes(ctx, 3000, 0)
			if err == nil && (len(message) != 9+int(count%2991) || binary.LittleEndian.Uint64(message) != count) {
				err = fmt.Errorf("message %d is not what was sent", count)
			}
			if err != nil || message[8] == 1 {
				received <- err
				return
			}
		}
	}()
	message := make([]byte, 3000)
	number := uint64(0)
	for last := false; !last; number++ {
		last = isOver(over)
		binary.LittleEndian.PutUint64(message, number)
		if last {
			message[8] = 1
		}
		check(t, p.left.SendBytes(ctx, message[:9+number%2991], 0))
	}
	check(t, came(t, received, "the last message"))
	if count+1 != number {
		t.Fatalf("%d of %d messages came", count+1, number)
	}
	t.Logf("%d messages", number)
}
