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
	"time"
)

func monotonicNs() int64 { return int64(C.copyrpc_go_monotonic_ns()) }

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
	now, nowNs := time.Now(), monotonicNs()
	entries := make([]LogEntry, count)
	for i := range entries {
		entry := &theirs[i]
		entries[i] = LogEntry{
			Time: now.Add(time.Duration(int64(entry.time_ns) - nowNs)), Level: LogLevel(entry.level), Lost: int(entry.lost),
			Message: text(entry.message[:]),
		}
	}
	return entries, nil
}
