package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// The layout: see examples/c/hash_table.h.
const (
	helloBytes  = 32
	headBytes   = 64
	bucketSlots = 8
	probes      = 16
	entriesMax  = 1<<24 - 1
	entryBytes  = 128
	dataAt      = 16
	checksumAt  = 124
	dataBytes   = checksumAt - dataAt
	looksMax    = 100 // at an entry that is not what its slot says, while the slot stays as it is
)

var (
	errFull    = errors.New("the table is full")
	errDamaged = errors.New("the table is damaged")
	errNumber  = errors.New("its value is no number")
	errSize    = fmt.Errorf("a key has a byte at least, and with its value %d at most", dataBytes)
)

// table is a client of a hash table, for one goroutine.
type table struct {
	context *copyrpc.Context
	queue   *copyrpc.Queue
	region  *copyrpc.Region
	bucket  copyrpc.Buffer // parts of the region
	found   copyrpc.Buffer
	written copyrpc.Buffer
	word    copyrpc.Buffer
	head    copyrpc.Remote
	slots   uint32
	entries uint32
	spare   uint64 // number of the entry that this client owns; 0: none
}

// place is what a search has come to.
type place struct {
	slot  uint32
	word  uint64 // 0: the slot is free
	value []byte // nil: the key is not there
}

