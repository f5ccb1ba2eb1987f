// words.go: what the members of a command say, and what is told: fields, payloads, statuses.
package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const period = 4093

var (
	errUnknown  = errors.New("UNKNOWN_NAME")
	errNoVerb   = errors.New("UNKNOWN_VERB")
	errFailHere = errors.New("as it was told to")
	humps       = regexp.MustCompile("([a-z])([A-Z])")
)

// tellable is what lines have of structs, which may have more.
var tellable = map[string]string{
	"EndpointInfo": " state request_bytes_max reply_bytes_max calls_max calls_open requests_open calls_waiting address_index connections ",
	"Stats": " calls responses calls_failed requests replies late_responses batches_sent batches_received bytes_sent bytes_received " +
		"protocol_errors ",
	"ListenerStats": " requests refused ",
	"RegionInfo":    " bytes remote_key access ",
	"ChannelStats": " messages_sent messages_received bytes_sent bytes_received sends_failed receives_failed truncated " +
		"protocol_errors ",
	"QueueInfo": " state sends send_pieces inline_bytes receives receive_pieces sends_open receives_open queues streams " +
		"streams_failed tags tags_open ",
	"QueueStats": " sends receives signaled_wqes doorbells ",
}

// fields tells of a struct's numbers and words: CallsMax is calls_max.
func fields(of any, err error) (said, error) {
	told, value := said{}, reflect.ValueOf(of)
	if err != nil { // there is nothing to describe
		return told, err
	}
	for i := 0; i < value.NumField(); i++ {
		name := strings.ToLower(humps.ReplaceAllString(value.Type().Field(i).Name, "${1}_$2"))
		if !strings.Contains(tellable[value.Type().Name()], " "+name+" ") {
			continue
		}
		told[name] = value.Field(i).Interface()
		if stringer, ok := told[name].(fmt.Stringer); ok {
			told[name] = stringer.String()
		}
	}
	return told, err
}

func payload(length, seed int) []byte {
	data := make([]byte, length)
	for i := range data {
		data[i] = byte((uint32(seed)*40503 + uint32(i%period)) * 2654435761 >> 24)
	}
	return data
}

func told(data []byte) said {
	return said{"length": len(data), "checksum": crc32.ChecksumIEEE(data)}
}

// statusOf is the name of a status, or the number of the application's.
func statusOf(err error) any {
	var reply *copyrpc.ReplyError
	var own *copyrpc.Error
	switch {
	case err == nil:
		return "CRPC_OK"
	case errors.As(err, &reply):
		return reply.Status
	case errors.As(err, &own):
		return own.Status.Name()
	}
	return err.Error()
}

func (l line) number(key string) int {
	number, _ := strconv.Atoi(l[key])
	return number
}

// blob is what the line has of one; what is no hexadecimal is none.
func (l line) blob() []byte {
	blob, _ := hex.DecodeString(l["blob"])
	return blob
}

// trace is the line's; schema.json sees to its length.
func (l line) trace() *copyrpc.Trace {
	told, _ := hex.DecodeString(l["trace"])
	if len(told) != 25 {
		return nil
	}
	return &copyrpc.Trace{TraceID: [16]byte(told[:16]), SpanID: [8]byte(told[16:24]), Flags: told[24]}
}

func traceWords(trace copyrpc.Trace) string {
	return hex.EncodeToString(append(append(trace.TraceID[:], trace.SpanID[:]...), trace.Flags))
}

func (l line) milliseconds(key string) time.Duration {
	return time.Duration(l.number(key)) * time.Millisecond
}

var (
	numbers = map[string]func(int) copyrpc.Option{
		"endpoints_max": copyrpc.WithEndpointsMax, "receive_depth": copyrpc.WithReceiveDepth, "backlog": copyrpc.WithBacklog,
		"ring_bytes": copyrpc.WithRingBytes, "peer_ring_bytes_max": copyrpc.WithPeerRingBytesMax, "request_bytes": copyrpc.WithRequestBytes, "calls_max": copyrpc.WithCallsMax,
		"batch_window": copyrpc.WithBatchWindow, "channels_max": copyrpc.WithChannelsMax, "queues_max": copyrpc.WithQueuesMax, "initiators": copyrpc.WithInitiators, "slots": copyrpc.WithSlots,
		"sends_max": copyrpc.WithSendsMax, "queue_pairs": copyrpc.WithQueuePairs, "share": copyrpc.WithShare,
		"stripe_bytes_min": copyrpc.WithStripeBytesMin, "traffic_class": copyrpc.WithTrafficClass, "service_level": copyrpc.WithServiceLevel,
	}
	times = map[string]func(time.Duration) copyrpc.Option{
		"connect_timeout_ms": copyrpc.WithConnectTimeout, "keepalive_ms": copyrpc.WithKeepalive, "rail_retry_ms": copyrpc.WithRailRetry,
	}
	texts = map[string]func(string) copyrpc.Option{
		"device": copyrpc.WithDevice, "driver": copyrpc.WithDriver,
		"hint":       func(name string) copyrpc.Option { return copyrpc.WithShareHint(hintName(name)) },
		"token":      func(token string) copyrpc.Option { return copyrpc.WithToken([]byte(token)) },
		"key":        func(key string) copyrpc.Option { return copyrpc.WithKey([]byte(key)) },
		"call_only":  func(string) copyrpc.Option { return copyrpc.WithCallOnly() },
		"serve_only": func(string) copyrpc.Option { return copyrpc.WithServeOnly() },
		"lane":       func(string) copyrpc.Option { return copyrpc.WithLane() },
	}
)

func (l line) options() (options []copyrpc.Option) {
	if l["reconnect"] == "1" || l.number("reconnect_pause_ms")|l.number("reconnect_pause_max_ms") != 0 {
		options = append(options, copyrpc.WithReconnect(l.milliseconds("reconnect_pause_ms"), l.milliseconds("reconnect_pause_max_ms")))
	}
	for key, text := range l {
		if option, ok := numbers[key]; ok {
			options = append(options, option(l.number(key)))
		} else if option, ok := times[key]; ok {
			options = append(options, option(l.milliseconds(key)))
		} else if option, ok := texts[key]; ok {
			options = append(options, option(text))
		}
	}
	return append(options, copyrpc.WithRetry(l.number("retry_timeout"), l.number("retry_count")))
}

// contextOptions are those of a context.
func (l line) contextOptions() []copyrpc.Option {
	options := l.options()
	if l["rails"] == "1" {
		options = append(options, copyrpc.WithRails())
	}
	if l["queues"] == "1" {
		options = append(options, copyrpc.WithQueues())
	}
	if l["log"] == "1" {
		options = append(options, copyrpc.WithLog(copyrpc.LogInfo))
	}
	return options
}

// channelOptions are those of a channel: there, `rails` are bits.
func (l line) channelOptions() []copyrpc.Option {
	var rails []int
	for rail := 0; rail < 32; rail++ {
		if l.number("rails")>>rail&1 != 0 {
			rails = append(rails, rail)
		}
	}
	return append(l.options(), copyrpc.WithRailsUsed(rails...))
}

// numbers are those of a word that has several, with commas between.
func (l line) numbers(key string) (all []int) {
	for _, word := range strings.Split(l[key], ",") {
		number, _ := strconv.Atoi(word)
		all = append(all, number)
	}
	return all
}

// regionFields has the address, of 64 bits, as a line has it.
func regionFields(info copyrpc.RegionInfo, err error) (said, error) {
	told, _ := fields(info, nil)
	return told.with(said{"address": big(uint64(info.Address))}), err
}
