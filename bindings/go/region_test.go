package copyrpc_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// isMapped tells whether a mapping of this process has the address in it.
func isMapped(t *testing.T, address uint64) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	check(t, err)
	for _, line := range strings.Split(string(maps), "\n") {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n == 2 && from <= address && address < to {
			return true
		}
	}
	return false
}

func TestRegion(t *testing.T) {
	c := openContext(t)
	const bytes = 3*4096 + 5
	access := copyrpc.LocalWrite | copyrpc.RemoteRead | copyrpc.RemoteWrite
	region, err := c.NewRegion(bytes, access)
	check(t, err)
	memory := region.Bytes()
	if len(memory) != bytes || memory[0] != 0 || memory[bytes-1] != 0 {
		t.Fatalf("%d bytes, not all zero", len(memory))
	}
	memory[0], memory[bytes-1] = 1, 2
	info, err := region.Info()
	check(t, err)
	if info.Bytes != bytes || info.Access != access || info.Address != uint64(uintptr(unsafe.Pointer(&memory[0]))) || info.LocalKey == 0 ||
		info.RemoteKey == 0 || !isMapped(t, info.Address) {
		t.Fatalf("%+v", info)
	}
	check(t, region.Close())
	check(t, region.Close())
	if region.Bytes() != nil || isMapped(t, info.Address) {
		t.Fatal("the memory is still there")
	}
	_, err = region.Info()
	is(t, err, copyrpc.ErrClosed)
}

func TestRegionOfOwnMemory(t *testing.T) {
	memory, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	check(t, err)
	defer syscall.Munmap(memory)
	c := openContext(t)
	region, err := c.Register(unsafe.Pointer(&memory[100]), 1000, copyrpc.LocalWrite)
	check(t, err)
	if own := region.Bytes(); len(own) != 1000 || &own[0] != &memory[100] {
		t.Fatalf("%d bytes", len(own))
	}
	info, err := region.Info()
	check(t, err)
	check(t, region.Close())
	if !isMapped(t, info.Address) {
		t.Fatal("it was the caller's")
	}
	memory[100] = 1
}

// While the context waits for something else, registering has already found the pages.
func TestRegisteringFindsItsPagesBesideTheOthers(t *testing.T) {
	const pages = 64
	size := pages * os.Getpagesize()
	c := openContext(t)
	for _, access := range []copyrpc.Access{0, copyrpc.LocalWrite} {
		memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		check(t, err)
		defer syscall.Munmap(memory)
		registered := make(chan error, 1)
		letGo := c.Hold()
		go func() {
			region, err := c.Register(unsafe.Pointer(&memory[0]), size, access)
			if err == nil {
				err = region.Close()
			}
			registered <- err
		}()
		there := 0
		for end := time.Now().Add(10 * time.Second); there < pages && time.Now().Before(end); time.Sleep(time.Millisecond) {
			there = residentPages(t, memory)
		}
		letGo()
		check(t, <-registered)
		if there < pages {
			t.Fatalf("%d of %d pages are there", there, pages)
		}
	}
}

// residentPages counts the pages of the mapping that the system has found: as /proc/self/pagemap has it, bit 63 of each page's word.
func residentPages(t *testing.T, memory []byte) int {
	t.Helper()
	file, err := os.Open("/proc/self/pagemap")
	check(t, err)
	defer file.Close()
	page := os.Getpagesize()
	words := make([]byte, 8*(len(memory)/page))
	_, err = file.ReadAt(words, int64(uintptr(unsafe.Pointer(&memory[0]))/uintptr(page)*8))
	check(t, err)
	there := 0
	for i := 7; i < len(words); i += 8 {
		there += int(words[i] >> 7)
	}
	return there
}

// The context's Close ends its regions, and they need no Close of their own.
func TestRegionsEndWithTheirContext(t *testing.T) {
	witness := newPair(t)
	lose := func() {
		c := openContext(t)
		region, err := c.NewRegion(4097, 0)
		check(t, err)
		info, err := region.Info()
		check(t, err)
		check(t, c.Close())
		if region.Bytes() != nil || isMapped(t, info.Address) {
			t.Fatal("the memory is still there")
		}
		_, err = region.Info()
		is(t, err, copyrpc.ErrClosed)
		check(t, region.Close())
		_, err = c.NewRegion(4096, 0)
		is(t, err, copyrpc.ErrClosed)
		_, server := witness.connectUnclosed(t)
		t.Cleanup(func() { server.Close() })
	}
	lose()
	if texts := lostWarnings(1, "4097 bytes", "dial "+witness.listener.Address()); len(texts) != 1 || !strings.Contains(texts[0], "an Endpoint") {
		t.Fatalf("%q: only the witness' endpoint is lost", texts)
	}
}

func TestLostRegionsAreWarnedOf(t *testing.T) {
	c := openContext(t)
	lose := func() {
		region, err := c.NewRegion(4098, 0)
		check(t, err)
		runtime.KeepAlive(region)
	}
	lose()
	if texts := lostWarnings(1, "4098 bytes"); len(texts) != 1 || !strings.Contains(texts[0], "a Region (") {
		t.Fatalf("%q", texts)
	}
}

