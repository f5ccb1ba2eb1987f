package copyrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// channels is a channel between contexts of their own, and a region on each side.
type channels struct {
	contexts    [2]*copyrpc.Context
	listener    *copyrpc.ChannelListener
	left, right *copyrpc.Channel
	out, in     *copyrpc.Region
}

const regionBytes = 4 << 20

func newChannels(t testing.TB, options ...copyrpc.Option) *channels {
	t.Helper()
	return newChannelsIn(t, nil, options...)
}

// newChannelsIn does so in contexts with these options.
func newChannelsIn(t testing.TB, ofContexts []copyrpc.Option, options ...copyrpc.Option) *channels {
	t.Helper()
	p := &channels{}
	for i := range p.contexts {
		p.contexts[i] = openContext(t, append(ofContexts, copyrpc.WithRails())...)
	}
	var err error
	p.listener, err = p.contexts[1].ListenChannels(host()+":0", patient(options...)...)
	check(t, err)
	t.Cleanup(func() { p.listener.Close() })
	p.left, p.right = p.connect(t, options...)
	p.bothRails(t)
	p.out, err = p.left.NewRegion(regionBytes)
	check(t, err)
	p.in, err = p.right.NewRegion(regionBytes)
	check(t, err)
	for i := range p.out.Bytes() {
		p.out.Bytes()[i] = byte(i*7 + i>>8)
	}
	return p
}

// bothRails waits until both sides have both rails, for a channel is connected with the first alone if the other is late. What was
// told of them until then is forgotten.
func (p *channels) bothRails(t testing.TB) {
	t.Helper()
	ctx := limited(t)
	for _, ch := range []*copyrpc.Channel{p.left, p.right} {
		for info, err := ch.Info(); info.Rails != [2]copyrpc.RailState{copyrpc.RailUp, copyrpc.RailUp}; info, err = ch.Info() {
			check(t, err)
			check(t, ctx.Err())
			time.Sleep(time.Millisecond)
		}
		for told := true; told; {
			select {
			case <-ch.RailEvents():
			default:
				told = false
			}
		}
	}
}

func (p *channels) connect(t testing.TB, options ...copyrpc.Option) (left, right *copyrpc.Channel) {
	t.Helper()
	ctx := limited(t)
	accepted := make(chan error, 1)
	go func() {
		var err error
		right, err = p.listener.Accept(ctx)
		accepted <- err
	}()
	left, err := p.contexts[0].DialChannel(ctx, p.listener.Address(), options...)
	check(t, err)
	check(t, <-accepted)
	t.Cleanup(func() { left.Close(); right.Close() })
	return left, right
}

// message sends `count` bytes from left to right and checks what arrives.
func (p *channels) message(t testing.TB, count int, tag uint32) {
	t.Helper()
	ctx := limited(t)
	clear(p.in.Bytes()[:count+64])
	receive, err := p.right.PostReceive(p.in.Slice(0, count+64).Tagged(tag))
	check(t, err)
	check(t, p.left.Send(ctx, p.out.Slice(0, count).Tagged(tag)))
	check(t, receive.Wait(ctx))
	if sizes := receive.Sizes(); len(sizes) != 1 || sizes[0] != count {
		t.Fatalf("sizes %v, want %d", sizes, count)
	}
	if !bytes.Equal(p.in.Bytes()[:count], p.out.Bytes()[:count]) {
		t.Fatalf("the %d bytes differ", count)
	}
	for _, b := range p.in.Bytes()[count : count+64] {
		if b != 0 {
			t.Fatal("it wrote past the message")
		}
	}
}