func openTable(ctx context.Context, address string) (*table, error) {
	c, err := copyrpc.Open(copyrpc.WithQueues())
	if err != nil {
		return nil, err
	}
	t := &table{context: c}
	if t.region, err = c.NewRegion(2*entryBytes+headBytes+8, copyrpc.LocalWrite); err != nil {
		c.Close()
		return nil, err
	}
	t.found, t.written = t.region.Slice(0, 128), t.region.Slice(128, 256)
	t.bucket, t.word = t.region.Slice(256, 320), t.region.Slice(320, 328)
	if t.queue, err = c.ConnectQueue(ctx, address, copyrpc.QueueOptions{}); err == nil {
		err = t.readHello()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

func (t *table) readHello() error {
	info, err := t.queue.Info()
	if err != nil {
		return err
	}
	hello, little := info.Private, binary.LittleEndian
	if len(hello) < helloBytes || string(hello[:8]) != "CRPCHT01" || little.Uint32(hello[28:]) != entryBytes {
		return errors.New("the server has no hash table of this kind")
	}
	t.head = copyrpc.Remote{Address: little.Uint64(hello[8:]), Key: little.Uint32(hello[16:])}
	t.slots, t.entries = little.Uint32(hello[20:]), little.Uint32(hello[24:])
	if t.slots < bucketSlots || t.slots&(t.slots-1) != 0 || t.entries > entriesMax {
		return errDamaged
	}
	return nil
}

// close gives back the entry that this client owns, and disconnects.
func (t *table) close(ctx context.Context) error {
	defer t.context.Close()
	if err := t.giveEntry(ctx); err != nil {
		return err
	}
	return t.queue.Drain(ctx)
}

// ---- Ops ----------------------------------------------------------------------------------------

func (t *table) slotAt(slot uint32) copyrpc.Remote { return t.head.At(headBytes + 8*int(slot)) }

func (t *table) entryAt(number uint64) (copyrpc.Remote, error) {
	if number == 0 || number > uint64(t.entries) {
		return copyrpc.Remote{}, errDamaged
	}
	return t.slotAt(t.slots).At(int(number-1) * entryBytes), nil
}

func memory(buffer copyrpc.Buffer) []byte {
	return buffer.Region.Bytes()[buffer.Offset : buffer.Offset+buffer.Length]
}

func (t *table) readWord(ctx context.Context, remote copyrpc.Remote) (uint64, error) {
	err := t.queue.Read(ctx, t.word, remote)
	return binary.LittleEndian.Uint64(memory(t.word)), err
}

// writeAndSwap writes to an entry, and then swaps a word that names it. Both leave one after the other, and are done in this order.
func (t *table) writeAndSwap(ctx context.Context, buffer copyrpc.Buffer, entry, word copyrpc.Remote, before, after uint64) (bool, error) {
	op := copyrpc.QueueOp{Opcode: copyrpc.QueueWrite}
	op.SetRemote(entry)
	write, err := t.queue.Post(op, buffer)
	if err != nil {
		return false, err
	}
	was, err := t.queue.CompareSwap(ctx, word, before, after)
	if err == nil {
		_, err = write.Wait(ctx)
	}
	return was == before, err
}

// ---- Free entries -------------------------------------------------------------------------------

func nextHead(head, number uint64) uint64 { return (head>>24+1)<<24 | number }

func (t *table) takeEntry(ctx context.Context) error {
	for t.spare == 0 {
		head, err := t.readWord(ctx, t.head)
		if err != nil {
			return err
		}
		number := head & entriesMax
		if number == 0 {
			return errFull
		}
		entry, err := t.entryAt(number)
		if err != nil {
			return err
		}
		below, err := t.readWord(ctx, entry)
		if err != nil {
			return err
		}
		was, err := t.queue.CompareSwap(ctx, t.head, head, nextHead(head, below&entriesMax))
		if err != nil {
			return err
		}
		if was == head {
			t.spare = number
		}
	}
	return nil
}

func (t *table) giveEntry(ctx context.Context) error {
	for t.spare != 0 {
		head, err := t.readWord(ctx, t.head)
		if err != nil {
			return err
		}
		entry, err := t.entryAt(t.spare)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(memory(t.word), head&entriesMax)
		swapped, err := t.writeAndSwap(ctx, t.word, entry, t.head, head, nextHead(head, t.spare))
		if err != nil {
			return err
		}
		if swapped {
			t.spare = 0
		}
	}
	return nil
}

// ---- Searching ----------------------------------------------------------------------------------

// find returns nil if the key is not there, and there is no slot for it.
func (t *table) find(ctx context.Context, key []byte) (*place, error) {
	hash := crc32.ChecksumIEEE(key)
	first := hash * bucketSlots & (t.slots - 1)
	for i := uint32(0); i < probes && i < t.slots/bucketSlots; i++ {
		at, err := t.findInBucket(ctx, key, hash, (first+i*bucketSlots)&(t.slots-1))
		if at != nil || err != nil {
			return at, err
		}
	}
	return nil, nil
}

func (t *table) findInBucket(ctx context.Context, key []byte, hash, bucket uint32) (*place, error) {
	index, last, looks := uint32(0), uint64(0), 0
look:
	for looks < looksMax {
		if err := t.queue.Read(ctx, t.bucket, t.slotAt(bucket)); err != nil {
			return nil, err
		}
		for ; index < bucketSlots; index++ {
			slot, word := bucket+index, binary.LittleEndian.Uint64(memory(t.bucket)[8*index:])
			if word == 0 {
				return &place{slot: slot}, nil
			}
			if uint32(word>>56) != hash>>24 {
				continue
			}
			itsKey, value, err := t.readEntry(ctx, slot, word)
			if err != nil {
				return nil, err
			}
			if itsKey == nil { // it was an entry of another time: the slot has changed
				if looks++; word != last {
					looks = 0
				}
				last = word
				continue look
			}
			if bytes.Equal(itsKey, key) {
				return &place{slot, word, value}, nil
			}
		}
		return nil, nil
	}
	return nil, errDamaged
}

// readEntry returns copies of the key and the value, or nil if the entry was not written for this word.
func (t *table) readEntry(ctx context.Context, slot uint32, word uint64) (key, value []byte, err error) {
	remote, err := t.entryAt(word & entriesMax)
	if err == nil {
		err = t.queue.Read(ctx, t.found, remote)
	}
	if err != nil {
		return nil, nil, err
	}
	entry, little := memory(t.found), binary.LittleEndian
	keyBytes, valueBytes := int(little.Uint16(entry[12:])), int(little.Uint16(entry[14:]))
	if little.Uint64(entry) != word || little.Uint32(entry[8:]) != slot || keyBytes+valueBytes > dataBytes ||
		little.Uint32(entry[checksumAt:]) != crc32.ChecksumIEEE(entry[:checksumAt]) {
		return nil, nil, nil
	}
	data := append([]byte{}, entry[dataAt:dataAt+keyBytes+valueBytes]...)
	return data[:keyBytes], data[keyBytes:], nil
}

// ---- Writing ------------------------------------------------------------------------------------

// replace gives the key a value in the place that was found. It returns whether the place was still so.
func (t *table) replace(ctx context.Context, at *place, key, value []byte) (bool, error) {
	if len(key) == 0 || len(key)+len(value) > dataBytes {
		return false, errSize
	}
	if err := t.takeEntry(ctx); err != nil {
		return false, err
	}
	remote, err := t.entryAt(t.spare)
	if err != nil {
		return false, err
	}
	version := uint32(at.word>>24) + 1
	word := uint64(crc32.ChecksumIEEE(key)>>24)<<56 | uint64(version)<<24 | t.spare
	entry, little := memory(t.written), binary.LittleEndian
	clear(entry)
	little.PutUint64(entry, word)
	little.PutUint32(entry[8:], at.slot)
	little.PutUint16(entry[12:], uint16(len(key)))
	little.PutUint16(entry[14:], uint16(len(value)))
	copy(entry[dataAt+copy(entry[dataAt:], key):], value)
	little.PutUint32(entry[checksumAt:], crc32.ChecksumIEEE(entry[:checksumAt]))
	swapped, err := t.writeAndSwap(ctx, t.written, remote, t.slotAt(at.slot), at.word, word)
	if err == nil && swapped {
		t.spare = at.word & entriesMax // what the slot has named before is this client's now
	}
	return swapped, err
}

// change gives the key the value that `of` makes of the one before; again, if another client was quicker.
func (t *table) change(ctx context.Context, key []byte, of func(before []byte) ([]byte, error)) error {
	for {
		at, err := t.find(ctx, key)
		if err != nil {
			return err
		}
		if at == nil {
			return errFull
		}
		value, err := of(at.value)
		if err != nil {
			return err
		}
		if swapped, err := t.replace(ctx, at, key, value); swapped || err != nil {
			return err
		}
	}
}

// get returns nil if the key is not there.
func (t *table) get(ctx context.Context, key []byte) ([]byte, error) {
	at, err := t.find(ctx, key)
	if at == nil || err != nil {
		return nil, err
	}
	return at.value, nil
}

func (t *table) put(ctx context.Context, key, value []byte) error {
	return t.change(ctx, key, func([]byte) ([]byte, error) { return value, nil })
}

// add adds to the number that is the key's value; to 0 if the key is not there.
func (t *table) add(ctx context.Context, key []byte, number uint64) (sum uint64, err error) {
	err = t.change(ctx, key, func(before []byte) ([]byte, error) {
		sum = number
		if before != nil {
			value, err := strconv.ParseUint(string(before), 10, 64)
			if err != nil {
				return nil, errNumber
			}
			sum += value
		}
		return strconv.AppendUint(nil, sum, 10), nil
	})
	return sum, err
}
