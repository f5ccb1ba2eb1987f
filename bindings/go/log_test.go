package copyrpc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// nobodyListens gives an address where a connection is refused.
func nobodyListens(t *testing.T) string {
	listener, err := openContext(t).Listen(host() + ":0")
	check(t, err)
	address := listener.Address()
	check(t, listener.Close())
	return address
}

func TestLog(t *testing.T) {
	address := nobodyListens(t)
	begun := time.Now()
	for _, level := range []copyrpc.LogLevel{copyrpc.LogOff, copyrpc.LogWarning, copyrpc.LogInfo} {
		c := openContext(t, copyrpc.WithLog(level))
		entries, err := c.Log()
		check(t, err)
		if len(entries) != 0 {
			t.Fatalf("%v: %+v", level, entries)
		}
		_, err = c.Dial(limited(t), address)
		is(t, err, copyrpc.ErrRefused)
		entries, err = c.Log()
		check(t, err)
		if level != copyrpc.LogInfo {
			if len(entries) != 0 {
				t.Fatalf("%v keeps %+v", level, entries)
			}
			continue
		}
		if len(entries) != 1 || entries[0].Level != copyrpc.LogInfo || entries[0].Level.String() != "info" || entries[0].Lost != 0 ||
			!strings.Contains(entries[0].Message, "not connected") {
			t.Fatalf("%+v", entries)
		}
		if at := entries[0].Time; at.Before(begun.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Fatalf("at %v, which is not now", at)
		}
		if entries, err = c.Log(); err != nil || len(entries) != 0 {
			t.Fatalf("%+v is given twice; %v", entries, err)
		}
		check(t, c.Close())
		if _, err = c.Log(); err == nil {
			t.Fatal("a log of a closed context")
		}
	}
}

// An entry has one time, whoever asks, and however long a thread is held up while it reads the clocks: so records are in order.
func TestTimeOfALogEntryIsTheSameWheneverAsked(t *testing.T) {
	const ns = 1_000_000_000
	first := copyrpc.TimeOfEntry(ns)
	for i := uint64(0); i < 1000; i++ {
		if again := copyrpc.TimeOfEntry(ns + i); again.Sub(first) != time.Duration(i) {
			t.Fatalf("%d ns later it is %v later", i, again.Sub(first))
		}
	}
}

// A log that nobody reads keeps the last 256 entries and tells how many it lost.
func TestLogThatNobodyReads(t *testing.T) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{}, copyrpc.WithLog(copyrpc.LogDebug))
	check(t, err)
	defer raw.Close()
	const failures = 300
	address := nobodyListens(t)
	for i := 0; i < failures; i++ {
		endpoint, err := raw.Connect(address, 0)
		check(t, err)
		for {
			count, _ := raw.Poll()
			if count == 1 {
				break
			}
			check(t, raw.Wait(limited(t)))
		}
		check(t, raw.CloseEndpoint(endpoint))
	}
	entries, err := raw.Log()
	check(t, err)
	if len(entries) != 256 || entries[0].Lost < failures-256 || entries[1].Lost != 0 {
		t.Fatalf("%d entries; before the first %d were lost", len(entries), entries[0].Lost)
	}
	if !slices.IsSortedFunc(entries, func(a, b copyrpc.LogEntry) int { return a.Time.Compare(b.Time) }) {
		t.Fatal("not oldest first")
	}
}

func TestOptionsOfContexts(t *testing.T) {
	for _, option := range []copyrpc.Option{copyrpc.WithLog(-1), copyrpc.WithLog(5), copyrpc.WithGIDIndex(-1), copyrpc.WithSignalInterval(-1),
		copyrpc.WithCompletionVector(-2)} {
		_, err := copyrpc.Open(option)
		is(t, err, copyrpc.ErrInvalid)
	}
	info, err := openContext(t, copyrpc.WithSignalInterval(16)).Info()
	check(t, err)
	if info.SignalInterval != 16 || info.SendDepth == 0 {
		t.Fatalf("%+v", info)
	}
	devices, err := copyrpc.Devices()
	check(t, err)
	for _, device := range devices {
		if !device.Active || device.InfiniBand != info.InfiniBand {
			continue
		}
		if !slices.Contains(device.Drivers, "verbs") || device.Ports < device.Port || device.ReceiveDepthMax == 0 {
			t.Fatalf("%+v", device)
		}
		c := openContext(t, copyrpc.WithDevice(device.Name), copyrpc.WithPort(device.Port), copyrpc.WithGIDIndex(device.GIDIndex),
			copyrpc.WithCompletionVector(device.CompletionVectors-1))
		if info, err = c.Info(); err != nil || info.GIDIndex != device.GIDIndex || info.GID != device.GID ||
			info.CompletionVector != device.CompletionVectors-1 {
			t.Fatalf("%+v on %+v; %v", info, device, err)
		}
		return
	}
	t.Fatalf("%+v: none is active", devices)
}