func TestMessagesOfEverySize(t *testing.T) {
	p := newChannels(t)
	for _, count := range []int{0, 1, 127, 128, 129, 4095, 65535, 65536, 65537, 1 << 20, regionBytes - 64} {
		for tag := uint32(0); tag < 3; tag++ {
			p.message(t, count, tag)
		}
	}
	stats, err := p.left.Stats()
	check(t, err)
	if stats.MessagesSent != 33 || stats.Rails[0].BytesSent == 0 || stats.Rails[1].BytesSent == 0 || stats.SendsFailed != 0 {
		t.Fatalf("%+v", stats)
	}
	stats, err = p.right.Stats()
	check(t, err)
	if stats.MessagesReceived != 33 || stats.ReceivesFailed != 0 {
		t.Fatalf("%+v", stats)
	}
	info, err := p.left.Info()
	check(t, err)
	if info.State != copyrpc.StateConnected || info.Rails != [2]copyrpc.RailState{copyrpc.RailUp, copyrpc.RailUp} || info.Slots != 64 ||
		info.QueuePairs != 1 || info.Version == 0 || info.Split != copyrpc.SplitMeasured || info.PeerAddress != p.listener.Address() {
		t.Fatalf("%+v", info)
	}
	rails, err := p.contexts[0].Rails()
	check(t, err)
	if len(rails) != 2 || rails[0].Device == rails[1].Device || rails[0].BufferBytesMax == 0 || rails[1].MTUBytes == 0 {
		t.Fatalf("%+v", rails)
	}
}

// As a network plugin of NCCL does it: post the receive, post the send, test both until they are done.
func TestPostedTransfersAreTested(t *testing.T) {
	p := newChannels(t)
	const many = 300 // more than there are slots and sends: the rest waits its turn
	var receives, sends [many]*copyrpc.Transfer
	var err error
	for i := range sends {
		sends[i], err = p.left.PostSend(p.out.Slice(i, 2*i))
		check(t, err)
		receives[i], err = p.right.PostReceive(p.in.Slice(1024*i, 1024*(i+1)))
		check(t, err)
	}
	for i := range sends {
		for _, transfer := range []*copyrpc.Transfer{receives[i], sends[i]} {
			done, err := transfer.Test()
			for end := time.Now().Add(60 * time.Second); !done && time.Now().Before(end); {
				done, err = transfer.Test()
			}
			check(t, err)
			if !done || len(transfer.Sizes()) != 1 || transfer.Sizes()[0] != i {
				t.Fatalf("transfer %d: done %v, sizes %v", i, done, transfer.Sizes())
			}
			<-transfer.Done()
		}
		if !bytes.Equal(p.in.Bytes()[1024*i:1024*i+i], p.out.Bytes()[i:2*i]) {
			t.Fatalf("the bytes of %d differ", i)
		}
	}
}

// Both sides post more receives than there are slots before either sends: what waits for room in the one direction does not hold
// up the other.
func TestFullQueuesDoNotWaitForEachOther(t *testing.T) {
	p := newChannels(t, copyrpc.WithSlots(2), copyrpc.WithSendsMax(8))
	ctx := limited(t)
	var transfers []*copyrpc.Transfer
	add := func(transfer *copyrpc.Transfer, err error) {
		check(t, err)
		transfers = append(transfers, transfer)
	}
	for i := 0; i < 20; i++ {
		add(p.left.PostReceive(p.out.Slice(1<<20+100*i, 1<<20+100*i+100)))
		add(p.right.PostReceive(p.in.Slice(1<<20+100*i, 1<<20+100*i+100)))
	}
	for i := 0; i < 20; i++ {
		add(p.left.PostSend(p.out.Slice(i, i+50)))
		add(p.right.PostSend(p.in.Slice(i, i+60)))
	}
	for _, transfer := range transfers {
		check(t, transfer.Wait(ctx))
	}
}

func TestGroupsAreFilledByTag(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	var sent sync.WaitGroup
	for i := 0; i < copyrpc.GroupMax; i++ {
		sent.Add(1)
		go func(i int) {
			defer sent.Done()
			if err := p.left.Send(ctx, p.out.Slice(1000*i, 1000*i+10+i).Tagged(uint32(i))); err != nil {
				t.Error(err)
			}
		}(i)
	}
	var buffers []copyrpc.Buffer
	for i := 0; i < copyrpc.GroupMax; i++ {
		buffers = append(buffers, p.in.Slice(2000*i, 2000*i+500).Tagged(uint32(i)))
	}
	sizes, err := p.right.Receive(ctx, buffers...)
	check(t, err)
	sent.Wait()
	for i, size := range sizes {
		if size != 10+i || !bytes.Equal(buffers[i].Bytes()[:size], p.out.Bytes()[1000*i:1000*i+size]) {
			t.Fatalf("buffer %d got %d bytes, or wrong ones", i, size)
		}
	}
	stats, err := p.right.Stats()
	check(t, err)
	if stats.MessagesReceived != 1 {
		t.Fatalf("%+v: a group is one message", stats)
	}
}

