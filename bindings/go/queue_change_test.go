package copyrpc_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

func queueInfo(t testing.TB, queue interface {
	Info() (copyrpc.QueueInfo, error)
}) copyrpc.QueueInfo {
	t.Helper()
	info, err := queue.Info()
	check(t, err)
	return info
}

func TestModifyAccess(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	check(t, p.right.Modify(copyrpc.ChangeAccess(copyrpc.RemoteRead)))
	if access := queueInfo(t, p.right).Access; access != copyrpc.RemoteRead {
		t.Fatal(access)
	}
	check(t, p.left.Read(ctx, p.here.Slice(0, 8), p.remote))
	check(t, p.right.Modify(copyrpc.ChangeAccess(copyrpc.RemoteRead|copyrpc.RemoteWrite)))
	check(t, p.left.Write(ctx, p.here.Slice(0, 8), p.remote))
	check(t, p.right.Modify(copyrpc.ChangeAccess(0)))
	is(t, p.left.Write(ctx, p.here.Slice(0, 8), p.remote), copyrpc.ErrAccess)
	<-p.left.Done()
	// Why it has ended: whichever side is heard of first.
	if err := p.left.Modify(copyrpc.ChangeAccess(0)); !errors.Is(err, copyrpc.ErrAccess) && !errors.Is(err, copyrpc.ErrDisconnected) {
		t.Fatal(err)
	}
	check(t, p.left.Close())
	is(t, p.left.Modify(copyrpc.ChangeAccess(0)), copyrpc.ErrClosed)
}

func TestModifyTheRest(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	check(t, p.right.Modify(copyrpc.ChangeNotReadyWait(100*time.Millisecond)))
	before := queueInfo(t, p.right)
	if before.NotReadyWait != 122880*time.Microsecond {
		t.Fatal(before.NotReadyWait)
	}
	for _, change := range []copyrpc.QueueChange{copyrpc.ChangeRetryTimeout(16), copyrpc.ChangeRetryCount(3), copyrpc.ChangeNotReadyRetryCount(3)} {
		err := p.right.Modify(copyrpc.ChangeAccess(0), change)
		is(t, err, copyrpc.ErrUnsupported)
		if !strings.Contains(err.Error(), "retry_") {
			t.Fatal(err)
		}
	}
	after := queueInfo(t, p.right)
	if after.Access != before.Access || after.RetryTimeout != before.RetryTimeout || after.RetryCount != before.RetryCount {
		t.Fatalf("%+v, %+v", before, after)
	}
	check(t, p.left.Write(ctx, p.here.Slice(0, 8), p.remote))
	for _, changes := range [][]copyrpc.QueueChange{{}, {copyrpc.ChangeQueueKey(1)}, {copyrpc.ChangeSRQLimit(1)}, {copyrpc.ChangeRetryCount(-1)},
		{copyrpc.ChangeNotReadyWait(-1)}, {copyrpc.ChangeNotReadyWait(time.Second)}, {copyrpc.ChangeAccess(copyrpc.LocalWrite)}} {
		is(t, p.right.Modify(changes...), copyrpc.ErrInvalid)
	}
	var never *copyrpc.Queue
	is(t, never.Modify(copyrpc.ChangeAccess(0)), copyrpc.ErrClosed)
	var blob *copyrpc.QueueBlob
	is(t, blob.Modify(copyrpc.ChangeAccess(0)), copyrpc.ErrClosed)
	var shared *copyrpc.SharedReceives
	is(t, shared.RunLow(ctx, 1), copyrpc.ErrClosed)
}

