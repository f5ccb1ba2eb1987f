// changes.go: queues that change, and shared receives that run low.
package main

import (
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

// changes are those that the line names.
func (l line) changes() (changes []copyrpc.QueueChange) {
	for word, change := range map[string]func(int) copyrpc.QueueChange{
		"access":                func(access int) copyrpc.QueueChange { return copyrpc.ChangeAccess(copyrpc.Access(access)) },
		"not_ready_wait_ms":     func(int) copyrpc.QueueChange { return copyrpc.ChangeNotReadyWait(l.milliseconds("not_ready_wait_ms")) },
		"retry_timeout":         copyrpc.ChangeRetryTimeout,
		"retry_count":           copyrpc.ChangeRetryCount,
		"not_ready_retry_count": copyrpc.ChangeNotReadyRetryCount,
		"queue_key":             func(key int) copyrpc.QueueChange { return copyrpc.ChangeQueueKey(uint32(key)) },
		"limit":                 copyrpc.ChangeSRQLimit,
	} {
		if _, ok := l[word]; ok {
			changes = append(changes, change(l.number(word)))
		}
	}
	return changes
}

// low returns when the limit counts. It is another one than that of before.
func (r *runner) low(it *pool, limit int) error {
	refused := make(chan error, 1)
	r.begin(func() {
		if err := it.RunLow(r.ctx, limit); err != nil {
			refused <- err
		} else {
			tellLow(it.name)
		}
	})
	for {
		info, err := it.Info()
		if err != nil || info.SRQLimit == limit {
			return err
		}
		select {
		case err := <-refused:
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

func tellLow(name string) {
	event("low", said{"endpoint": name, "status": "CRPC_OK"})
}
