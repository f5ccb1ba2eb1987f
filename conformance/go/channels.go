// channels.go: the verbs of channels, and what comes of them.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// lane is a channel under its name.
type lane struct {
	*copyrpc.Channel
	tie
}

// ---- Connecting ----

// opening is the life of a channel.
func (r *runner) opening(name string, open func() (*copyrpc.Channel, error)) (said, error) {
	r.begin(func() {
		channel, err := open()
		it := &lane{Channel: channel, tie: tie{name: name}}
		if !r.connected(name, it, err) {
			return
		}
		for {
			select {
			case rail, more := <-channel.RailEvents():
				if !more {
					r.over(&it.tie, it.Err())
					return
				}
				status := copyrpc.ErrDisconnected
				if rail.Up {
					status = copyrpc.OK
				}
				event("rail", said{"endpoint": name, "rail": rail.Rail, "status": status.Name()})
			case <-r.ctx.Done():
				return
			}
		}
	})
	return nil, nil
}

func (r *runner) makeChannel(verb string, l line) (said, error) {
	switch verb {
	case "channel_connect":
		return r.opening(l["name"], func() (*copyrpc.Channel, error) {
			return r.context.DialChannel(r.ctx, l["address"], l.channelOptions()...)
		})
	case "channel_blob":
		blob, err := r.context.NewChannelBlob(l.channelOptions()...)
		if err != nil {
			return nil, err
		}
		r.things.Store(l["name"], blob)
		r.halves[l["name"]] = blob
		return said{"blob": hex.EncodeToString(blob.Bytes)}, nil
	case "hint_open":
		opened, err := copyrpc.OpenShareHint(hintName(l["hint"]))
		if err == nil {
			r.hint, r.hintName = opened, hintName(l["hint"])
		}
		return nil, err
	case "hint_publish":
		if r.hint == nil {
			return nil, errUnknown
		}
		return nil, r.hint.Publish(l.number("share"), l.milliseconds("lifetime_ms"))
	case "hint_close":
		os.Remove("/dev/shm" + r.hintName)
		return nil, r.hint.Close()
	case "rails":
		rails, err := r.context.Rails()
		devices := []string{}
		for _, rail := range rails {
			devices = append(devices, rail.Device)
		}
		return said{"count": len(rails), "devices": devices}, err
	}
	return nil, errNoVerb
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
		number, length := l.number("id")+i, l.number("length")
		buffer, done, err := r.memory(it, l, length)
		var transfer *copyrpc.Transfer
		if err == nil {
			copy(buffer.Bytes(), payload(length, l.number("seed")+i))
			if transfer, err = it.PostSend(buffer.Tagged(uint32(l.number("tag")))); err != nil {
				done()
			}
		}
		if err != nil {
			event("sent", said{"id": number, "status": statusOf(err)})
			continue
		}
		ctx, cancel := r.limited(l)
		r.sends[strconv.Itoa(number)] = transfer.Cancel
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
			tellSent(number, transfer, err)
			done()
		})
	}
}

func (r *runner) receive(it *lane, l line) {
	rooms, tags := l.numbers("rooms"), l.numbers("tags")
	for i := 0; i < max(l.number("count"), 1); i++ {
		id := l.number("id") + i
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
			event("received", said{"id": id, "status": statusOf(err)})
			continue
		}
		r.begin(func() {
			if err := transfer.Wait(r.ctx); r.ctx.Err() == nil {
				tellReceived(id, transfer, err, buffers)
				done()
			}
		})
	}
}

func tellSent(id int, transfer *copyrpc.Transfer, err error) {
	told := said{"id": id, "status": statusOf(err)}
	if sizes := transfer.Sizes(); len(sizes) > 0 && (err == nil || errors.Is(err, copyrpc.ErrTruncated)) {
		told["length"] = sizes[0]
	}
	event("sent", told)
}

func tellReceived(id int, transfer *copyrpc.Transfer, err error, buffers []copyrpc.Buffer) {
	told := said{"id": id, "status": statusOf(err)}
	if err == nil || errors.Is(err, copyrpc.ErrTruncated) {
		told["lengths"] = transfer.Sizes()
	}
	if err == nil {
		checksums := []uint32{}
		for i, size := range transfer.Sizes() {
			checksums = append(checksums, crc32.ChecksumIEEE(buffers[i].Bytes()[:size]))
		}
		told["checksums"] = checksums
	}
	event("received", told)
}

// hintName is of this runner alone, so that scenarios can run side by side.
func hintName(name string) string {
	return fmt.Sprintf("/conformance-%d-%s", os.Getpid(), name)
}

// ---- Verbs ----

func (r *runner) ofChannel(it *lane, verb string, l line) (said, error) {
	switch verb {
	case "send":
		r.send(it, l)
	case "receive":
		r.receive(it, l)
	case "cancel_send":
		cancel, ok := r.sends[l["id"]]
		if !ok {
			return nil, errUnknown
		}
		cancel()
	case "set_share":
		return nil, it.SetShare(l.number("share"))
	case "channel_disconnect":
		r.leave(&it.tie, it.Shutdown, l)
	case "channel_close":
		return nil, it.Close()
	case "error":
		return tellError(it.Err())
	case "channel_info":
		info, err := it.Info()
		split := []string{"measured", "fixed", "hint"}[info.Split]
		return said{"slots": info.Slots, "queue_pairs": info.QueuePairs, "rail0": info.Rails[0].String(), "rail1": info.Rails[1].String(), "split": split,
			"share": info.Share, "receives_open": info.ReceivesOpen, "sends_open": info.SendsOpen}, err
	case "channel_stats":
		stats, err := it.Stats()
		told, _ := fields(stats, nil)
		return told.with(said{"rail0_bytes": stats.Rails[0].BytesSent, "rail1_bytes": stats.Rails[1].BytesSent, "rail1_failures": stats.Rails[1].Failures,
			"rail1_recoveries": stats.Rails[1].Recoveries}), err
	default:
		return nil, errNoVerb
	}
	return nil, nil
}
