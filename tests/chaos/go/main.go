// main.go: the worker in Go: its options, its ops, and its end. c/main.c has the options.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/copyrpc/copyrpc/bindings/go"
)

const (
	notStarted   = 3 // the exit status if the device could not be used: its port may be down
	failuresMax  = 3
	troubleCodes = 1000 // of records of trouble, where C has lines of its files
)

type worker struct {
	context  *copyrpc.Context
	region   *copyrpc.Region
	journal  *journal
	content  content
	life     uint64
	next     atomic.Uint64
	pace     time.Duration
	stopping context.Context // done when it was told to end
	stop     context.CancelFunc
	lives    sync.WaitGroup // of connections, and who makes them
	held     atomic.Int64   // connections
	failures atomic.Int32   // connects that failed, since one did not
	rooms    chan *room

	queueRegion *copyrpc.Region
	queueMemory copyrpc.Remote // where it is, for peers
	queueRooms  chan *queueRoom

	listen, connect, channels, queues string

	diceMutex sync.Mutex
	random    *rand.Rand

	mistake mistake
}

// mistake is what a test of the oracle wants done wrong, and at which occasion.
type mistake struct {
	mutex sync.Mutex
	what  string
	after int
	ready bool // it has told what it holds in the beginning
	done  bool
}

// ---- Ops ----

// dice gives a random number below `most`, which is above 0.
func (w *worker) dice(most int) int {
	w.diceMutex.Lock()
	defer w.diceMutex.Unlock()
	return w.random.Intn(most)
}

// chance is whether something happens that does so once in `rarity` times.
func (w *worker) chance(rarity int) bool { return w.dice(rarity) == 0 }

// newIDs gives the first of some ids in a row.
func (w *worker) newIDs(count int) uint64 {
	return w.life<<32 | (w.next.Add(uint64(count)) - uint64(count) + 1)
}

func (w *worker) begin(kind int32, id, a, b uint64) { w.journal.put(recordBegin, kind, id, a, b) }

func (w *worker) refused(id uint64, status copyrpc.Status) {
	w.journal.put(recordRefused, int32(status), id, 0, 0)
}

func (w *worker) ended(id uint64, status int32, a, b uint64) {
	if w.mistaken("lost") {
		return
	}
	w.journal.put(recordEnded, status, id, a, b)
	if w.mistaken("doubled") {
		w.journal.put(recordEnded, status, id, a, b)
	}
}

// over tells how an op ended whose error this is. What the binding had taken, and the library then did not, was never accepted.
func (w *worker) over(id uint64, err error, a, b uint64) {
	status := statusIn(err)
	switch status {
	case copyrpc.ErrClosing, copyrpc.ErrState, copyrpc.ErrStale:
		w.refused(id, status)
	default:
		w.ended(id, int32(status), a, b)
	}
}

// trouble tells of something that the library must not do.
func (w *worker) trouble(code uint64, err error) {
	w.journal.put(recordTrouble, int32(statusIn(err)), 0, troubleCodes+code, 0)
}

// statusIn gives the status in an error of the binding.
func statusIn(err error) copyrpc.Status {
	var own *copyrpc.Error
	if errors.As(err, &own) {
		return own.Status
	}
	if err != nil {
		return copyrpc.ErrInvalid // an error without a status is none that may be
	}
	return copyrpc.OK
}

// mayGoUnnoticed has what is done wrong again and again: a reply that nobody waits for; the memory of a queue whose peer never heard that it
// was connected, or had WRITEs open whose ends do not say whether they were done.
var mayGoUnnoticed = map[string]bool{"wrong": true, "spoiled": true, "miscounted": true}