func TestModifyBlob(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	left, err := p.contexts[0].NewQueueBlob(copyrpc.QueueOptions{})
	check(t, err)
	right, err := p.contexts[1].NewQueueBlob(copyrpc.QueueOptions{})
	check(t, err)
	check(t, right.Modify(copyrpc.ChangeAccess(copyrpc.RemoteRead), copyrpc.ChangeRetryTimeout(15), copyrpc.ChangeRetryCount(2),
		copyrpc.ChangeNotReadyRetryCount(3)))
	joined := make(chan error, 1)
	var far *copyrpc.Queue
	go func() {
		var err error
		far, err = right.Join(ctx, left.Bytes)
		joined <- err
	}()
	near, err := left.Join(ctx, right.Bytes)
	check(t, err)
	defer near.Close()
	check(t, <-joined)
	defer far.Close()
	if info := queueInfo(t, far); info.RetryTimeout != 15 || info.RetryCount != 2 || info.NotReadyRetryCount != 3 {
		t.Fatalf("%+v", info)
	}
	check(t, near.Read(ctx, p.here.Slice(0, 8), p.remote))
	is(t, near.Write(ctx, p.here.Slice(0, 8), p.remote), copyrpc.ErrAccess)
}

func TestModifyDatagrams(t *testing.T) {
	c := openContext(t, copyrpc.WithQueues())
	d, err := c.OpenDatagrams(copyrpc.QueueOptions{})
	check(t, err)
	defer d.Close()
	check(t, d.Modify(copyrpc.ChangeQueueKey(5)))
	if key := queueInfo(t, d).QueueKey; key != 5 {
		t.Fatal(key)
	}
	is(t, d.Modify(copyrpc.ChangeQueueKey(0x80000000)), copyrpc.ErrInvalid)
	is(t, d.Modify(copyrpc.ChangeAccess(0)), copyrpc.ErrInvalid)
}

// Their context has no time for them until the messages have come: without receives these would wait, too.
func TestReceivesPostedBeforeALimitCount(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	shared, err := p.contexts[1].OpenSharedReceives(copyrpc.QueueOptions{Receives: 8})
	check(t, err)
	defer shared.Close()
	near, far := p.connect(t, copyrpc.QueueOptions{}, copyrpc.QueueOptions{Shared: shared})
	defer far.Close()
	defer p.contexts[1].Hold()()
	for i := 0; i < 3; i++ {
		_, err := shared.PostReceive(p.there.Slice(0, 16))
		check(t, err)
	}
	check(t, shared.SetLow(2))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	check(t, near.Send(ctx, p.here.Slice(0, 8)))
	check(t, near.Send(ctx, p.here.Slice(0, 8)))
}

func TestSharedReceivesRunLow(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{})
	ctx := limited(t)
	shared, err := p.contexts[1].OpenSharedReceives(copyrpc.QueueOptions{Receives: 8})
	check(t, err)
	defer shared.Close()
	near, far := p.connect(t, copyrpc.QueueOptions{}, copyrpc.QueueOptions{Shared: shared})
	for i := 0; i < 8; i++ {
		_, err := shared.PostReceive(p.there.Slice(0, 16))
		check(t, err)
	}
	for _, round := range []struct{ limit, sends int }{{6, 2}, {4, 1}} { // the limit is set again
		low := make(chan error, 1)
		go func() { low <- shared.RunLow(ctx, round.limit) }()
		for queueInfo(t, shared).SRQLimit != round.limit {
			runtime.Gosched()
		}
		for i := 0; i < round.sends; i++ {
			check(t, near.Send(ctx, p.here.Slice(0, 8)))
		}
		select {
		case err := <-low:
			t.Fatalf("exactly %d are left: %v", round.limit, err)
		case <-time.After(50 * time.Millisecond):
		}
		check(t, near.Send(ctx, p.here.Slice(0, 8)))
		check(t, <-low)
	}
	is(t, shared.RunLow(ctx, 0), copyrpc.ErrInvalid)
	is(t, shared.RunLow(ctx, 9), copyrpc.ErrInvalid)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	is(t, shared.RunLow(canceled, 1), copyrpc.ErrCanceled)
	ended := make(chan error, 1)
	go func() { ended <- shared.RunLow(ctx, 2) }()
	for queueInfo(t, shared).SRQLimit != 2 {
		runtime.Gosched()
	}
	check(t, far.Close())
	check(t, shared.Close())
	is(t, <-ended, copyrpc.ErrClosed)
}
