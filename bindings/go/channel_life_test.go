package copyrpc_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// fault breaks something of simnic, or with "none" mends it.
func fault(t testing.TB, spec string) {
	t.Helper()
	simnic := os.Getenv("SIMNIC")
	if simnic == "" {
		t.Skip("no simnic: rails cannot be broken")
	}
	if output, err := exec.Command(simnic, "ctl", "fault", spec).CombinedOutput(); err != nil {
		t.Fatalf("simnic ctl fault %s: %v: %s", spec, err, output)
	}
}

func TestALostRailIsToldAndComesBack(t *testing.T) {
	// A rail is lost after a second without an answer: rail 1, and not rail 0 when a thread of ours stands still for a while.
	p := newChannels(t, copyrpc.WithRetry(15, 7), copyrpc.WithRailRetry(20*time.Millisecond))
	t.Cleanup(func() { fault(t, "none") })
	ctx := limited(t)
	p.message(t, 1<<20, 0)
	for round := 0; round < 2; round++ {
		for _, up := range []bool{false, true} {
			fault(t, map[bool]string{false: "rail1=down", true: "none"}[up])
			told := [2]bool{}
			for !told[0] || !told[1] {
				p.message(t, 1<<20, 0) // no message is lost by it
				for i, ch := range []*copyrpc.Channel{p.left, p.right} {
					select {
					case event := <-ch.RailEvents():
						if event.Rail != 1 {
							t.Fatalf("side %d: %+v", i, event)
						}
						told[i] = event.Up == up // where everything is slow it may be lost once more
					default:
					}
				}
				if ctx.Err() != nil {
					t.Fatal("nobody tells of the rail", up, told)
				}
			}
			want := map[bool]copyrpc.RailState{false: copyrpc.RailDown, true: copyrpc.RailUp}[up]
			for info, err := p.left.Info(); info.Rails[1] != want; info, err = p.left.Info() {
				check(t, err)
				check(t, ctx.Err())
				time.Sleep(time.Millisecond)
			}
		}
	}
	stats, err := p.left.Stats()
	check(t, err)
	if stats.Rails[1].Failures < 2 || stats.Rails[1].Recoveries < 2 || stats.Rails[0].Failures != 0 {
		t.Fatalf("%+v", stats)
	}
	check(t, p.left.Close())
	for range p.left.RailEvents() { // it ends
	}
}

func TestTheShareOfARail(t *testing.T) {
	p := newChannels(t, copyrpc.WithShare(copyrpc.ShareWhole))
	bytesOf := func() [2]uint64 {
		stats, err := p.left.Stats()
		check(t, err)
		return [2]uint64{stats.Rails[0].BytesSent, stats.Rails[1].BytesSent}
	}
	p.message(t, 1<<20, 0)
	if sent := bytesOf(); sent != [2]uint64{1 << 20, 0} {
		t.Fatal(sent)
	}
	check(t, p.left.SetShare(256))
	p.message(t, 1<<20, 0)
	if sent := bytesOf(); sent != [2]uint64{1<<20 + 1<<18, 3 << 18} {
		t.Fatal(sent)
	}
	info, err := p.left.Info()
	check(t, err)
	if info.Split != copyrpc.SplitFixed || info.Share != 256 {
		t.Fatalf("%+v", info)
	}
	is(t, p.left.SetShare(1025), copyrpc.ErrInvalid)
	is(t, p.left.SetShare(-1), copyrpc.ErrInvalid)
	one, _ := p.connect(t, copyrpc.WithRailsUsed(0))
	info, err = one.Info()
	check(t, err)
	if info.Rails != [2]copyrpc.RailState{copyrpc.RailUp, copyrpc.RailNone} {
		t.Fatal(info.Rails)
	}
}

// What is longer than the limit of WithAdaptiveRouting has its immediate in a WRITE of its own.
func TestOrdering(t *testing.T) {
	for _, on := range []bool{true, false} {
		p := newChannelsIn(t, []copyrpc.Option{copyrpc.WithAdaptiveRouting(on, 1000), copyrpc.WithRelaxedOrdering(on), copyrpc.WithECE(on)},
			copyrpc.WithShare(copyrpc.ShareWhole))
		before, err := p.left.Stats()
		check(t, err)
		p.message(t, 1001, 0)
		after, err := p.left.Stats()
		check(t, err)
		if wqes := after.DataWQEs - before.DataWQEs; wqes != map[bool]uint64{true: 2, false: 1}[on] {
			t.Fatalf("%v: %d", on, wqes)
		}
	}
}

