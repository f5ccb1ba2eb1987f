package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// openSharing opens a context whose endpoints connect by DC and share so many initiators.
func openSharing(t *testing.T, count int) *copyrpc.Context {
	t.Helper()
	c, err := copyrpc.Open(copyrpc.WithInitiators(count))
	if errors.Is(err, copyrpc.ErrUnsupported) {
		t.Skip("the driver has no dynamic queue pairs")
	}
	check(t, err)
	t.Cleanup(func() { c.Close() })
	info, err := c.Info()
	check(t, err)
	if info.Initiators != count {
		t.Fatalf("%d initiators, not %d", info.Initiators, count)
	}
	return c
}

func TestInitiatorsThatThereAreNot(t *testing.T) {
	_, err := copyrpc.Open(copyrpc.WithDriver("verbs"), copyrpc.WithInitiators(1))
	is(t, err, copyrpc.ErrUnsupported)
	if !strings.Contains(err.Error(), "mlx5") {
		t.Error(err)
	}
	for _, count := range []int{-1, 1025, 1 << 40} {
		_, err := copyrpc.Open(copyrpc.WithInitiators(count))
		is(t, err, copyrpc.ErrInvalid)
		if !strings.Contains(err.Error(), "initiators") {
			t.Error(err)
		}
	}
}

// Every endpoint has a goroutine that calls, so that all but one or two wait for an initiator.
func TestInitiatorsAreSharedByMany(t *testing.T) {
	const endpoints = 16
	sizes := []int{0, 1, 500, 9000, 100_000}
	for _, count := range []int{1, 2} {
		server, clients := openSharing(t, count), openSharing(t, count)
		listener, err := server.Listen(host()+":0", patient()...)
		check(t, err)
		ctx, cancel := context.WithCancel(limited(t))
		served := make(chan error, 1)
		go func() { served <- listener.Serve(ctx, echo) }()
		var callers sync.WaitGroup
		for i := 0; i < endpoints; i++ {
			client, err := clients.Dial(ctx, listener.Address())
			check(t, err)
			callers.Add(1)
			go func(number int) {
				defer callers.Done()
				for round := 0; round < 4*len(sizes); round++ {
					payload := bytes.Repeat([]byte{byte(number), byte(round)}, sizes[(number+round)%len(sizes)])
					reply, err := client.Do(ctx, copyrpc.Call{Request: payload, ReplyBytesMax: max(len(payload), 1)})
					if err != nil || !bytes.Equal(reply, payload) {
						t.Errorf("endpoint %d, round %d: %d bytes of %d, %v", number, round, len(reply), len(payload), err)
					}
				}
				if err := client.Shutdown(ctx); err != nil {
					t.Error(err)
				}
				client.Close()
			}(i)
		}
		callers.Wait()
		cancel()
		check(t, <-served)
	}
}

func TestInitiatorsOfOneSideAlone(t *testing.T) {
	words := map[bool]string{false: "this one has none", true: "this context has initiators"}
	sharing, plain := openSharing(t, 1), openContext(t)
	for _, here := range []bool{false, true} {
		client, server := plain, sharing
		if here {
			client, server = sharing, plain
		}
		listener, err := server.Listen(host()+":0", patient()...)
		check(t, err)
		differs := func(err error, has bool) {
			t.Helper()
			is(t, err, copyrpc.ErrVersion)
			if !strings.Contains(err.Error(), words[has]) || !strings.Contains(err.Error(), "on both sides or on neither") {
				t.Error(err)
			}
		}
		_, err = client.Dial(limited(t), listener.Address())
		differs(err, here)
		check(t, listener.Close())
		ours, err := client.NewBlob()
		check(t, err)
		theirs, err := server.NewBlob()
		check(t, err)
		_, err = ours.Join(limited(t), theirs.Bytes)
		differs(err, here)
		_, err = theirs.Join(limited(t), ours.Bytes)
		differs(err, !here)
		check(t, ours.Close())
		check(t, theirs.Close())
	}
}

func TestInitiatorsLeaveNoQueuePairOfOnesOwn(t *testing.T) {
	c := openSharing(t, 1)
	_, err := c.NewBlob(copyrpc.WithLane())
	is(t, err, copyrpc.ErrUnsupported)
	_, err = c.NewBlob(copyrpc.WithRetry(14, 6))
	is(t, err, copyrpc.ErrInvalid)
	if count := endpointsOf(t, c); count != 0 {
		t.Errorf("%d endpoints", count)
	}
	client, server := joined(t, c, openSharing(t, 2))
	check(t, client.Close())
	check(t, server.Close())
}
