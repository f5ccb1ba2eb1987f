// perf_server is copyrpc-perf's server in Go: it echoes, or sends replies of the size that the client asks for.
//
//	perf_server [-handler] [-wait] [-ring BYTES] [ADDRESS]        *:7472 if none is given
//
// It does what tools/perf/server.c does, the same way: one goroutine on the raw arrays, all replies of a poll with one submit.
// With -handler it is what most servers would be: a handler, called in a goroutine for each request.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
	"github.com/copyrpc/copyrpc/examples/go/options"
)

const (
	methodSized = 1 // the first four bytes of the request say how long the reply is to be
	completions = 1024
	gatherBytes = 4 << 20
	idlePolls   = 100000 // before it sleeps: without anybody to answer there is no latency to spoil
)

var (
	handler = flag.Bool("handler", false, "answer by Serve, a goroutine for each request")
	wait    = flag.Bool("wait", false, "sleep for events instead of polling on")
	ring    = flag.Int("ring", 4<<20, "bytes of each endpoint's ring, a power of two")
)

func main() {
	options.Parse("[ADDRESS]")
	address := "*:7472"
	if flag.NArg() > 0 {
		address = flag.Arg(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	serve := serveRaw
	if *handler {
		serve = serveHandler
	}
	if err := serve(ctx, address); err != nil {
		fmt.Fprintln(os.Stderr, "perf_server:", err)
		os.Exit(1)
	}
}

func serveHandler(ctx context.Context, address string) error {
	listener, err := copyrpc.Listen(address, copyrpc.WithRingBytes(*ring), copyrpc.WithPeerRingBytesMax(64<<20))
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Address())
	filler := make([]byte, 64<<20)
	return listener.Serve(ctx, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		if request.Method == methodSized && len(request.Payload) >= 4 {
			return filler[:min(int(binary.LittleEndian.Uint32(request.Payload)), len(filler))], nil
		}
		return request.Payload, nil
	})
}

// server is the state of the raw loop: replies gather in the context's arrays until the poll is worked off.
type server struct {
	raw      *copyrpc.RawContext
	replies  int
	gathered int // bytes of raw.Payload
	filler   []byte
}

func serveRaw(ctx context.Context, address string) error {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{Ops: completions, Completions: completions, PayloadBytes: gatherBytes})
	if err != nil {
		return err
	}
	defer raw.Close()
	listener, err := raw.Listen(address, 0)
	if err != nil {
		return err
	}
	info, err := raw.ListenerAddress(listener)
	if err != nil {
		return err
	}
	fmt.Println("listening on", info)
	s := &server{raw: raw, filler: make([]byte, gatherBytes)}
	idle := 0
	for ctx.Err() == nil {
		count, status := raw.Poll()
		if status != copyrpc.OK {
			return status
		}
		for i := 0; i < count; i++ {
			s.take(&raw.Completions[i])
		}
		s.send()
		idle++
		if count > 0 {
			idle = 0
		}
		if idle > idlePolls || *wait && idle > 0 {
			raw.Wait(ctx)
		} else if idle > 0 {
			runtime.Gosched() // for the goroutine of the signals
		}
	}
	return nil
}

func (s *server) take(completion *copyrpc.Completion) {
	switch completion.Kind {
	case copyrpc.CompletionRequest:
		s.answer(completion)
	case copyrpc.CompletionConnectRequest:
		if err := s.raw.Accept(completion.Endpoint, 0, copyrpc.WithRingBytes(*ring), copyrpc.WithPeerRingBytesMax(64<<20)); err != nil {
			fmt.Fprintln(os.Stderr, "perf_server:", err)
			s.raw.CloseEndpoint(completion.Endpoint)
		}
	case copyrpc.CompletionConnected:
		if completion.Status < 0 {
			s.raw.CloseEndpoint(completion.Endpoint)
		}
	case copyrpc.CompletionDisconnected:
		s.raw.CloseEndpoint(completion.Endpoint)
	}
}

func (s *server) answer(request *copyrpc.Completion) {
	payload := request.View()
	if request.Method == methodSized && len(payload) >= 4 {
		payload = s.filler[:min(int(binary.LittleEndian.Uint32(payload)), len(s.filler))]
	}
	var status int32
	if len(payload) > int(request.ReplyBytesMax) {
		payload, status = nil, 1
	}
	if len(payload) > len(s.raw.Payload)-s.gathered {
		s.send()
	}
	s.raw.Ops[s.replies] = copyrpc.Op{
		Opcode: copyrpc.OpReply, Flags: copyrpc.OpQuiet, Status: status, Endpoint: request.Endpoint, Token: request.Token,
		PayloadOffset: uint64(s.gathered), PayloadBytes: uint32(len(payload)),
	}
	s.gathered += copy(s.raw.Payload[s.gathered:], payload)
	s.replies++
}

// send submits what has gathered. A reply that is refused has lost its client, who hears of that by itself.
func (s *server) send() {
	for sent := 0; sent < s.replies; {
		taken, status := s.raw.SubmitFrom(sent, s.replies-sent)
		sent += taken
		if status != copyrpc.OK {
			sent++
		}
	}
	s.replies, s.gathered = 0, 0
}
