// journal.go: a worker's end of its journal, and the bytes of what is sent. c/journal.h and c/content.h have both formats.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	journalMagic    = 0x736f6163
	journalHeader   = 4096
	recordBytes     = 32
	journalHead     = 64
	journalTail     = 128
	headerBytes     = 16
	messageBytesMax = 256 << 10
	multiplier      = 0x9e3779b97f4a7c15
	replyBit        = 1 << 63
)

// Kinds of records.
const (
	recordReady = iota + 1
	recordBegin
	recordRefused
	recordEnded
	recordExecuted
	recordState
	recordDone
	recordTrouble
	recordMistake
	recordFound
)

// Types of ops.
const (
	opCall         = 1
	opSend         = 4
	opReceive      = 5
	opConnect      = 6
	opConnection   = 7
	opQueueSend    = 8
	opQueueReceive = 9
	opWrite        = 10
	opRead         = 11
	opAdd          = 12
)

// Verdicts.
const (
	right = iota
	wrongLength
	wrongID
	wrongBytes
	wrongStatus
	tooEarly
)

type journal struct {
	mutex sync.Mutex
	bytes []byte // the file, mapped: it outlives this process
	room  uint64
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	all, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(all) != journalMagic {
		return nil, errors.New("it is no journal")
	}
	return &journal{bytes: all, room: uint64(binary.LittleEndian.Uint32(all[4:]))}, nil
}

func (j *journal) word(offset int) *uint64 { return (*uint64)(unsafe.Pointer(&j.bytes[offset])) }

// put appends a record. It waits while there is no room.
func (j *journal) put(kind uint32, status int32, id, a, b uint64) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	head := atomic.LoadUint64(j.word(journalHead))
	for head-atomic.LoadUint64(j.word(journalTail)) >= j.room {
		time.Sleep(time.Millisecond)
	}
	record := j.bytes[journalHeader+head%j.room*recordBytes:][:recordBytes]
	binary.LittleEndian.PutUint32(record, kind)
	binary.LittleEndian.PutUint32(record[4:], uint32(status))
	binary.LittleEndian.PutUint64(record[8:], id)
	binary.LittleEndian.PutUint64(record[16:], a)
	binary.LittleEndian.PutUint64(record[24:], b)
	atomic.StoreUint64(j.word(journalHead), head+1)
}

// content is the table of random bytes.
type content []byte

func (c content) rest(id uint64, size int) []byte {
	begin := int(id * multiplier >> 48)
	return c[begin : begin+size-headerBytes]
}

// fill writes what belongs to an id; what is shorter than a header has nothing.
func (c content) fill(buffer []byte, id uint64) []byte {
	if len(buffer) >= headerBytes {
		binary.LittleEndian.PutUint64(buffer, id)
		binary.LittleEndian.PutUint64(buffer[8:], uint64(len(buffer)))
		copy(buffer[headerBytes:], c.rest(id, len(buffer)))
	}
	return buffer
}

// check checks all but the id, which it gives if there is one, else 0.
func (c content) check(data []byte) (verdict uint64, id uint64) {
	if len(data) < headerBytes || len(data) > messageBytesMax {
		return wrongLength, 0
	}
	id = binary.LittleEndian.Uint64(data)
	if binary.LittleEndian.Uint64(data[8:]) != uint64(len(data)) {
		return wrongLength, id
	}
	if !bytes.Equal(data[headerBytes:], c.rest(id, len(data))) {
		return wrongBytes, id
	}
	return right, id
}

// statusOf is the status that the reply to this call has.
func statusOf(id uint64) int32 { return int32(id * multiplier >> 60) }