// Shutdown lets what was posted before it finish, also what still waited its turn.
func TestShutdownFinishesSends(t *testing.T) {
	p := newChannels(t, copyrpc.WithSendsMax(8))
	ctx := limited(t)
	const many = 20
	var sends, receives []*copyrpc.Transfer
	for i := 0; i < many; i++ {
		send, err := p.left.PostSend(p.out.Slice(0, 1000))
		check(t, err)
		sends = append(sends, send)
	}
	shut := make(chan error, 1)
	go func() { shut <- p.left.Shutdown(ctx) }()
	for i := 0; ; i++ { // it takes nothing more
		if _, err := p.left.PostSend(p.out.Slice(0, 1)); err != nil {
			is(t, err, copyrpc.ErrClosing)
			break
		} else {
			sends = append(sends, nil)
		}
	}
	for range sends {
		receive, err := p.right.PostReceive(p.in.Slice(0, 1000))
		check(t, err)
		receives = append(receives, receive)
	}
	extra, err := p.right.PostReceive(p.in.Slice(0, 1000))
	check(t, err)
	for i := range sends {
		if sends[i] != nil {
			check(t, sends[i].Wait(ctx))
		}
		check(t, receives[i].Wait(ctx))
	}
	is(t, extra.Wait(ctx), copyrpc.ErrDisconnected)
	go p.right.Shutdown(ctx)
	check(t, <-shut)
	_, err = p.left.PostSend(p.out.Slice(0, 1))
	is(t, err, copyrpc.ErrClosed)
	<-p.right.Done()
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	p := newChannels(t)
	send, err := p.left.PostSend(p.out.Slice(0, 1000)) // for which there is never a receive
	check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	is(t, p.left.Shutdown(ctx), copyrpc.ErrTimeout)
	is(t, send.Wait(limited(t)), copyrpc.ErrDisconnected)
}

// What is open ends with the channel, on both sides, and its memory is free again.
func TestCloseEndsWhatIsOpen(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	send, err := p.left.PostSend(p.out.Slice(0, 1000).Tagged(9))
	check(t, err)
	receive, err := p.left.PostReceive(p.out.Slice(1000, 2000))
	check(t, err)
	theirs, err := p.right.PostReceive(p.in.Slice(0, 1000), p.in.Slice(1000, 2000).Tagged(1))
	check(t, err)
	for info, _ := p.left.Info(); info.SendsOpen+info.ReceivesOpen < 2; info, _ = p.left.Info() {
		time.Sleep(time.Millisecond)
	}
	is(t, p.out.Close(), copyrpc.ErrBusy)
	check(t, p.left.Close())
	check(t, p.left.Close())
	for _, transfer := range []*copyrpc.Transfer{send, receive} {
		err := transfer.Wait(ctx)
		is(t, err, copyrpc.ErrClosed)
		if !strings.Contains(err.Error(), "the Channel was closed") {
			t.Fatal(err)
		}
	}
	is(t, theirs.Wait(ctx), copyrpc.ErrDisconnected)
	check(t, p.out.Close())
	<-p.right.Done()
	is(t, p.right.Err(), copyrpc.ErrDisconnected)
	check(t, p.in.Close())
	for _, ch := range []*copyrpc.Channel{p.left, nil, {}} {
		_, err = ch.PostSend(copyrpc.Buffer{})
		is(t, err, copyrpc.ErrClosed)
		_, err = ch.PostReceive(copyrpc.Buffer{})
		is(t, err, copyrpc.ErrClosed)
		is(t, ch.Send(ctx, copyrpc.Buffer{}), copyrpc.ErrClosed)
		is(t, ch.SendBytes(ctx, nil, 0), copyrpc.ErrClosed)
		_, err = ch.Receive(ctx, copyrpc.Buffer{})
		is(t, err, copyrpc.ErrClosed)
		_, err = ch.ReceiveBytes(ctx, 1, 0)
		is(t, err, copyrpc.ErrClosed)
		_, err = ch.Info()
		is(t, err, copyrpc.ErrClosed)
		_, err = ch.Stats()
		is(t, err, copyrpc.ErrClosed)
		_, err = ch.NewRegion(1)
		is(t, err, copyrpc.ErrClosed)
		is(t, ch.SetShare(1), copyrpc.ErrClosed)
		is(t, ch.Shutdown(ctx), copyrpc.ErrClosed)
		is(t, ch.Err(), copyrpc.ErrClosed)
		<-ch.Done()
		for range ch.RailEvents() {
		}
	}
	// One that is over by the peer tells why, and what it was.
	_, err = p.right.PostSend(copyrpc.Buffer{})
	is(t, err, copyrpc.ErrDisconnected)
	is(t, p.right.SetShare(1), copyrpc.ErrDisconnected)
	info, err := p.right.Info()
	check(t, err)
	if info.State != copyrpc.StateDisconnected || info.Slots != 64 {
		t.Fatalf("%+v", info)
	}
	stats, err := p.right.Stats()
	check(t, err)
	if stats.ReceivesFailed != 2 {
		t.Fatalf("%+v", stats)
	}
}

