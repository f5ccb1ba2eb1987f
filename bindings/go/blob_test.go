package copyrpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// joined makes a connection of two blobs.
func joined(t *testing.T, left, right *copyrpc.Context) (client, server *copyrpc.Endpoint) {
	t.Helper()
	ours, err := left.NewBlob(copyrpc.WithRingBytes(1 << 16))
	check(t, err)
	theirs, err := right.NewBlob()
	check(t, err)
	serverDone := make(chan error, 1)
	go func() {
		var err error
		server, err = theirs.Join(limited(t), ours.Bytes)
		serverDone <- err
	}()
	client, err = ours.Join(limited(t), theirs.Bytes)
	check(t, err)
	check(t, <-serverDone)
	_, err = ours.Join(limited(t), theirs.Bytes)
	is(t, err, copyrpc.ErrState)
	check(t, ours.Close()) // no more than nothing: the Endpoint has the connection
	return client, server
}

func TestBlobsConnect(t *testing.T) {
	client, server := joined(t, openContext(t), openContext(t))
	defer client.Close()
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, echo) }()
	for i := 0; i < 100; i++ {
		reply, err := client.Call(limited(t), []byte("by blob"))
		check(t, err)
		if string(reply) != "by blob" {
			t.Fatalf("%q", reply)
		}
	}
	info, err := client.Info()
	check(t, err)
	if info.PeerAddress != "" || info.State != copyrpc.StateConnected || info.Version == 0 {
		t.Fatalf("%+v", info)
	}
	check(t, client.Shutdown(limited(t)))
	is(t, <-served, copyrpc.ErrDisconnected)
	info, err = server.Info()
	check(t, err)
	if info.State != copyrpc.StateDisconnected {
		t.Fatal(info.State)
	}
	stop()
	check(t, server.Close())
}

// As the header says of options: the peer's info shows the token, at both sides.
func TestBlobsShowTheirTokens(t *testing.T) {
	left, right := openContext(t, copyrpc.WithRails()), openContext(t, copyrpc.WithRails())
	tokens := [2]string{"from the left", "right"}
	ours, err := left.NewBlob(copyrpc.WithToken([]byte(tokens[0])))
	check(t, err)
	theirs, err := right.NewBlob(copyrpc.WithToken([]byte(tokens[1])))
	check(t, err)
	joined := make(chan *copyrpc.Endpoint, 1)
	go func() {
		server, _ := theirs.Join(limited(t), ours.Bytes)
		joined <- server
	}()
	client, err := ours.Join(limited(t), theirs.Bytes)
	check(t, err)
	defer client.Close()
	server := <-joined
	defer server.Close()
	for i, side := range []*copyrpc.Endpoint{server, client} {
		info, err := side.Info()
		check(t, err)
		if string(info.Token) != tokens[i] {
			t.Fatalf("the peer shows the token %q, not %q", info.Token, tokens[i])
		}
	}
	ourChannel, err := left.NewChannelBlob(copyrpc.WithToken([]byte(tokens[0])))
	check(t, err)
	theirChannel, err := right.NewChannelBlob()
	check(t, err)
	channels := make(chan *copyrpc.Channel, 1)
	go func() {
		channel, _ := theirChannel.Join(limited(t), ourChannel.Bytes)
		channels <- channel
	}()
	channel, err := ourChannel.Join(limited(t), theirChannel.Bytes)
	check(t, err)
	defer channel.Close()
	other := <-channels
	defer other.Close()
	info, err := other.Info()
	check(t, err)
	if string(info.Token) != tokens[0] {
		t.Fatalf("the channel's peer shows the token %q, not %q", info.Token, tokens[0])
	}
}

