package copyrpc_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func hintName(t *testing.T) string {
	name := fmt.Sprintf("/copyrpc-go-hint-%d", os.Getpid())
	t.Cleanup(func() { os.Remove("/dev/shm" + name) })
	return name
}

// carried is what rail 0 carries of a message now, in 1/1024.
func (p *channels) carried(t *testing.T) uint64 {
	t.Helper()
	const size = 128 << 10
	before, err := p.left.Stats()
	check(t, err)
	received := make(chan error)
	go func() {
		_, err := p.right.Receive(limited(t), p.in.Slice(0, size))
		received <- err
	}()
	check(t, p.left.Send(limited(t), p.out.Slice(0, size)))
	check(t, <-received)
	after, err := p.left.Stats()
	check(t, err)
	return (after.Rails[0].BytesSent - before.Rails[0].BytesSent) * 1024 / size
}

func TestAShareHintIsFollowedWhileItIsGood(t *testing.T) {
	name := hintName(t)
	hint, err := copyrpc.OpenShareHint(name)
	check(t, err)
	p := newChannels(t, copyrpc.WithShareHint(name))
	for _, share := range []int{100, 1024, 0, 512} {
		check(t, hint.Publish(share, time.Minute))
		if got := p.carried(t); got != uint64(share) {
			t.Fatalf("%d, not %d", got, share)
		}
	}
	check(t, hint.Publish(1024, time.Millisecond))
	time.Sleep(2 * time.Millisecond)
	if got := p.carried(t); got == 1024 {
		t.Fatal("followed after its time")
	}
	check(t, hint.Publish(0, time.Minute))
	check(t, hint.Close())
	if got := p.carried(t); got == 0 {
		t.Fatal("followed after it was withdrawn")
	}
}

func TestAShareHintHasOneWriter(t *testing.T) {
	name := hintName(t)
	hint, err := copyrpc.OpenShareHint(name)
	check(t, err)
	_, err = copyrpc.OpenShareHint(name)
	is(t, err, copyrpc.ErrBusy)
	if !strings.Contains(err.Error(), name) {
		t.Fatal(err)
	}
	for _, share := range []int{-1, 1025} {
		is(t, hint.Publish(share, time.Second), copyrpc.ErrInvalid)
	}
	for _, lifetime := range []time.Duration{-1, time.Minute + 1} {
		is(t, hint.Publish(1, lifetime), copyrpc.ErrInvalid)
	}
	check(t, hint.Publish(1, 0))
	check(t, hint.Close())
	check(t, hint.Close())
	is(t, hint.Publish(1, 0), copyrpc.ErrClosed)
	other, err := copyrpc.OpenShareHint(name)
	check(t, err)
	check(t, other.Close())
	for _, wrong := range []string{"", "x", "/", "/x/y", "/x\x00", "/" + strings.Repeat("x", 63)} {
		_, err := copyrpc.OpenShareHint(wrong)
		is(t, err, copyrpc.ErrInvalid)
	}
}
