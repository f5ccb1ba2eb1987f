// slog.go: the log of a context in log/slog. The poller takes entries as they are, and a goroutine that has none of the package's locks tells
// the handler. So a handler may be slow, panic, or use the context: it holds up nobody.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// More than these are left to C, which keeps the last 256 and counts those that it loses.
	slogEntriesMax = 1024
	// How long Close waits for the handler.
	slogCloseTime = time.Second
	// What is taken in one crossing.
	slogEntriesAtOnce = 16
)

// WithSlog has the log of the context told to a logger: at the level of each entry, and with "device" as an attribute. The time of a record is
// when it happened. The level of the logger's handler decides what it gets, unless [WithLog] keeps less; while it takes no errors, nothing is
// taken. A goroutine of the context calls the handler, for one entry after the other; it may be slow, and may use the context. If it is so slow that
// entries are lost, a warning says how many. Closing the context waits a second at most until all is told. For Open, and for functions
// that share a context: they use a different context for each logger. Not for OpenRaw.
func WithSlog(logger *slog.Logger) Option {
	return func(s *settings) {
		if logger == nil {
			s.problem = errorf("", ErrInvalid, "WithSlog got no logger: make it with slog.New, or take slog.Default()")
		}
		s.logger = logger
	}
}

var slogLevels = map[LogLevel]slog.Level{LogError: slog.LevelError, LogWarning: slog.LevelWarn, LogInfo: slog.LevelInfo, LogDebug: slog.LevelDebug}

// logFeed brings the log of one context to one handler.
type logFeed struct {
	poller  *poller
	handler slog.Handler
	device  string
	taken   []C.crpc_log_entry // guarded by poller.mutex
	wanted  atomic.Bool        // the handler took errors when it was asked last

	mutex    sync.Mutex // comes after all others
	untold   []C.crpc_log_entry
	leftSome bool // in C: there were too many
	asking   bool // the handler is to be asked whether it takes errors
	telling  bool
	told     chan struct{} // closed when the present telling has ended
}

func newLogFeed(p *poller, logger *slog.Logger) (*logFeed, error) {
	info, err := p.raw.Info()
	if err != nil {
		return nil, err
	}
	return &logFeed{poller: p, handler: logger.Handler(), device: info.Device, taken: make([]C.crpc_log_entry, slogEntriesAtOnce)}, nil
}

// ---- With the poller's mutex --------------------------------------------------------------------

// look is called after each turn: if something has become of a connection or a device, the log says more of it.
func (l *logFeed) look(completions []Completion) {
	for i := range completions {
		switch completions[i].Kind {
		case CompletionConnectRequest, CompletionConnected, CompletionDisconnected, CompletionReconnecting, CompletionDevice, CompletionRail:
			if l.wanted.Load() {
				l.take(false)
			} else {
				l.tell(true)
			}
			return
		}
	}
}

// beforeSleep: nobody will look for a while.
func (l *logFeed) beforeSleep() {
	if l.wanted.Load() {
		l.take(false)
	}
}

// take takes what there is out of C's log, and has it told. It never waits.
func (l *logFeed) take(last bool) {
	for l.poller.raw.handle != nil {
		l.mutex.Lock()
		full := len(l.untold) >= slogEntriesMax && !last
		l.leftSome = l.leftSome || full
		l.mutex.Unlock()
		if full {
			return
		}
		count := C.crpc_context_log(l.poller.raw.handle, &l.taken[0], slogEntriesAtOnce)
		if count <= 0 {
			return
		}
		l.tell(false, l.taken[:count]...)
	}
}

// tell has the handler told of entries, or asked whether it takes any.
func (l *logFeed) tell(ask bool, entries ...C.crpc_log_entry) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.untold = append(l.untold, entries...)
	l.asking = l.asking || ask
	if !l.telling {
		l.telling = true
		l.told = make(chan struct{})
		go l.tellAll()
	}
}

// ---- Without any lock ---------------------------------------------------------------------------

// finish waits until all that was taken is told, for a while at most: the handler may be the one that waits here.
func (l *logFeed) finish() {
	l.mutex.Lock()
	telling, told := l.telling, l.told
	l.mutex.Unlock()
	if !telling {
		return
	}
	timer := time.NewTimer(slogCloseTime)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	}
}

func (l *logFeed) tellAll() {
	ended := false
	defer func() {
		if !ended { // the handler has ended its goroutine
			go l.tellAll()
		}
	}()
	for {
		var entry C.crpc_log_entry
		l.mutex.Lock()
		ask, found := l.asking, len(l.untold) > 0
		more := !found && l.leftSome
		l.asking = false
		if found {
			entry = l.untold[0]
			l.untold = l.untold[1:]
		} else {
			l.untold, l.leftSome = nil, false
		}
		if !ask && !found && !more {
			l.telling, ended = false, true
			close(l.told)
		}
		l.mutex.Unlock()
		if ended {
			return
		}
		if ask {
			l.ask()
		}
		if found {
			l.handle(&entry)
		}
		if more {
			l.takeNow()
		}
	}
}

// ask looks whether the handler takes errors, which are the most severe there is.
func (l *logFeed) ask() {
	if l.enabled(slog.LevelError) && !l.wanted.Swap(true) {
		l.takeNow()
	}
}

func (l *logFeed) takeNow() {
	l.poller.mutex.Lock()
	defer l.poller.mutex.Unlock()
	l.take(false)
}

func (l *logFeed) enabled(level slog.Level) (enabled bool) {
	defer l.recovered()
	return l.handler.Enabled(context.Background(), level)
}

func (l *logFeed) handle(entry *C.crpc_log_entry) {
	at := timeOfEntry(uint64(entry.time_ns))
	if entry.lost > 0 && l.enabled(slog.LevelWarn) {
		l.record(at, slog.LevelWarn, fmt.Sprintf("%d log entries were lost: there were more than the handler took", entry.lost))
	}
	level := slogLevels[LogLevel(entry.level)]
	if l.enabled(level) {
		l.record(at, level, text(entry.message[:]))
	} else {
		l.wanted.Store(l.enabled(slog.LevelError)) // if not, it is asked again when something becomes of a connection
	}
}

func (l *logFeed) record(at time.Time, level slog.Level, message string) {
	defer l.recovered()
	record := slog.NewRecord(at, level, message, 0)
	record.AddAttrs(slog.String("device", l.device))
	_ = l.handler.Handle(context.Background(), record) // as slog itself does: nobody is there to be told
}

func (l *logFeed) recovered() {
	if why := recover(); why != nil {
		Warn(fmt.Sprintf("the handler of WithSlog panicked: %v\n%s", why, debug.Stack()))
	}
}