// A region is in use from the moment in which a transfer is posted, also while that waits its turn.
func TestRegionsOfTransfersAreBusy(t *testing.T) {
	p := newChannels(t, copyrpc.WithSlots(1))
	ctx := limited(t)
	last, err := p.right.NewRegion(4096)
	check(t, err)
	buffers := []copyrpc.Buffer{p.in.Slice(0, 100), p.in.Slice(100, 200), last.Slice(0, 100)}
	var receives []*copyrpc.Transfer
	for _, buffer := range buffers {
		receive, err := p.right.PostReceive(buffer)
		check(t, err)
		is(t, buffer.Region.Close(), copyrpc.ErrBusy)
		receives = append(receives, receive)
	}
	for i := range receives {
		is(t, last.Close(), copyrpc.ErrBusy)
		check(t, p.left.Send(ctx, p.out.Slice(i, 2*i)))
		check(t, receives[i].Wait(ctx))
	}
	check(t, last.Close())
	check(t, p.in.Close())
	send, err := p.left.PostSend(p.out.Slice(0, 100))
	check(t, err)
	is(t, p.out.Close(), copyrpc.ErrBusy)
	send.Cancel()
	is(t, send.Wait(ctx), copyrpc.ErrCanceled)
	check(t, p.out.Close())
}

// The Close of a Context ends its channels and those who wait.
func TestContextsCloseEndsChannels(t *testing.T) {
	p := newChannels(t)
	receive, err := p.left.PostReceive(p.out.Slice(0, 10))
	check(t, err)
	waits := make(chan error, 1)
	go func() { waits <- p.left.Send(context.Background(), p.out.Slice(0, 10)) }()
	time.Sleep(10 * time.Millisecond)
	check(t, p.contexts[0].Close())
	is(t, <-waits, copyrpc.ErrClosed)
	is(t, receive.Wait(limited(t)), copyrpc.ErrClosed)
	receive.Cancel()
	is(t, p.left.Err(), copyrpc.ErrClosed)
	if p.out.Bytes() != nil || p.out.Slice(0, 10).Bytes() != nil {
		t.Fatal("the memory is still there")
	}
	_, err = p.contexts[0].DialChannel(limited(t), p.listener.Address())
	is(t, err, copyrpc.ErrClosed)
	_, err = p.contexts[0].ListenChannels(host() + ":0")
	is(t, err, copyrpc.ErrClosed)
	_, err = p.contexts[0].NewChannelBlob()
	is(t, err, copyrpc.ErrClosed)
	_, err = p.contexts[0].Rails()
	is(t, err, copyrpc.ErrClosed)
}