// mistaken is whether now is the time for this mistake.
func (w *worker) mistaken(what string) bool {
	m := &w.mistake
	if m.what != what {
		return false
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if !m.ready || m.done {
		return false
	}
	if m.after > 0 {
		m.after--
		return false
	}
	m.done = !mayGoUnnoticed[what]
	w.journal.put(recordMistake, 0, 0, 0, 0)
	return true
}

// ---- What it holds ----

func (w *worker) tellState() {
	w.mistake.mutex.Lock()
	w.mistake.ready = true
	w.mistake.mutex.Unlock()
	debug.FreeOSMemory() // what waits for the garbage collector would look like a leak
	info, err := w.context.Info()
	if err != nil {
		return // it is being closed
	}
	var receives uint64
	rails, _ := w.context.Rails()
	for i, rail := range rails {
		receives |= uint64(rail.ReceivesLeft) << (32 * i)
	}
	used := int(w.held.Load()) + cap(w.rooms) - len(w.rooms) + cap(w.queueRooms) - len(w.queueRooms)
	w.journal.put(recordState, 0, 0, uint64(used), uint64(info.Endpoints+info.Queues))
	w.journal.put(recordState, 1, 0, uint64(info.BatchWindowLeft), receives)
}

// ---- Its course ----

func (w *worker) hear(number os.Signal, do func()) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, number)
	go func() {
		for range told {
			do()
		}
	}()
}

func port(address string) uint64 {
	_, port, _ := net.SplitHostPort(address)
	number, _ := strconv.ParseUint(port, 10, 16)
	return number
}

// serve accepts peers until it is told to end.
func (w *worker) serve() error {
	calls, err := w.context.Listen(w.listen)
	if err != nil {
		return err
	}
	defer calls.Close()
	channels, err := w.context.ListenChannels(w.listen)
	if err != nil {
		return err
	}
	defer channels.Close()
	queues, err := w.context.ListenQueues(w.listen)
	if err != nil {
		return err
	}
	defer queues.Close()
	w.journal.put(recordReady, 0, 0, port(calls.Address()), port(channels.Address())|port(queues.Address())<<32)
	w.lives.Add(3)
	go w.acceptCalls(calls)
	go w.acceptChannels(channels)
	go w.acceptQueues(queues)
	<-w.stopping.Done()
	w.lives.Wait()
	return nil
}

func (w *worker) run(device string, connections int) error {
	rooms, queueRooms := roomsMax, queueRoomsMax
	if w.listen == "" {
		rooms, queueRooms = connections, connections
	}
	var err error
	if w.context, err = copyrpc.Open(copyrpc.WithDevice(device), copyrpc.WithRails(), copyrpc.WithQueues()); err != nil {
		return err
	}
	w.hear(syscall.SIGUSR1, w.tellState)
	if err = w.makeRooms(rooms); err != nil {
		return err
	}
	if err = w.makeQueueRooms(queueRooms); err != nil {
		return err
	}
	if w.listen != "" {
		if err = w.serve(); err != nil {
			return err
		}
	}
	for i := 0; i < connections && (w.connect != "" || w.channels != "" || w.queues != ""); i++ {
		w.lives.Add(1)
		go w.connections()
	}
	w.lives.Wait()
	if err := w.context.Close(); err != nil {
		w.trouble(1, err)
	}
	w.journal.put(recordDone, 0, 0, 0, 0)
	return nil
}

func main() {
	w := &worker{}
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.hear(syscall.SIGTERM, w.stop)
	journal, table := flag.String("journal", "", ""), flag.String("content", "", "")
	device, wrong := flag.String("device", "", ""), flag.String("mistake", "", "")
	seed, connections := flag.Int64("seed", 1, ""), flag.Int("connections", 2, "")
	pace := flag.Int("pace", 4000, "microseconds")
	flag.Uint64Var(&w.life, "life", 0, "")
	flag.StringVar(&w.listen, "listen", "", "")
	flag.StringVar(&w.connect, "connect", "", "")
	flag.StringVar(&w.channels, "channels", "", "")
	flag.StringVar(&w.queues, "queues", "", "")
	flag.Parse()
	w.pace = time.Duration(*pace) * time.Microsecond
	w.random = rand.New(rand.NewSource(*seed))
	what, after, _ := strings.Cut(*wrong, ":")
	w.mistake.what = what
	w.mistake.after, _ = strconv.Atoi(after)
	var err error
	if w.journal, err = openJournal(*journal); err == nil {
		w.content, err = os.ReadFile(*table)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker in Go:", err)
		os.Exit(1)
	}
	if err = w.run(*device, *connections); err != nil {
		fmt.Fprintln(os.Stderr, "worker in Go:", err)
		os.Exit(notStarted)
	}
}
