// words.go: lines taken apart, payloads, statuses, options.
package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const period = 4093

var (
	output      sync.Mutex
	errUnknown  = errors.New("UNKNOWN_NAME")
	errNoVerb   = errors.New("UNKNOWN_VERB")
	errFailHere = errors.New("as it was told to")
)

func tell(format string, arguments ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", arguments...)
}

func told(data []byte) string {
	return fmt.Sprintf("length=%d checksum=%d", len(data), crc32.ChecksumIEEE(data))
}

func payload(length int, seed uint32) []byte {
	data := make([]byte, length)
	value := seed*2654435761 + 1
	for i := range data {
		if i < period {
			value = value*1664525 + 1013904223
			data[i] = byte(value >> 24)
		} else {
			data[i] = data[i-period]
		}
	}
	return data
}

func statusOf(err error) string {
	var reply *copyrpc.ReplyError
	var own *copyrpc.Error
	switch {
	case err == nil:
		return "CRPC_OK"
	case errors.As(err, &reply):
		return strconv.Itoa(int(reply.Status))
	case errors.As(err, &own):
		return own.Status.Name()
	}
	return err.Error()
}

type line map[string]string

func (l line) number(key string) int {
	number, _ := strconv.Atoi(l[key])
	return number
}

func (l line) milliseconds(key string) time.Duration {
	return time.Duration(l.number(key)) * time.Millisecond
}

func (l line) options() (options []copyrpc.Option) {
	for key, option := range map[string]func(int) copyrpc.Option{
		"endpoints_max": copyrpc.WithEndpointsMax, "receive_depth": copyrpc.WithReceiveDepth, "backlog": copyrpc.WithBacklog,
		"ring_bytes": copyrpc.WithRingBytes, "request_bytes": copyrpc.WithRequestBytes,
		"calls_max": copyrpc.WithCallsMax, "batch_window": copyrpc.WithBatchWindow,
	} {
		if _, ok := l[key]; ok {
			options = append(options, option(l.number(key)))
		}
	}
	for key, option := range map[string]func() copyrpc.Option{"call_only": copyrpc.WithCallOnly, "serve_only": copyrpc.WithServeOnly} {
		if l[key] == "1" {
			options = append(options, option())
		}
	}
	for key, option := range map[string]func(time.Duration) copyrpc.Option{
		"connect_timeout_ms": copyrpc.WithConnectTimeout, "keepalive_ms": copyrpc.WithKeepalive,
	} {
		if _, ok := l[key]; ok {
			options = append(options, option(l.milliseconds(key)))
		}
	}
	if token, ok := l["token"]; ok {
		options = append(options, copyrpc.WithToken([]byte(token)))
	}
	return options
}