// A blob that is none leaves the endpoint as it was, and the right one still joins.
func TestBlobsThatAreNone(t *testing.T) {
	left, right := openContext(t), openContext(t)
	ours, err := left.NewBlob()
	check(t, err)
	theirs, err := right.NewBlob()
	check(t, err)
	damaged := append([]byte{}, theirs.Bytes...)
	damaged[len(damaged)/2] ^= 1
	for _, blob := range [][]byte{nil, {}, {1, 2, 3}, make([]byte, 4096), damaged, theirs.Bytes[:len(theirs.Bytes)-1]} {
		_, err := ours.Join(limited(t), blob)
		is(t, err, copyrpc.ErrProtocol)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = ours.Join(over, theirs.Bytes)
	is(t, err, copyrpc.ErrCanceled)
	done := make(chan *copyrpc.Endpoint, 1)
	go func() {
		server, _ := theirs.Join(limited(t), ours.Bytes)
		done <- server
	}()
	client, err := ours.Join(limited(t), theirs.Bytes)
	check(t, err)
	check(t, client.Close())
	check(t, (<-done).Close())
}

func TestBlobsThatAreClosed(t *testing.T) {
	for _, blob := range []*copyrpc.Blob{nil, {}} {
		_, err := blob.Join(limited(t), nil)
		is(t, err, copyrpc.ErrClosed)
		check(t, blob.Close())
	}
	c := openContext(t)
	blob, err := c.NewBlob()
	check(t, err)
	if len(blob.Bytes) == 0 || len(blob.Bytes) > 256 {
		t.Fatalf("%d bytes", len(blob.Bytes))
	}
	endpoints := func() int {
		info, err := c.Info()
		check(t, err)
		return info.Endpoints
	}
	before := endpoints()
	check(t, blob.Close())
	check(t, blob.Close())
	if endpoints() != before-1 {
		t.Fatalf("%d endpoints are open; %d were before Close", endpoints(), before)
	}
	_, err = blob.Join(limited(t), blob.Bytes)
	is(t, err, copyrpc.ErrState)

	blob, err = c.NewBlob()
	check(t, err)
	check(t, c.Close())
	_, err = blob.Join(limited(t), blob.Bytes)
	is(t, err, copyrpc.ErrClosed)
	check(t, blob.Close())
	_, err = c.NewBlob()
	is(t, err, copyrpc.ErrClosed)
	_, err = (&copyrpc.Context{}).NewBlob()
	is(t, err, copyrpc.ErrClosed)
	_, err = copyrpc.NewBlob(copyrpc.WithRingBytes(5))
	is(t, err, copyrpc.ErrInvalid)
}

func TestRawBlobs(t *testing.T) {
	p := &rawPair{}
	var blobs [2][]byte
	var endpoints [2]copyrpc.EndpointHandle
	for i, r := range []**copyrpc.RawContext{&p.client, &p.server} {
		raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{})
		check(t, err)
		defer raw.Close()
		*r = raw
		endpoints[i], blobs[i], err = raw.Blob(uint64(70 + i))
		check(t, err)
		info, err := raw.EndpointInfo(endpoints[i])
		check(t, err)
		if info.State != copyrpc.StateNew {
			t.Fatal(info.State)
		}
	}
	is(t, p.client.Join(endpoints[0], blobs[1][:10]), copyrpc.ErrProtocol)
	is(t, p.client.Join(0, blobs[1]), copyrpc.ErrStale)
	check(t, p.client.Join(endpoints[0], blobs[1]))
	check(t, p.server.Join(endpoints[1], blobs[0]))
	is(t, p.client.Join(endpoints[0], blobs[1]), copyrpc.ErrState)
	for i, r := range []*copyrpc.RawContext{p.client, p.server} {
		if done := p.next(t, r, copyrpc.CompletionConnected); done.Status != 0 || done.EndpointUserData != uint64(70+i) {
			t.Fatalf("%+v", done)
		}
	}
	p.client.Ops[0] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: endpoints[0], ReplyBytesMax: 8}
	p.client.Submit(1)
	if request := p.next(t, p.server, copyrpc.CompletionRequest); request.EndpointUserData != 71 {
		t.Fatalf("%+v", request)
	}
	check(t, p.client.Close())
	is(t, p.client.Join(endpoints[0], blobs[1]), copyrpc.ErrClosed)
	_, _, err := p.client.Blob(0)
	is(t, err, copyrpc.ErrClosed)
}

// A peer that never joins shows when calls are made: the transport gives up, by WithRetry.
func TestBlobOfAPeerThatNeverJoins(t *testing.T) {
	ours, err := openContext(t).NewBlob(copyrpc.WithRetry(8, 1))
	check(t, err)
	theirs, err := openContext(t).NewBlob()
	check(t, err)
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := ours.Join(ctx, theirs.Bytes)
	if err == nil {
		defer client.Close()
		_, err = client.Call(ctx, nil)
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want a connection that is lost", err)
	}
}

func TestLostBlobsAreWarnedOf(t *testing.T) {
	c := openContext(t)
	lose := func() {
		_, err := c.NewBlob()
		check(t, err)
	}
	lose()
	if texts := lostWarnings(1, "blob"); len(texts) != 1 || !strings.Contains(texts[0], "a Blob (") {
		t.Fatalf("%q", texts)
	}
}
