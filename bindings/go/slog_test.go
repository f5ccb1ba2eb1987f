package copyrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// keeper is a handler that keeps its records. `during` is called in each Handle, before that.
type keeper struct {
	level   slog.LevelVar
	during  func(slog.Record)
	mutex   sync.Mutex
	records []slog.Record
	came    chan slog.Record
}

func newKeeper(level slog.Level, during func(slog.Record)) *keeper {
	k := &keeper{during: during, came: make(chan slog.Record, 4096)}
	k.level.Set(level)
	return k
}

func (k *keeper) Enabled(_ context.Context, level slog.Level) bool { return level >= k.level.Level() }
func (k *keeper) WithAttrs([]slog.Attr) slog.Handler               { panic("none are given") }
func (k *keeper) WithGroup(string) slog.Handler                    { panic("none is given") }

func (k *keeper) Handle(_ context.Context, record slog.Record) error {
	if k.during != nil {
		k.during(record)
	}
	k.mutex.Lock()
	k.records = append(k.records, record)
	k.mutex.Unlock()
	k.came <- record
	return nil
}

func (k *keeper) kept() []slog.Record {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return slices.Clone(k.records)
}

func (k *keeper) next(t *testing.T) slog.Record {
	t.Helper()
	select {
	case record := <-k.came:
		return record
	case <-limited(t).Done():
		t.Fatal("no record comes")
		return slog.Record{}
	}
}

// failToDial has a context log one entry of level info for each.
func failToDial(t *testing.T, c *copyrpc.Context, address string, count int) {
	t.Helper()
	for i := 0; i < count; i++ {
		_, err := c.Dial(limited(t), address)
		is(t, err, copyrpc.ErrRefused)
	}
}

const neverEnabled = slog.LevelError + 1

func TestSlog(t *testing.T) {
	address := nobodyListens(t)
	var written bytes.Buffer
	handler := slog.NewJSONHandler(&written, &slog.HandlerOptions{Level: slog.LevelDebug})
	begun := time.Now()
	c := openContext(t, copyrpc.WithSlog(slog.New(handler).With("service", "kv")))
	info, err := c.Info()
	check(t, err)
	failToDial(t, c, address, 1)
	check(t, c.Close()) // which waits until all is written
	var record struct {
		Time                        time.Time
		Level, Msg, Device, Service string
	}
	check(t, json.Unmarshal(written.Bytes(), &record))
	if record.Level != "INFO" || !strings.Contains(record.Msg, "not connected") || record.Device != info.Device || record.Service != "kv" ||
		record.Time.Before(begun.Add(-time.Second)) || record.Time.After(time.Now().Add(time.Second)) {
		t.Fatalf("%s", written.Bytes())
	}
}

func TestSlogIsInOrderAndWhole(t *testing.T) {
	address := nobodyListens(t)
	kept := newKeeper(slog.LevelDebug, nil)
	c := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	const failures = 600 // more than C keeps
	failToDial(t, c, address, failures)
	check(t, c.Close())
	records := kept.kept()
	if len(records) != failures {
		t.Fatalf("%d records of %d", len(records), failures)
	}
	if !slices.IsSortedFunc(records, func(a, b slog.Record) int { return a.Time.Compare(b.Time) }) {
		t.Fatal("not oldest first")
	}
}

// What a listener refuses is no completion of anybody's: it is told before the poller sleeps.
func TestSlogOfWhatNobodyElseIsTold(t *testing.T) {
	kept := newKeeper(slog.LevelWarn, nil)
	server := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	listener, err := server.Listen(host() + ":0")
	check(t, err)
	defer listener.Close()
	if _, err = copyrpc.DialChannel(limited(t), listener.Address()); err == nil {
		t.Fatal("a channel to a listener of endpoints")
	}
	if record := kept.next(t); record.Level != slog.LevelWarn || !strings.Contains(record.Message, "refused a connection") {
		t.Fatalf("%+v", record)
	}
}

