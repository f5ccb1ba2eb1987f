package copyrpc_test

import (
	"context"
	"errors"
	"testing"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// disconnected fails the test unless err says that the connection is gone, and not that a deadline has passed.
func disconnected(t *testing.T, err error) {
	t.Helper()
	is(t, err, copyrpc.ErrDisconnected)
	var own *copyrpc.Error
	if errors.As(err, &own); own.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v is not of a deadline", err)
	}
}

// Of a connection that ended with a timeout, ops that had none, or that had time left, must not say that theirs has passed.

func TestCallsDoNotTimeOutWithTheirConnection(t *testing.T) {
	p := newPair(t)
	ended := make(chan error, 2)
	go func() {
		_, err := p.client.Call(limited(t), nil)
		ended <- err
	}()
	go func() {
		results, err := p.client.CallBatch(limited(t), [][]byte{nil})
		if err != nil {
			results = []copyrpc.Result{{Err: err}}
		}
		ended <- results[0].Err
	}()
	for i := 0; i < 2; i++ { // until both are open
		_, err := p.server.Receive(limited(t))
		check(t, err)
	}
	p.client.Lose(copyrpc.ErrTimeout)
	disconnected(t, <-ended)
	disconnected(t, <-ended)
	_, err := p.client.Call(context.Background(), nil)
	disconnected(t, err)
	is(t, p.client.Err(), copyrpc.ErrTimeout)
}

func TestRepliesDoNotTimeOutWithTheirConnection(t *testing.T) {
	p := newPair(t)
	go p.client.Call(limited(t), nil)
	request, err := p.server.Receive(limited(t))
	check(t, err)
	p.server.Lose(copyrpc.ErrTimeout)
	disconnected(t, request.Reply(nil))
}

func TestMessagesDoNotTimeOutWithTheirChannel(t *testing.T) {
	p := newChannels(t)
	receive, err := p.left.PostReceive(copyrpc.Buffer{})
	check(t, err)
	send, err := p.left.PostSend(copyrpc.Buffer{})
	check(t, err)
	p.left.Lose(copyrpc.ErrTimeout)
	disconnected(t, receive.Wait(limited(t)))
	disconnected(t, send.Wait(limited(t)))
	disconnected(t, p.left.Send(context.Background(), copyrpc.Buffer{}))
	is(t, p.left.Err(), copyrpc.ErrTimeout)
}

func TestQueueOpsDoNotTimeOutWithTheirQueue(t *testing.T) {
	p := newQueues(t, copyrpc.QueueOptions{Receives: 1})
	receive, err := p.left.PostReceive(p.here.Slice(0, 8))
	check(t, err)
	batch, err := p.left.Batch(1)
	check(t, err)
	defer batch.Close()
	batch.Ops()[0].Opcode = copyrpc.QueueSend // for which the peer has no receive
	check(t, batch.Submit(1))
	p.left.Lose(copyrpc.ErrTimeout)
	_, err = receive.Wait(limited(t))
	disconnected(t, err)
	_, err = batch.Wait(limited(t))
	disconnected(t, err)
	disconnected(t, p.left.Write(context.Background(), p.here.Slice(0, 8), p.remote))
	disconnected(t, batch.Submit(1))
	is(t, p.left.Err(), copyrpc.ErrTimeout)
}

// What this side has closed stays closed, and a peer that broke the protocol is told of.
func TestOpsTellOfACloseAndOfABrokenProtocol(t *testing.T) {
	for _, reason := range []copyrpc.Status{copyrpc.ErrClosed, copyrpc.ErrProtocol} {
		p := newPair(t)
		p.client.Lose(reason)
		_, err := p.client.Call(limited(t), nil)
		is(t, err, reason)
	}
}