func TestBuffersThatCannotBe(t *testing.T) {
	p := newChannels(t)
	other, err := openContext(t).NewRegion(4096, copyrpc.LocalWrite|copyrpc.RemoteWrite)
	check(t, err)
	closed, err := p.left.NewRegion(4096)
	check(t, err)
	check(t, closed.Close())
	readOnly, err := p.contexts[0].NewRegion(4096, copyrpc.RemoteRead)
	check(t, err)
	for _, wrong := range []struct {
		buffer copyrpc.Buffer
		status copyrpc.Status
	}{
		{copyrpc.Buffer{Length: 1}, copyrpc.ErrInvalid},
		{other.Slice(0, 1), copyrpc.ErrInvalid},
		{closed.Slice(0, 1), copyrpc.ErrClosed},
		{p.out.Slice(-1, 1), copyrpc.ErrInvalid},
		{p.out.Slice(1, 0), copyrpc.ErrInvalid},
		{p.out.Slice(0, regionBytes+1), copyrpc.ErrInvalid},
		{p.out.Slice(regionBytes+1, regionBytes+1), copyrpc.ErrInvalid},
		{p.out.Slice(1<<62, 1<<62+1<<29), copyrpc.ErrInvalid},
		{p.out.Slice(0, copyrpc.BufferBytesMax+1), copyrpc.ErrTooBig},
	} {
		_, err := p.left.PostSend(wrong.buffer)
		is(t, err, wrong.status)
		_, err = p.left.PostReceive(copyrpc.Buffer{}, wrong.buffer)
		is(t, err, wrong.status)
	}
	_, err = p.left.PostReceive()
	is(t, err, copyrpc.ErrInvalid)
	_, err = p.left.PostReceive(make([]copyrpc.Buffer, copyrpc.GroupMax+1)...)
	is(t, err, copyrpc.ErrTooBig)
	// What C alone knows fails the transfer: of a group, all of it, and what is behind it goes on.
	group, err := p.left.PostReceive(p.out.Slice(0, 1), readOnly.Slice(0, 1))
	check(t, err)
	is(t, group.Wait(limited(t)), copyrpc.ErrInvalid)
	p.message(t, 1000, 0)
}

func TestChannelsThatCannotBe(t *testing.T) {
	ctx := limited(t)
	bare, withRails := openContext(t), openContext(t, copyrpc.WithRails("mlx5_0", "mlx5_1"))
	for _, op := range []func(c *copyrpc.Context) error{
		func(c *copyrpc.Context) error { _, err := c.DialChannel(ctx, host()+":1"); return err },
		func(c *copyrpc.Context) error { _, err := c.ListenChannels(host() + ":0"); return err },
		func(c *copyrpc.Context) error { _, err := c.NewChannelBlob(); return err },
	} {
		err := op(bare)
		is(t, err, copyrpc.ErrState)
		if !strings.Contains(err.Error(), "WithRails") {
			t.Fatal(err)
		}
		is(t, op(nil), copyrpc.ErrClosed)
	}
	_, err := withRails.DialChannel(ctx, host()+":1")
	is(t, err, copyrpc.ErrRefused)
	for status, options := range map[copyrpc.Status][]copyrpc.Option{
		copyrpc.ErrInvalid:  {copyrpc.WithSlots(257), copyrpc.WithSlots(-1), copyrpc.WithShare(1025), copyrpc.WithShareHint("no slash"), copyrpc.WithQueuePairs(9), copyrpc.WithSendsMax(7), copyrpc.WithRailRetry(-1), copyrpc.WithRailsUsed(1), copyrpc.WithRailsUsed(0, 2), copyrpc.WithRails("")},
		copyrpc.ErrNoDevice: {copyrpc.WithRails("nosuch0")},
	} {
		for _, option := range options {
			_, err := copyrpc.DialChannel(ctx, host()+":1", option)
			is(t, err, status)
		}
	}
	_, err = copyrpc.Open(copyrpc.WithRails("a", "b", "c"))
	is(t, err, copyrpc.ErrInvalid)
	rails, err := bare.Rails()
	check(t, err)
	if len(rails) != 0 {
		t.Fatalf("%+v", rails)
	}
	alone := openContext(t, copyrpc.WithRails("mlx5_1", copyrpc.NoRail))
	rails, err = alone.Rails()
	check(t, err)
	if len(rails) != 1 || rails[0].Device != "mlx5_1" {
		t.Fatalf("%+v", rails)
	}
	for _, l := range []*copyrpc.ChannelListener{nil, {}} {
		_, err := l.Accept(ctx)
		is(t, err, copyrpc.ErrClosed)
		check(t, l.Close())
	}
	is(t, (&copyrpc.ChannelRequest{}).Reject(1), copyrpc.ErrStale)
	_, err = (&copyrpc.ChannelRequest{}).Accept(ctx)
	is(t, err, copyrpc.ErrStale)
	// Those who want calls and those who want channels do not find each other.
	listener, err := bare.Listen(host() + ":0")
	check(t, err)
	if _, err = withRails.DialChannel(ctx, listener.Address()); err == nil {
		t.Fatal("a channel of an endpoint")
	}
}