func TestSlogTakesNothingForAHandlerThatWantsNothing(t *testing.T) {
	address := nobodyListens(t)
	kept := newKeeper(neverEnabled, nil)
	c := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	failToDial(t, c, address, 3)
	if entries, err := c.Log(); err != nil || len(entries) != 3 {
		t.Fatalf("%+v, %v", entries, err)
	}
	failToDial(t, c, address, 2)
	kept.level.Set(slog.LevelInfo)
	failToDial(t, c, address, 1)
	for i := 0; i < 3; i++ {
		if record := kept.next(t); record.Level != slog.LevelInfo {
			t.Fatalf("%+v", record)
		}
	}
	kept.level.Set(slog.LevelWarn)
	failToDial(t, c, address, 1)
	check(t, c.Close())
	if records := kept.kept(); len(records) != 3 {
		t.Fatalf("%+v", records)
	}
}

func TestSlogTellsAtCloseWhatIsLeft(t *testing.T) {
	address := nobodyListens(t)
	kept := newKeeper(neverEnabled, nil)
	c := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	failToDial(t, c, address, 300)
	kept.level.Set(slog.LevelDebug)
	check(t, c.Close())
	records := kept.kept()
	if len(records) != 257 || records[0].Level != slog.LevelWarn || records[0].Message != "44 log entries were lost: there were more than the handler took" {
		t.Fatalf("%d, first %+v", len(records), records[0])
	}
}

func TestSlowSlogHandlerHoldsUpNobody(t *testing.T) {
	address := nobodyListens(t)
	in, out := make(chan struct{}, 2000), make(chan struct{})
	kept := newKeeper(slog.LevelDebug, func(slog.Record) { in <- struct{}{}; <-out })
	p := newPair(t)
	c := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	p.clientContext = c
	endpoint, server := p.connect(t, limited(t))
	(&pair{server: server}).serve(t, echo)
	failToDial(t, c, address, 1)
	<-in // it is in the handler, and stays there
	const failures = 1024 + 200
	for i := 0; i < failures/2; i++ {
		failToDial(t, c, address, 2)
		_, err := endpoint.Call(limited(t), []byte("meanwhile"))
		check(t, err)
	}
	check(t, endpoint.Close()) // from now on, nothing wakes the poller
	close(out)
	for i := 0; i < failures+1; i++ { // what was too much for the queue waited in C
		if record := kept.next(t); record.Level != slog.LevelInfo {
			t.Fatalf("%+v", record)
		}
	}
}

func TestCloseDoesNotWaitForeverForASlogHandler(t *testing.T) {
	address := nobodyListens(t)
	in, out := make(chan struct{}), make(chan struct{})
	kept := newKeeper(slog.LevelDebug, func(slog.Record) { in <- struct{}{}; <-out })
	c := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	failToDial(t, c, address, 1)
	<-in
	begun := time.Now()
	check(t, c.Close())
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Fatalf("it waited for %v", took)
	}
	close(out)
	kept.next(t)
}

func TestSlogHandlerMayUseTheContext(t *testing.T) {
	address := nobodyListens(t)
	var c *copyrpc.Context
	answers := make(chan error, 3)
	var first atomic.Bool
	kept := newKeeper(slog.LevelDebug, func(slog.Record) {
		if first.CompareAndSwap(false, true) {
			_, err := c.Dial(context.Background(), address) // of which there is a record, too
			answers <- err
			_, err = c.Stats()
			answers <- err
			answers <- c.Close()
		}
	})
	c = openContext(t, copyrpc.WithSlog(slog.New(kept)))
	failToDial(t, c, address, 1)
	is(t, <-answers, copyrpc.ErrRefused)
	check(t, <-answers)
	check(t, <-answers)
	kept.next(t)
	kept.next(t)
}