func TestRegionsThatCannotBe(t *testing.T) {
	c := openContext(t)
	for _, wrong := range []struct {
		bytes  int
		access copyrpc.Access
		status copyrpc.Status
	}{
		{0, 0, copyrpc.ErrInvalid},
		{-1, 0, copyrpc.ErrInvalid},
		{4096, copyrpc.RemoteWrite, copyrpc.ErrInvalid}, // without LocalWrite
		{4096, 1 << 20, copyrpc.ErrInvalid},
		{1 << 60, 0, copyrpc.ErrNoMemory},
	} {
		_, err := c.NewRegion(wrong.bytes, wrong.access)
		is(t, err, wrong.status)
	}
	_, err := c.Register(nil, 4096, 0)
	is(t, err, copyrpc.ErrInvalid)
	_, err = (&copyrpc.Context{}).NewRegion(4096, 0)
	is(t, err, copyrpc.ErrClosed)
	for _, region := range []*copyrpc.Region{nil, {}} {
		_, err = region.Info()
		is(t, err, copyrpc.ErrClosed)
		check(t, region.Close())
		if region.Bytes() != nil {
			t.Fatal("bytes of nothing")
		}
	}
}

func TestRawRegions(t *testing.T) {
	raw, err := copyrpc.OpenRaw(copyrpc.RawSizes{})
	check(t, err)
	defer raw.Close()
	region, err := raw.Register(unsafe.Pointer(&raw.Payload[0]), len(raw.Payload), copyrpc.RemoteRead)
	check(t, err)
	info, err := raw.RegionInfo(region)
	check(t, err)
	if info.Bytes != len(raw.Payload) || info.Access != copyrpc.RemoteRead {
		t.Fatalf("%+v", info)
	}
	check(t, raw.Deregister(region))
	is(t, raw.Deregister(region), copyrpc.ErrStale)
	_, err = raw.RegionInfo(region)
	is(t, err, copyrpc.ErrStale)
	_, err = raw.Register(nil, 1, 0)
	is(t, err, copyrpc.ErrInvalid)
	_, err = raw.Register(unsafe.Pointer(&raw.Payload[0]), -1, 0)
	is(t, err, copyrpc.ErrInvalid)
	check(t, raw.Close())
	_, err = raw.Register(nil, 1, 0)
	is(t, err, copyrpc.ErrClosed)
	_, err = raw.RegionInfo(region)
	is(t, err, copyrpc.ErrClosed)
	is(t, raw.Deregister(region), copyrpc.ErrClosed)
}

// What is registered and closed again leaves nothing behind.
func TestRegionsLeakNothing(t *testing.T) {
	c := openContext(t)
	cycles := func(count int) {
		for i := 0; i < count; i++ {
			region, err := c.NewRegion(1<<16, copyrpc.LocalWrite)
			check(t, err)
			for memory := region.Bytes(); len(memory) > 0; memory = memory[4096:] {
				memory[0] = 1
			}
			check(t, region.Close())
		}
	}
	cycles(10)
	before := settled(t)
	cycles(100) // of 64 KiB: more than the limit, if they stayed
	compare(t, before)
}

// On simnic, shared memory that this process has no right to stands for a GPU's: who touches it crashes.
func TestRegisterDeviceMemory(t *testing.T) {
	c := openContext(t)
	file, err := os.CreateTemp(t.TempDir(), "device")
	check(t, err)
	defer file.Close()
	check(t, file.Truncate(8192))
	memory, err := syscall.Mmap(int(file.Fd()), 0, 8192, syscall.PROT_NONE, syscall.MAP_SHARED)
	check(t, err)
	defer syscall.Munmap(memory)
	address := unsafe.Pointer(unsafe.SliceData(memory))
	access := copyrpc.LocalWrite | copyrpc.DeviceMemory
	region, err := c.Register(address, len(memory), access)
	check(t, err)
	info, err := region.Info()
	check(t, err)
	if info.Address != uint64(uintptr(address)) || info.Bytes != 8192 || info.Access != access {
		t.Fatalf("%+v", info)
	}
	if region.Bytes() != nil {
		t.Fatal("the processor can read it")
	}
	check(t, region.Close())
	if _, err = c.Register(address, len(memory), access|copyrpc.HostMemory); !errors.Is(err, copyrpc.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err = c.NewRegion(4096, access); !errors.Is(err, copyrpc.ErrInvalid) {
		t.Fatal(err)
	}
}

// On simnic, any file that can be mapped is a dma-buf.
func TestRegisterDmabuf(t *testing.T) {
	c := openContext(t)
	file, err := os.CreateTemp(t.TempDir(), "dmabuf")
	check(t, err)
	check(t, file.Truncate(8192))
	access := copyrpc.LocalWrite | copyrpc.RemoteRead | copyrpc.RemoteWrite
	region, err := c.RegisterDmabuf(int(file.Fd()), 4096, 4096, 1<<40, access)
	file.Close()
	if errors.Is(err, copyrpc.ErrUnsupported) {
		t.Skip("no dma-bufs here")
	}
	check(t, err)
	info, err := region.Info()
	check(t, err)
	if info.Address != 1<<40 || info.Bytes != 4096 || info.Access != access || info.RemoteKey == 0 {
		t.Fatalf("%+v", info)
	}
	if region.Bytes() != nil || region.Slice(0, 10).Bytes() != nil {
		t.Fatal("it has memory of this process")
	}
	check(t, region.Close())
	if _, err = region.Info(); !errors.Is(err, copyrpc.ErrClosed) {
		t.Fatal(err)
	}
	for _, wrong := range []int{-1, 1 << 40, 1 << 20} { // the last is not open
		if _, err = c.RegisterDmabuf(wrong, 0, 4096, 0, access); err == nil {
			t.Fatalf("%d was registered", wrong)
		}
	}
	if _, err = c.RegisterDmabuf(0, 0, 4096, 0, copyrpc.RemoteWrite); !errors.Is(err, copyrpc.ErrInvalid) {
		t.Fatal(err)
	}
}