func TestPeersAreChosen(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	dialed := make(chan error, 1)
	dial := func(token string) {
		ch, err := p.contexts[0].DialChannel(ctx, p.listener.Address(), copyrpc.WithToken([]byte(token)), copyrpc.WithSlots(9))
		if err == nil {
			defer ch.Close()
		}
		dialed <- err
	}
	go dial("stranger")
	request, err := p.listener.AcceptRequest(ctx)
	check(t, err)
	if string(request.Info.Token) != "stranger" || request.Info.PeerAddress == "" {
		t.Fatalf("%+v", request.Info)
	}
	check(t, request.Reject(4711))
	err = <-dialed
	is(t, err, copyrpc.ErrRefused)
	if !strings.Contains(err.Error(), "4711") {
		t.Fatal(err)
	}
	go dial("friend")
	for string(request.Info.Token) != "friend" { // the stranger may have asked twice
		request, err = p.listener.AcceptRequest(ctx)
		check(t, err)
	}
	_, err = request.Accept(ctx, copyrpc.WithSlots(-1))
	is(t, err, copyrpc.ErrInvalid)
	ch, err := request.Accept(ctx, copyrpc.WithSlots(4))
	check(t, err)
	check(t, <-dialed)
	info, err := ch.Info()
	check(t, err)
	if info.Slots != 4 {
		t.Fatalf("%+v", info)
	}
	check(t, ch.Close())
	_, err = request.Accept(ctx)
	is(t, err, copyrpc.ErrStale)
	stats, err := p.listener.Stats()
	check(t, err)
	if stats.Requests < 3 { // with those who were not heard for half a second and asked again
		t.Fatalf("%+v", stats)
	}
	check(t, p.listener.Close())
	_, err = p.listener.Accept(ctx)
	is(t, err, copyrpc.ErrClosed)
}

func TestChannelBlobs(t *testing.T) {
	left, right := openContext(t, copyrpc.WithRails()), openContext(t, copyrpc.WithRails())
	// 4 s before a retry: what one side sends before the other has joined is not lost, however late that is.
	ours, err := left.NewChannelBlob(copyrpc.WithRetry(20, 7))
	check(t, err)
	theirs, err := right.NewChannelBlob(copyrpc.WithRetry(20, 7))
	check(t, err)
	damaged := append([]byte{}, theirs.Bytes...)
	damaged[20] ^= 1
	for _, none := range [][]byte{nil, make([]byte, 500), damaged} {
		_, err = ours.Join(limited(t), none)
		is(t, err, copyrpc.ErrProtocol)
	}
	joined := make(chan *copyrpc.Channel, 1)
	go func() {
		ch, _ := theirs.Join(limited(t), ours.Bytes)
		joined <- ch
	}()
	ch, err := ours.Join(limited(t), theirs.Bytes)
	check(t, err)
	peer := <-joined
	_, err = ours.Join(limited(t), theirs.Bytes)
	is(t, err, copyrpc.ErrState)
	check(t, ours.Close())
	go peer.SendBytes(limited(t), []byte("by blob"), 3)
	got, err := ch.ReceiveBytes(limited(t), 100, 3)
	check(t, err)
	if string(got) != "by blob" {
		t.Fatalf("%q", got)
	}
	check(t, ch.Close())
	check(t, peer.Close())
	unused, err := left.NewChannelBlob()
	check(t, err)
	check(t, unused.Close())
	_, err = unused.Join(limited(t), theirs.Bytes)
	is(t, err, copyrpc.ErrState)
	for _, blob := range []*copyrpc.ChannelBlob{nil, {}} {
		_, err = blob.Join(limited(t), theirs.Bytes)
		is(t, err, copyrpc.ErrClosed)
		check(t, blob.Close())
	}
}