func TestSlogHandlerThatFails(t *testing.T) {
	address := nobodyListens(t)
	fail := map[int]func(){0: func() { panic("of the handler's own") }, 1: runtime.Goexit}
	count := 0
	kept := newKeeper(slog.LevelDebug, func(slog.Record) {
		count++
		if how := fail[count-1]; how != nil {
			how()
		}
	})
	collected.take()
	c := openContext(t, copyrpc.WithSlog(slog.New(kept)))
	failToDial(t, c, address, 3)
	kept.next(t)
	check(t, c.Close())
	if count != 3 || len(kept.kept()) != 1 {
		t.Fatalf("%d, of which %d", count, len(kept.kept()))
	}
	if texts := collected.take(); !slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(text, "WithSlog panicked: of the handler's own")
	}) {
		t.Fatalf("%q", texts)
	}
}

// panicking is a handler that can do nothing at all.
type panicking struct{ *keeper }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("of Enabled") }

func TestSlogHandlerThatCannotEvenSayWhatItTakes(t *testing.T) {
	collected.take()
	c := openContext(t, copyrpc.WithSlog(slog.New(panicking{newKeeper(slog.LevelDebug, nil)})))
	failToDial(t, c, nobodyListens(t), 1)
	check(t, c.Close())
	if texts := collected.take(); !slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(text, "WithSlog panicked: of Enabled")
	}) {
		t.Fatalf("%q", texts)
	}
}

func TestContextsWithTwoLoggers(t *testing.T) {
	address := nobodyListens(t)
	one, other := newKeeper(slog.LevelDebug, nil), newKeeper(slog.LevelDebug, nil)
	first, second := openContext(t, copyrpc.WithSlog(slog.New(one))), openContext(t, copyrpc.WithSlog(slog.New(other)))
	failToDial(t, first, address, 1)
	failToDial(t, second, address, 2)
	check(t, first.Close())
	check(t, second.Close())
	if len(one.kept()) != 1 || len(other.kept()) != 2 {
		t.Fatal(one.kept(), other.kept())
	}
}

func TestSharedContextsWithTwoLoggers(t *testing.T) {
	address := nobodyListens(t)
	one, other := newKeeper(slog.LevelDebug, nil), newKeeper(slog.LevelDebug, nil)
	loggers := []copyrpc.Option{copyrpc.WithSlog(slog.New(one)), copyrpc.WithSlog(slog.New(other))}
	for _, option := range loggers { // both contexts stay open, by their listeners
		listener, err := copyrpc.Listen(host()+":0", option)
		check(t, err)
		defer listener.Close()
	}
	_, err := copyrpc.Dial(limited(t), address, loggers[1])
	is(t, err, copyrpc.ErrRefused)
	other.next(t)
	if len(one.kept()) != 0 {
		t.Fatal(one.kept())
	}
}

// The last user of a shared context waits for the handler, which dials, too.
func TestSlogHandlerOfASharedContextMayDial(t *testing.T) {
	address := nobodyListens(t)
	var first atomic.Bool
	inner := make(chan error, 1)
	kept := newKeeper(slog.LevelDebug, func(slog.Record) {
		if first.CompareAndSwap(false, true) {
			_, err := copyrpc.Dial(context.Background(), address)
			inner <- err
		}
	})
	_, err := copyrpc.Dial(limited(t), address, copyrpc.WithSlog(slog.New(kept)))
	is(t, err, copyrpc.ErrRefused)
	select {
	case err = <-inner:
		is(t, err, copyrpc.ErrRefused)
	default:
		t.Fatal("the handler was held up until the context was closed without it")
	}
}

func TestSlogRefusesWhatItCannotDo(t *testing.T) {
	_, err := copyrpc.Open(copyrpc.WithSlog(nil))
	is(t, err, copyrpc.ErrInvalid)
	_, err = copyrpc.OpenRaw(copyrpc.RawSizes{}, copyrpc.WithSlog(slog.Default()))
	is(t, err, copyrpc.ErrInvalid)
	if !strings.Contains(err.Error(), "RawContext.Log") {
		t.Fatal(err)
	}
}
