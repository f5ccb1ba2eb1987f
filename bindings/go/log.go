// log.go: the log that a context keeps.

package copyrpc

/*
#include <time.h>
#include <copyrpc.h>

// The clock of crpc_log_entry, which Go keeps to itself.
static int64_t copyrpc_go_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
*/
import "C"

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// bothClocks is one moment as Go and as C tell it. Go's clock is read between two readings of C's; the pair with the least between them is
// taken, since a thread that was held up in between would have them apart for good.
var bothClocks = sync.OnceValue(func() (moment struct {
	at time.Time
	ns int64
}) {
	least := int64(math.MaxInt64)
	for i := 0; i < 16; i++ {
		before := int64(C.copyrpc_go_monotonic_ns())
		at := time.Now()
		after := int64(C.copyrpc_go_monotonic_ns())
		if after-before < least {
			least = after - before
			moment.at, moment.ns = at, before+least/2
		}
	}
	return moment
})

// timeOfEntry is when C's clock showed timeNs, by the wall clock as it is set now. Two times that it gives are as far apart as C's are, whenever it
// is asked.
func timeOfEntry(timeNs uint64) time.Time {
	moment, now := bothClocks(), time.Now()
	return now.Add(time.Duration(int64(timeNs)-moment.ns) - now.Sub(moment.at))
}

// LogLevel is the severity of a log entry, and the least severe level that a context's log keeps.
type LogLevel int

const (
	LogOff     LogLevel = C.CRPC_LOG_OFF
	LogError   LogLevel = C.CRPC_LOG_ERROR
	LogWarning LogLevel = C.CRPC_LOG_WARNING
	LogInfo    LogLevel = C.CRPC_LOG_INFO
	LogDebug   LogLevel = C.CRPC_LOG_DEBUG
)

// String returns the name that COPYRPC_LOG uses: "error", "warning", "info" or "debug".
func (level LogLevel) String() string {
	names := [...]string{LogOff: "off", LogError: "error", LogWarning: "warning", LogInfo: "info", LogDebug: "debug"}
	if level < 0 || int(level) >= len(names) {
		return fmt.Sprintf("LogLevel(%d)", int(level))
	}
	return names[level]
}

// WithLog makes the context keep a log for [Context.Log], with entries of this level and of more
// severe levels; LogOff by default. For Open and OpenRaw, and for functions that share a context:
// they use a different context for each level. Independently, the environment variable
// COPYRPC_LOG=error|warning|info|debug writes the log to stderr.
func WithLog(level LogLevel) Option {
	return func(s *settings) {
		if level < LogOff || level > LogDebug {
			s.problem = errorf("", ErrInvalid, "%v is no level of the log; there are LogOff to LogDebug", level)
			return
		}
		s.device.log_level = C.uint32_t(level)
	}
}

// LogEntry is one event in a context.
type LogEntry struct {
	Time    time.Time
	Level   LogLevel
	Lost    int // entries before this one that were overwritten because nobody read them
	Message string
}

// logEntriesKept is how many entries C keeps.
const logEntriesKept = 256

// Log takes the entries out of the context's log, oldest first. The log keeps the last 256 entries.
// See [WithLog]. With [WithSlog], they go to the logger, and few are left for this.
func (c *Context) Log() ([]LogEntry, error) { return asked(c, "context log", (*RawContext).Log) }

// Log takes the entries out of the context's log, oldest first. The log keeps the last 256 entries.
// See [WithLog].
func (r *RawContext) Log() ([]LogEntry, error) {
	const op = "context log"
	if r == nil || r.handle == nil {
		return nil, newError(op, ErrClosed)
	}
	var theirs [logEntriesKept]C.crpc_log_entry
	count := C.crpc_context_log(r.handle, &theirs[0], logEntriesKept)
	if count < 0 {
		return nil, newError(op, Status(count))
	}
	if count == 0 {
		return nil, nil
	}
	entries := make([]LogEntry, count)
	for i := range entries {
		entry := &theirs[i]
		entries[i] = LogEntry{
			Time: timeOfEntry(uint64(entry.time_ns)), Level: LogLevel(entry.level), Lost: int(entry.lost), Message: text(entry.message[:]),
		}
	}
	return entries, nil
}