func TestTruncatedMessages(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	receive, err := p.right.PostReceive(p.in.Slice(0, 100).Tagged(1), p.in.Slice(100, 200).Tagged(2))
	check(t, err)
	ended := make(chan error, 1)
	go func() { ended <- p.left.Send(ctx, p.out.Slice(0, 101).Tagged(1)) }()
	check(t, p.left.Send(ctx, p.out.Slice(0, 99).Tagged(2)))
	for _, side := range []struct {
		err   error
		sizes string
		room  string
	}{{<-ended, "[101]", "[]"}, {receive.Wait(ctx), "[101 99]", "[100 100]"}} {
		is(t, side.err, copyrpc.ErrTruncated)
		var truncated *copyrpc.TruncatedError
		if !errors.As(side.err, &truncated) || fmt.Sprint(truncated.Sizes) != side.sizes || fmt.Sprint(truncated.Room) != side.room {
			t.Fatalf("%#v", side.err)
		}
		if !strings.Contains(side.err.Error(), "101 bytes") {
			t.Fatal(side.err)
		}
	}
	if p.in.Bytes()[0] != 0 || !bytes.Equal(p.in.Bytes()[100:199], p.out.Bytes()[:99]) {
		t.Fatal("of the group, that buffer alone fails")
	}
	p.message(t, 5000, 1) // and the channel goes on
	_, err = p.right.ReceiveBytes(withSender(t, ctx, p.left, 101), 100, 0)
	is(t, err, copyrpc.ErrTruncated)
}

// withSender sends so many bytes beside the caller.
func withSender(t *testing.T, ctx context.Context, ch *copyrpc.Channel, count int) context.Context {
	go func() { ch.SendBytes(ctx, make([]byte, count), 0) }()
	return ctx
}

