package main

// #include "loop.h"
import "C"

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const (
	queueBatch = C.QUEUE_BATCH
	writeBytes = C.WRITE_BYTES
)

// queues is what queues.c has, in Go.
type queues struct {
	raw    *copyrpc.RawContext
	ends   [2]copyrpc.QueueHandle
	region copyrpc.RegionHandle
	info   copyrpc.RegionInfo
}

func openQueues() (*queues, error) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{QueueOps: queueBatch, Completions: queueBatch}, copyrpc.WithQueues())
	if err != nil {
		return nil, err
	}
	q := &queues{raw: raw}
	const bytes = 2 * queueBatch * writeBytes
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if q.region, err = raw.Register(unsafe.Pointer(unsafe.SliceData(memory)), bytes, copyrpc.LocalWrite|copyrpc.RemoteWrite); err != nil {
		return nil, err
	}
	if q.info, err = raw.RegionInfo(q.region); err != nil {
		return nil, err
	}
	return q, q.connect()
}

func (q *queues) connect() (err error) {
	var blobs [2][]byte
	for i := range q.ends {
		if q.ends[i], blobs[i], err = q.raw.QueueBlob(0, copyrpc.QueueOptions{}); err != nil {
			return err
		}
	}
	for i, end := range q.ends {
		if err = q.raw.JoinQueue(end, blobs[1-i]); err != nil {
			return err
		}
	}
	for connected := 0; connected < 2; {
		count, _ := q.raw.Poll()
		for i := range q.raw.Completions[:count] {
			if status := copyrpc.Status(q.raw.Completions[i].Status); status != copyrpc.OK {
				return status
			}
		}
		connected += count
	}
	return nil
}

// round is c_queue_round of queues.c, line by line.
func (q *queues) round() (submit, poll time.Duration, err error) {
	begun := time.Now()
	for i := 0; i < queueBatch; i++ {
		q.raw.QueueOps[i] = copyrpc.QueueOp{Opcode: copyrpc.QueueWrite, UserData: uint64(i), Region: q.region, Bytes: writeBytes,
			Address: q.info.Address + uint64(i*writeBytes), RemoteKey: q.info.RemoteKey,
			RemoteAddress: q.info.Address + uint64((queueBatch+i)*writeBytes)}
	}
	if taken, status := q.raw.SubmitQueue(q.ends[0], queueBatch); taken != queueBatch {
		return 0, 0, status
	}
	submit = time.Since(begun)
	for completed := 0; completed < queueBatch; {
		begun = time.Now()
		count, _ := q.raw.Poll()
		for i := range q.raw.Completions[:count] {
			done := &q.raw.Completions[i]
			if done.Kind != copyrpc.CompletionWork || done.Status != 0 || done.UserData != uint64(completed+i) {
				return 0, 0, fmt.Errorf("a write of the Go loop failed")
			}
		}
		if count > 0 {
			poll += time.Since(begun)
			completed += count
		}
	}
	return submit, poll, nil
}

// compareQueues does with queues what run does with calls.
func compareQueues(rounds int) (map[string]any, error) {
	if failed := C.c_queues_open(); failed != nil {
		return nil, fmt.Errorf("queues in C: %s", C.GoString(failed))
	}
	defer C.c_queues_close()
	q, err := openQueues()
	if err != nil {
		return nil, err
	}
	defer q.raw.Close()
	var inC, inGo [2][]float64 // submit and poll, of each round, an op
	for round := 0; round < rounds; round++ {
		var submit, poll C.uint64_t
		if C.c_queue_round(&submit, &poll) == 0 {
			return nil, fmt.Errorf("a write of the C loop failed")
		}
		inC[0] = append(inC[0], float64(submit)/queueBatch)
		inC[1] = append(inC[1], float64(poll)/queueBatch)
		goSubmit, goPoll, err := q.round()
		if err != nil {
			return nil, err
		}
		inGo[0] = append(inGo[0], float64(goSubmit)/queueBatch)
		inGo[1] = append(inGo[1], float64(goPoll)/queueBatch)
	}
	return map[string]any{
		"batch": queueBatch, "rounds": rounds, "write_bytes": writeBytes,
		"c_submit_ns": median(inC[0]), "c_poll_ns": median(inC[1]), "go_submit_ns": median(inGo[0]), "go_poll_ns": median(inGo[1]),
		"go_above_c_ns": median(inGo[0]) - median(inC[0]) + median(inGo[1]) - median(inC[1]),
	}, nil
}
