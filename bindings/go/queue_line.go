// queue_line.go: how the ops of a queue wait for the poller, and for room.

package copyrpc

/*
#include <stdlib.h>
*/
import "C"

import "unsafe"

// queueLine is what is to be submitted, in order: runs of single ops, and batches. Receives and sends have one each, because either
// may wait for room, and the peer's room for the one may depend on the other.
type queueLine struct {
	open    []*queueRun // guarded by the queue's mutex
	sending []*queueRun // guarded by the poller's mutex, with the fields below
	first   int         // of `sending`: those before are done with
	blocked bool        // CRPC_E_AGAIN; CompletionRoom will tell
}

// queueRun is an array of ops in C memory.
type queueRun struct {
	ops    []QueueOp // its length is the room
	count  int
	sent   int
	pieces []Piece
	work   *Work         // of a batch, whose the memory is; nil: single ops, and it is the run's
	passed chan struct{} // it has no ops, and this is closed when C has got those before it
}

func (run *queueRun) add(op *QueueOp) *QueueOp {
	if run.count == len(run.ops) {
		run.ops = grown(run.ops, max(2*run.count, 16))
	}
	place := &run.ops[run.count]
	*place = *op
	run.count++
	return place
}

func (run *queueRun) free() {
	if run.work == nil {
		C.free(unsafe.Pointer(unsafe.SliceData(run.ops)))
	}
	*run = queueRun{}
}

func (q *queue) lineOf(opcode uint8) *queueLine {
	if opcode == QueueReceive {
		return &q.receives
	}
	if q.tags != nil && (opcode == QueueTagRemove || opcode == QueueTagSync) {
		return &q.tags.orders
	}
	return &q.sends
}

// last is the run that single ops are added to; nil: there is none.
func (line *queueLine) last() *queueRun {
	if last := len(line.open) - 1; last >= 0 && line.open[last].work == nil && line.open[last].passed == nil {
		return line.open[last]
	}
	return nil
}

func (line *queueLine) free() {
	for _, runs := range [][]*queueRun{line.open, line.sending[line.first:]} {
		for _, run := range runs {
			run.free()
		}
	}
	*line = queueLine{}
}

const (
	runsKept   = 4       // that nobody uses, of a queue
	runOpsKept = 4 << 10 // a run that grew larger is given back to the system
)

func (q *queue) takeRun() *queueRun {
	if last := len(q.spare) - 1; last >= 0 {
		run := q.spare[last]
		q.spare = q.spare[:last]
		return run
	}
	return &queueRun{}
}

// putRun takes back a run that was submitted.
func (q *queue) putRun(run *queueRun) {
	if run.work != nil {
		return
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if len(q.spare) == runsKept || len(run.ops) > runOpsKept {
		run.free()
		return
	}
	run.count, run.sent = 0, 0
	q.spare = append(q.spare, run)
}

// send gives C what has gathered.
func (q *queue) send() {
	q.mutex.Lock()
	q.queued = false
	over := q.over
	q.mutex.Unlock()
	if over {
		return
	}
	if q.tags != nil {
		q.submit(&q.tags.orders)
	}
	q.submit(&q.receives)
	q.submit(&q.sends)
	if q.leaving && !q.sends.blocked {
		q.leave()
	}
}

// submit sends all of a line that there is room for.
func (q *queue) submit(line *queueLine) {
	for !line.blocked && q.take(line) {
		run := line.sending[line.first]
		for run.sent < run.count {
			taken, reason := q.give(run)
			run.sent += taken
			if reason == ErrAgain {
				line.blocked = true
				return
			}
			if run.sent < run.count {
				q.refused(run, reason)
			}
		}
		line.sending[line.first] = nil
		line.first++
		if run.passed != nil {
			close(run.passed)
		} else {
			q.putRun(run)
		}
	}
}

// give is the crossing.
func (q *queue) give(run *queueRun) (int, Status) {
	ops, count := run.ops[run.sent:run.count], run.count-run.sent
	if q.isLane {
		return q.poller.raw.submitLane(EndpointHandle(q.handle), &laneOps(ops)[0], count, run.pieces)
	}
	if q.tags != nil {
		return q.giveTags(run)
	}
	return q.poller.raw.submitQueue(QueueHandle(q.handle), &ops[0], count, run.pieces)
}

// take makes what is open the runs being sent, unless there are some; false if there are neither.
func (q *queue) take(line *queueLine) bool {
	if line.first == len(line.sending) {
		q.mutex.Lock()
		line.open, line.sending, line.first = line.sending[:0], line.open, 0
		q.mutex.Unlock()
	}
	return line.first < len(line.sending)
}

// refused ends the first op that was not accepted; of a batch, also those after it, which may depend on it.
func (q *queue) refused(run *queueRun, reason Status) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	index := run.sent
	run.sent++
	if run.work == nil {
		q.completedOne(&Completion{Kind: CompletionWork, Status: int32(reason), UserData: run.ops[index].UserData})
		return
	}
	run.sent = run.count
	many := run.work.many
	many.failed(index, index+1, reason)
	many.failed(index+1, run.count, ErrCanceled)
	if many.left == 0 {
		run.work.end()
		q.works.remove(run.work)
	}
}
