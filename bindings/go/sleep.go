// sleep.go: sleeping on a context's descriptor in Go's netpoller: the goroutine parks, and no OS thread waits with it.

package copyrpc

/*
#include <poll.h>

static int copyrpc_go_readable(int descriptor)
{
    struct pollfd watched = {.fd = descriptor, .events = POLLIN};
    return poll(&watched, 1, 0) == 1;
}
*/
import "C"

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// sleeper watches a duplicate of crpc_context_fd, which belongs to the context and must not be closed by os.File.
type sleeper struct {
	file *os.File
	conn syscall.RawConn
}

func (s *sleeper) open(descriptor int) error {
	duplicate, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(descriptor), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return errno
	}
	// os.NewFile hands only non-blocking descriptors to the netpoller. The flag means nothing to an epoll descriptor.
	if err := syscall.SetNonblock(int(duplicate), true); err != nil {
		syscall.Close(int(duplicate))
		return err
	}
	s.file = os.NewFile(duplicate, "copyrpc context")
	// Only a file that the netpoller watches takes deadlines.
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		s.file.Close()
		return err
	}
	var err error
	s.conn, err = s.file.SyscallConn()
	return err
}

func (s *sleeper) close() {
	if s.file != nil {
		s.file.Close()
	}
}

var longAgo = time.Unix(1, 0)

// wake ends the present sleep; for one that is about to begin, `ready` must see the reason. No system call.
func (s *sleeper) wake() {
	s.file.SetReadDeadline(longAgo)
}

// sleep calls `ready`, which arms the context, and if it says no, parks until the descriptor is readable or wake is called.
//
// The netpoller is edge-triggered, and the context's descriptor is level-triggered. Hence two rules. `ready` must look and arm
// inside of this function, because RawConn.Read first forgets the edges that the netpoller has seen. And a descriptor that is
// readable by then, from an event of an earlier arming that nobody has read, may give no further edge: it is not slept on.
func (s *sleeper) sleep(ready func() bool) error {
	// What woke it last is taken away. A wake-up for a reason that arises before this line shows to `ready`; one that comes
	// after it ends the sleep; one that comes late wakes for nothing, once.
	s.file.SetReadDeadline(time.Time{})
	looked := false
	err := s.conn.Read(func(descriptor uintptr) bool {
		if looked {
			return true
		}
		looked = true
		return ready() || C.copyrpc_go_readable(C.int(descriptor)) != 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