// Without a context of one's own: those who name the same rails share one, and a region keeps it open.
func TestChannelsShareAContext(t *testing.T) {
	ctx := limited(t)
	var made []string
	lose := func() *copyrpc.Region {
		listener, err := copyrpc.ListenChannels(host()+":0", copyrpc.WithChannelsMax(7)) // a context that no other test shares
		check(t, err)
		accepted := make(chan *copyrpc.Channel, 1)
		go func() {
			ch, _ := listener.Accept(ctx)
			accepted <- ch
		}()
		ch, err := copyrpc.DialChannel(ctx, listener.Address(), copyrpc.WithChannelsMax(7))
		check(t, err)
		region, err := ch.NewRegion(4096)
		check(t, err)
		peer := <-accepted
		transfer, err := peer.PostReceive(region.Slice(0, 100)) // it is one context
		check(t, err)
		check(t, ch.SendBytes(ctx, []byte("hello"), 0))
		check(t, transfer.Wait(ctx))
		check(t, ch.Close())
		check(t, peer.Close())
		check(t, listener.Close())
		if string(region.Bytes()[:5]) != "hello" {
			t.Fatal("it keeps what it received")
		}
		lost, err := copyrpc.ListenChannels(host()+":0", copyrpc.WithChannelsMax(7))
		check(t, err)
		made = []string{"dial channel " + listener.Address(), "listen " + listener.Address(), "listen " + lost.Address()}
		return region
	}
	region := lose()
	if texts := lostWarnings(1, made...); len(texts) != 1 || !strings.Contains(texts[0], "a ChannelListener (") {
		t.Fatalf("%q", texts)
	}
	check(t, region.Close())
}

func TestLostChannelsAreWarnedOf(t *testing.T) {
	p := newChannels(t)
	lose := func() {
		accepted := make(chan *copyrpc.Channel, 1)
		go func() {
			ch, _ := p.listener.Accept(limited(t))
			accepted <- ch
		}()
		_, err := p.contexts[0].DialChannel(limited(t), p.listener.Address())
		check(t, err)
		server := <-accepted
		t.Cleanup(func() { server.Close() })
		_, err = p.contexts[0].NewChannelBlob()
		check(t, err)
	}
	lose()
	said := strings.Join(lostWarnings(2, "dial channel "+p.listener.Address(), "channel blob"), "; ")
	for _, name := range []string{"a Channel", "a ChannelBlob"} {
		if strings.Count(said, name+" (") != 1 {
			t.Errorf("%s is not warned of once: %q", name, said)
		}
	}
}

// What is made and closed again leaves nothing behind: neither messages nor channels.
func TestChannelsLeakNothing(t *testing.T) {
	p := newChannels(t)
	ctx := limited(t)
	cycles := func(count int) {
		for i := 0; i < count; i++ {
			left, right := p.connectUnclosed(t, ctx)
			for j := 0; j < 100; j++ {
				receive, err := right.PostReceive(p.in.Slice(0, 100), p.in.Slice(100, 200).Tagged(1))
				check(t, err)
				send, err := left.PostSend(p.out.Slice(0, 50).Tagged(1))
				check(t, err)
				check(t, left.SendBytes(ctx, []byte("hello"), 0))
				check(t, send.Wait(ctx))
				check(t, receive.Wait(ctx))
			}
			if i%2 == 0 {
				go right.Shutdown(ctx)
				check(t, left.Shutdown(ctx))
			} else {
				check(t, left.Close())
			}
			<-right.Done()
			check(t, right.Close())
		}
	}
	cycles(often(20))
	before := settled(t)
	cycles(often(60))
	compare(t, before)
}

func (p *channels) connectUnclosed(t *testing.T, ctx context.Context) (left, right *copyrpc.Channel) {
	accepted := make(chan *copyrpc.Channel, 1)
	go func() {
		right, _ := p.listener.Accept(ctx)
		accepted <- right
	}()
	left, err := p.contexts[0].DialChannel(ctx, p.listener.Address())
	check(t, err)
	return left, <-accepted
}