func TestWaitingSendsAreCanceled(t *testing.T) {
	p := newChannels(t, copyrpc.WithSendsMax(8))
	ctx, cancel := context.WithCancel(limited(t))
	const senders = 20 // of which C has eight
	ended := make(chan error, senders)
	for i := 0; i < senders; i++ {
		go func() { ended <- p.left.Send(ctx, p.out.Slice(0, 100)) }()
	}
	for info, _ := p.left.Info(); info.SendsOpen < 8; info, _ = p.left.Info() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	for i := 0; i < senders; i++ {
		err := <-ended
		is(t, err, copyrpc.ErrCanceled)
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	short, stop := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer stop()
	err := p.left.Send(short, p.out.Slice(0, 100))
	is(t, err, copyrpc.ErrTimeout)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	posted, err := p.left.PostSend(p.out.Slice(0, 100))
	check(t, err)
	is(t, posted.Wait(short), copyrpc.ErrTimeout) // the waiting, not the send
	if done, err := posted.Test(); done || err != nil || posted.Sizes() != nil {
		t.Fatal(done, err)
	}
	posted.Cancel()
	is(t, posted.Wait(limited(t)), copyrpc.ErrCanceled)
	posted.Cancel()
	p.message(t, 1000, 0)
	for i := 0; i < 2; i++ { // over before they began
		is(t, p.left.Send([]context.Context{ctx, short}[i], p.out.Slice(0, 1)), []copyrpc.Status{copyrpc.ErrCanceled, copyrpc.ErrTimeout}[i])
		_, err = p.left.Receive([]context.Context{ctx, short}[i], p.out.Slice(0, 1))
		is(t, err, []copyrpc.Status{copyrpc.ErrCanceled, copyrpc.ErrTimeout}[i])
	}
}

// cancelWhenPosted gives up the one receive of a channel, but not before the library has it.
func cancelWhenPosted(ch *copyrpc.Channel, cancel context.CancelFunc) {
	defer cancel()
	for {
		if info, err := ch.Info(); err != nil || info.ReceivesOpen > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A receive cannot be taken back: what comes later still goes there.
func TestReceivesStayPosted(t *testing.T) {
	p := newChannels(t)
	ctx, cancel := context.WithCancel(limited(t))
	go cancelWhenPosted(p.right, cancel)
	_, err := p.right.Receive(ctx, p.in.Slice(0, 100))
	is(t, err, copyrpc.ErrCanceled)
	posted, err := p.right.PostReceive(p.in.Slice(100, 200))
	check(t, err)
	posted.Cancel()
	check(t, p.left.Send(limited(t), p.out.Slice(0, 100)))
	check(t, p.left.Send(limited(t), p.out.Slice(1, 51)))
	check(t, posted.Wait(limited(t)))
	if !bytes.Equal(p.in.Bytes()[:100], p.out.Bytes()[:100]) || posted.Sizes()[0] != 50 {
		t.Fatal("the first message went elsewhere")
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSlicesOfGosOwn(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	for _, count := range []int{0, 1, 4096, 4097, copyrpc.StagingBytesMax} {
		for i := 0; i < 3; i++ {
			data := bytes.Repeat([]byte{byte(count + i)}, count)
			ended := make(chan error, 1)
			go func() { ended <- p.left.SendBytes(ctx, data, 7) }()
			got, err := p.right.ReceiveBytes(ctx, max(count, 10), 7)
			check(t, err)
			check(t, <-ended)
			if got == nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes of %d, or wrong ones", len(got), count)
			}
		}
	}
	is(t, p.left.SendBytes(ctx, make([]byte, copyrpc.StagingBytesMax+1), 0), copyrpc.ErrTooBig)
	_, err := p.left.ReceiveBytes(ctx, copyrpc.StagingBytesMax+1, 0)
	is(t, err, copyrpc.ErrTooBig)
	_, err = p.left.ReceiveBytes(ctx, -1, 0)
	is(t, err, copyrpc.ErrInvalid)
	// The message of one that gave up is dropped; the next goes to the next.
	short, cancel := context.WithCancel(ctx)
	go cancelWhenPosted(p.right, cancel)
	_, err = p.right.ReceiveBytes(short, 10, 0)
	is(t, err, copyrpc.ErrCanceled)
	check(t, p.left.SendBytes(ctx, []byte("dropped"), 0))
	go p.left.SendBytes(ctx, []byte("hello"), 0)
	got, err := p.right.ReceiveBytes(ctx, 10, 0)
	check(t, err)
	if string(got) != "hello" {
		t.Fatalf("%q", got)
	}
}

// Any number of goroutines at once, both ways, each with a tag of its own.
func TestManyGoroutinesOnOneChannel(t *testing.T) {
	p := newChannels(t, copyrpc.WithQueuePairs(2))
	ctx := limited(t)
	const pairs, messages = 16, 40
	var all sync.WaitGroup
	for _, way := range [][2]*copyrpc.Channel{{p.left, p.right}, {p.right, p.left}} {
		for i := 0; i < messages; i++ { // the tags of one group each: messages complete in the order of receives
			receive := way[1]
			var buffers []copyrpc.Buffer
			region := p.in
			if receive == p.left {
				region = p.out
			}
			for tag := 0; tag < copyrpc.GroupMax; tag++ {
				at := 1<<20 + (i*copyrpc.GroupMax+tag)*4096
				buffers = append(buffers, region.Slice(at, at+4096).Tagged(uint32(tag)))
			}
			transfer, err := receive.PostReceive(buffers...)
			check(t, err)
			all.Add(1)
			go func() {
				defer all.Done()
				if err := transfer.Wait(ctx); err != nil {
					t.Error(err)
				}
				for tag, size := range transfer.Sizes() {
					if size != 100+tag || buffers[tag].Bytes()[size-1] != byte(tag) {
						t.Errorf("tag %d: %d bytes", tag, size)
					}
				}
			}()
		}
		for tag := 0; tag < copyrpc.GroupMax; tag++ {
			all.Add(1)
			go func(from *copyrpc.Channel, tag int) {
				defer all.Done()
				data := bytes.Repeat([]byte{byte(tag)}, 100+tag)
				for i := 0; i < messages; i++ {
					if err := from.SendBytes(ctx, data, uint32(tag)); err != nil {
						t.Error(err)
						return
					}
				}
			}(way[0], tag)
		}
	}
	all.Wait()
}
