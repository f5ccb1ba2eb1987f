// loop: what the Go binding adds to a call, and to an op of a queue: a loop in C and the same loop in Go, in turns, in one process on one
// thread, against one echo server in C that is driven by hand. Only the client's part of each round is timed. bindings_go.py
// runs it, and the rates of whole programs beside it.
//
//	loop ADDRESS [ROUNDS]
package main

// #cgo pkg-config: copyrpc
// #cgo CFLAGS: -O2
// #include <stdlib.h>
// #include "loop.h"
import "C"

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const (
	batch        = C.BATCH
	requestBytes = C.REQUEST_BYTES
)

func main() {
	rounds := 3000
	if len(os.Args) > 2 {
		rounds, _ = strconv.Atoi(os.Args[2])
	}
	if err := run(os.Args[1], rounds); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1)
	}
}

func run(address string, rounds int) error {
	runtime.LockOSThread() // both loops on the same thread
	name := C.CString(address)
	defer C.free(unsafe.Pointer(name))
	listening := (*C.char)(C.calloc(1, 64))
	defer C.free(unsafe.Pointer(listening))
	if failed := C.server_open(name, listening, 64); failed != nil {
		return fmt.Errorf("server: %s", C.GoString(failed))
	}
	defer C.close_all()
	if failed := C.c_client_connect(listening); failed != nil {
		return fmt.Errorf("client in C: %s", C.GoString(failed))
	}
	raw, endpoint, err := connect(C.GoString(listening))
	if err != nil {
		return err
	}
	defer raw.Close()
	var inC, inGo [2][]float64 // submit and poll, of each round, a call
	for round := 0; round < rounds; round++ {
		var submit, poll C.uint64_t
		if C.c_round(&submit, &poll) == 0 {
			return fmt.Errorf("a call of the C loop failed")
		}
		inC[0] = append(inC[0], float64(submit)/batch)
		inC[1] = append(inC[1], float64(poll)/batch)
		goSubmit, goPoll, err := goRound(raw, endpoint)
		if err != nil {
			return err
		}
		inGo[0] = append(inGo[0], float64(goSubmit)/batch)
		inGo[1] = append(inGo[1], float64(goPoll)/batch)
	}
	ofQueues, err := compareQueues(rounds)
	if err != nil {
		return err
	}
	result := map[string]any{
		"queues": ofQueues,
		"batch":  batch, "rounds": rounds, "request_bytes": requestBytes,
		"c_submit_ns": median(inC[0]), "c_poll_ns": median(inC[1]), "go_submit_ns": median(inGo[0]), "go_poll_ns": median(inGo[1]),
		"go_above_c_ns": median(inGo[0]) - median(inC[0]) + median(inGo[1]) - median(inC[1]),
	}
	text, err := json.Marshal(result)
	fmt.Println(string(text))
	return err
}

func connect(address string) (*copyrpc.RawContext, copyrpc.EndpointHandle, error) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{Ops: batch, Completions: batch, PayloadBytes: batch * requestBytes})
	if err != nil {
		return nil, 0, err
	}
	endpoint, err := raw.Connect(address, 0)
	if err != nil {
		return nil, 0, err
	}
	for {
		C.server_turn()
		if count, _ := raw.Poll(); count > 0 {
			if raw.Completions[0].Status != 0 {
				return nil, 0, raw.EndpointError(endpoint)
			}
			return raw, endpoint, nil
		}
	}
}

// goRound is c_round of loop.c, line by line.
func goRound(raw *copyrpc.RawContext, endpoint copyrpc.EndpointHandle) (submit, poll time.Duration, err error) {
	begun := time.Now()
	for i := 0; i < batch; i++ {
		raw.Ops[i] = copyrpc.Op{Opcode: copyrpc.OpCall, Endpoint: endpoint, UserData: uint64(i),
			PayloadOffset: uint64(i * requestBytes), PayloadBytes: requestBytes, ReplyBytesMax: requestBytes}
		binary.LittleEndian.PutUint32(raw.Payload[i*requestBytes:], uint32(i))
	}
	if taken, status := raw.Submit(batch); taken != batch {
		return 0, 0, status
	}
	submit = time.Since(begun)
	for answered := 0; answered < batch; {
		C.server_turn()
		begun = time.Now()
		count, _ := raw.Poll()
		for i := range raw.Completions[:count] {
			done := &raw.Completions[i]
			if done.Kind != copyrpc.CompletionResponse || done.Status != 0 || uint64(binary.LittleEndian.Uint32(done.View())) != done.UserData {
				return 0, 0, fmt.Errorf("a call of the Go loop failed")
			}
		}
		if count > 0 {
			poll += time.Since(begun)
			answered += count
		}
	}
	return submit, poll, nil
}

func median(values []float64) float64 {
	sort.Float64s(values)
	return values[len(values)/2]
}
