// channels.go: the verbs of channels, and what comes of them.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// lane is a channel under its name.
type lane struct {
	*copyrpc.Channel
	tie
}

// ---- Connecting ----

// opening is the life of a channel.
func (r *runner) opening(name string, open func() (*copyrpc.Channel, error)) (string, error) {
	r.begin(func() {
		channel, err := open()
		it := &lane{Channel: channel, tie: tie{name: name}}
		if !r.connected(name, it, err) {
			return
		}
		for {
			select {
			case event, more := <-channel.RailEvents():
				if !more {
					r.over(&it.tie, it.Err())
					return
				}
				status := copyrpc.ErrDisconnected
				if event.Up {
					status = copyrpc.OK
				}
				tell("event kind=rail endpoint=%s rail=%d status=%s", name, event.Rail, status.Name())
			case <-r.ctx.Done():
				return
			}
		}
	})
	return "", nil
}

func (r *runner) makeChannel(verb string, l line) (string, error) {
	switch verb {
	case "channel_connect":
		return r.opening(l["name"], func() (*copyrpc.Channel, error) {
			return r.context.DialChannel(r.ctx, l["address"], l.channelOptions()...)
		})
	case "channel_blob":
		blob, err := r.context.NewChannelBlob(l.channelOptions()...)
		if err != nil {
			return "", err
		}
		r.things.Store(l["name"], blob)
		r.halves[l["name"]] = blob
		return "blob=" + hex.EncodeToString(blob.Bytes), nil
	case "rails":
		rails, err := r.context.Rails()
		told := fmt.Sprintf("count=%d", len(rails))
		for i, rail := range rails {
			told += fmt.Sprintf(" device%d=%s", i, rail.Device)
		}
		return told, err
	}
	return "", errNoVerb
}

// ---- Messages ----

// memory is where a buffer lies: in the region that the line names, or in one of its own, which is to be closed. What is longer than a
// buffer can be costs nothing: nobody will touch it.
func (r *runner) memory(it *lane, l line, length int) (buffer copyrpc.Buffer, done func(), err error) {
	if thing, ok := r.things.Load(l["region"]); ok {
		at := l.number("offset")
		return thing.(*copyrpc.Region).Slice(at, at+length), func() {}, nil
	}
	bytes := max(length, 1)
	if length > copyrpc.BufferBytesMax {
		bytes = 1
	}
	region, err := it.NewRegion(bytes)
	if err != nil {
		return buffer, nil, err
	}
	return region.Slice(0, length), func() { region.Close() }, nil
}

// send is of all sends of a line; they are posted here, in its order.
func (r *runner) send(it *lane, l line) {
	for i := 0; i < max(l.number("count"), 1); i++ {
		id, length := strconv.Itoa(l.number("id")+i), l.number("length")
		buffer, done, err := r.memory(it, l, length)
		var transfer *copyrpc.Transfer
		if err == nil {
			copy(buffer.Bytes(), payload(length, l.number("seed")+i))
			if transfer, err = it.PostSend(buffer.Tagged(uint32(l.number("tag")))); err != nil {
				done()
			}
		}
		if err != nil {
			tell("event kind=sent id=%s status=%s", id, statusOf(err))
			continue
		}
		ctx, cancel := r.limited(l)
		r.sends[id] = transfer.Cancel
		r.begin(func() {
			defer cancel()
			err := transfer.Wait(ctx)
			if r.ctx.Err() != nil {
				return
			}
			if ctx.Err() != nil { // as Send does
				transfer.Cancel()
				if err = transfer.Wait(context.Background()); errors.Is(err, copyrpc.ErrCanceled) {
					err = &copyrpc.Error{Status: copyrpc.ErrTimeout}
				}
			}
			tellMessage("sent", id, transfer, err, nil)
			done()
		})
	}
}

func (r *runner) receive(it *lane, l line) {
	rooms, tags := l.numbers("rooms"), l.numbers("tags")
	for i := 0; i < max(l.number("count"), 1); i++ {
		id := strconv.Itoa(l.number("id") + i)
		var buffers []copyrpc.Buffer
		var all []func()
		done := func() {
			for _, one := range all {
				one()
			}
		}
		var err error
		for j, room := range rooms {
			var buffer copyrpc.Buffer
			var one func()
			if buffer, one, err = r.memory(it, l, room); err != nil {
				break
			}
			if j < len(tags) {
				buffer.Tag = uint32(tags[j])
			}
			buffers, all = append(buffers, buffer), append(all, one)
		}
		var transfer *copyrpc.Transfer
		if err == nil {
			transfer, err = it.PostReceive(buffers...)
		}
		if err != nil {
			done()
			tell("event kind=received id=%s status=%s", id, statusOf(err))
			continue
		}
		r.begin(func() {
			if err := transfer.Wait(r.ctx); r.ctx.Err() == nil {
				tellMessage("received", id, transfer, err, buffers)
				done()
			}
		})
	}
}

func tellMessage(kind, id string, transfer *copyrpc.Transfer, err error, buffers []copyrpc.Buffer) {
	var lengths, checksums []string
	for i, size := range transfer.Sizes() {
		lengths = append(lengths, strconv.Itoa(size))
		if err == nil && buffers != nil {
			checksums = append(checksums, strconv.Itoa(int(crc32.ChecksumIEEE(buffers[i].Bytes()[:size]))))
		}
	}
	told := ""
	if err == nil || errors.Is(err, copyrpc.ErrTruncated) {
		told += " length=" + strings.Join(lengths, ",")
	}
	if checksums != nil {
		told += " checksum=" + strings.Join(checksums, ",")
	}
	tell("event kind=%s id=%s status=%s%s", kind, id, statusOf(err), told)
}

// ---- Verbs ----

func (r *runner) ofChannel(it *lane, verb string, l line) (string, error) {
	switch verb {
	case "send":
		r.send(it, l)
	case "receive":
		r.receive(it, l)
	case "cancel_send":
		cancel, ok := r.sends[l["id"]]
		if !ok {
			return "", errUnknown
		}
		cancel()
	case "set_share":
		return "", it.SetShare(l.number("share"))
	case "channel_disconnect":
		r.leave(&it.tie, it.Shutdown, l)
	case "channel_close":
		return "", it.Close()
	case "channel_info":
		info, err := it.Info()
		split := []string{"measured", "fixed", "hint"}[info.Split]
		return fmt.Sprintf("slots=%d queue_pairs=%d rail0=%v rail1=%v split=%s share=%d receives_open=%d sends_open=%d", info.Slots,
			info.QueuePairs, info.Rails[0], info.Rails[1], split, info.Share, info.ReceivesOpen, info.SendsOpen), err
	case "channel_stats":
		stats, err := it.Stats()
		told, _ := fields(stats, nil)
		for i, rail := range stats.Rails {
			told += fmt.Sprintf(" rail%d_bytes=%d rail%d_failures=%d rail%d_recoveries=%d", i, rail.BytesSent, i, rail.Failures, i,
				rail.Recoveries)
		}
		return told, err
	default:
		return "", errNoVerb
	}
	return "", nil
}
