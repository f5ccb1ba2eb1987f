// region.go: memory that is registered with the device. None of it is Go's: the garbage collector does not know what a NIC reads
// and writes, may give such memory to something else, and goroutines' stacks move.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Access tells how a region may be accessed.
type Access uint32

const (
	LocalWrite   Access = C.CRPC_ACCESS_LOCAL_WRITE
	RemoteWrite  Access = C.CRPC_ACCESS_REMOTE_WRITE // needs LocalWrite
	RemoteRead   Access = C.CRPC_ACCESS_REMOTE_READ
	RemoteAtomic Access = C.CRPC_ACCESS_REMOTE_ATOMIC // needs LocalWrite

	// Whose memory a region is: at most one of these. Without either, that of Register is the host's, and a dma-buf is
	// another device's.
	DeviceMemory Access = C.CRPC_ACCESS_DEVICE // the processor never touches it: a GPU's, by nvidia-peermem
	HostMemory   Access = C.CRPC_ACCESS_HOST   // the processor can read it at its address, and write with LocalWrite
)

// RegionHandle names a region of a [RawContext]. Zero is no region.
type RegionHandle uint64

// RegionInfo describes registered memory. A peer needs Address and RemoteKey to access it.
type RegionInfo struct {
	Address   uint64
	Bytes     int
	Access    Access
	LocalKey  uint32
	RemoteKey uint32
}

// Region is registered memory of a [Context]. All methods may be called from any goroutine.
type Region struct {
	region *region
}

// region is what a Region is to the poller.
type region struct {
	poller  *poller
	handle  RegionHandle
	info    RegionInfo
	memory  []byte
	mapped  bool // by NewRegion: it is unmapped when it is closed
	closed  atomic.Bool
	users   atomic.Int32 // buffers of transfers, also of those that C does not know of yet
	release func()       // as of a link: of Channel.NewRegion
}

// NewRegion registers `bytes` of new memory, which is zero and outside of Go's heap. It maps the
// memory in whole pages; closing the region or the context unmaps it. It pins the memory, which
// takes long if there is much. The system finds its pages, which is most of that, while the context
// goes on; the context only waits while the device learns them.
func (c *Context) NewRegion(bytes int, access Access) (*Region, error) {
	p, err := c.valid(opRegister)
	if err != nil {
		return nil, err
	}
	return newRegion(p, bytes, access, nil)
}

const opRegister = "register"

func newRegion(p *poller, bytes int, access Access, release func()) (*Region, error) {
	var own *region
	err := error(nil)
	if access&DeviceMemory != 0 {
		err = errorf(opRegister, ErrInvalid, "new memory is the host's, and no other device's")
	} else {
		own, err = mapRegion(p, bytes, access)
	}
	if err != nil {
		letGo(release)
		return nil, err
	}
	own.release = release
	return own.shown(), nil
}

func mapRegion(p *poller, bytes int, access Access) (*region, error) {
	if bytes <= 0 {
		return nil, errorf(opRegister, ErrInvalid, "a region of %d bytes; it must have one at least", bytes)
	}
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		e := errorf(opRegister, ErrNoMemory, "%d bytes cannot be mapped: %v", bytes, err)
		e.Errno, _ = err.(syscall.Errno)
		return nil, e
	}
	own, problem := p.register(memory, access, true)
	if problem != nil {
		syscall.Munmap(memory)
		return nil, problem
	}
	return own, nil
}

// Register registers memory from C or mmap, e.g. shared memory or huge pages. The memory stays the
// caller's, and must stay mapped until the region or the context is closed. It must not be Go
// memory: neither a slice that Go made, nor a variable. With DeviceMemory, it is another device's at this address, such as
// a GPU's; then the region's Bytes are nil, as of RegisterDmabuf. The context waits as for NewRegion.
func (c *Context) Register(address unsafe.Pointer, bytes int, access Access) (*Region, error) {
	p, err := c.valid(opRegister)
	if err != nil {
		return nil, err
	}
	if address == nil || bytes <= 0 {
		return nil, errorf(opRegister, ErrInvalid, "a region needs an address and a length")
	}
	if access&DeviceMemory != 0 {
		own := &region{poller: p}
		if err = p.admit(own, func() (RegionHandle, error) { return p.raw.Register(address, bytes, access) }); err != nil {
			return nil, err
		}
		return own.shown(), nil
	}
	own, err := p.register(unsafe.Slice((*byte)(address), bytes), access, false)
	if err != nil {
		return nil, err
	}
	return own.shown(), nil
}

// RegisterDmabuf registers memory of another device, such as a GPU: `bytes` from `offset` of a dma-buf. Ops address it from
// `address` on: where it is mapped, or any number if it is not, which is equal to `offset` modulo the page size. The region's
// Bytes are nil: the processor may not be able to read this memory, unless `access` has HostMemory. So only what names addresses uses it: peers by [RegionInfo],
// and ops of the raw level. The caller may close the descriptor afterwards. The context waits as for NewRegion. ErrUnsupported
// means that the kernel or the device does not support dma-bufs.
func (c *Context) RegisterDmabuf(descriptor int, offset, bytes, address uint64, access Access) (*Region, error) {
	p, err := c.valid(opRegister)
	if err != nil {
		return nil, err
	}
	own := &region{poller: p}
	err = p.admit(own, func() (RegionHandle, error) { return p.raw.RegisterDmabuf(descriptor, offset, bytes, address, access) })
	if err != nil {
		return nil, err
	}
	return own.shown(), nil
}

// The advice of madvise that has the system find pages, as if they had been read or written. In Linux since 5.14.
const (
	madvPopulateRead  = 22
	madvPopulateWrite = 23
)

// populate has the system find the pages of memory that will be registered, which may take seconds: else registering does it, and
// the context would have to wait. Where the system cannot, registering still does.
func populate(memory []byte, access Access) {
	advice := uintptr(madvPopulateRead)
	if access&LocalWrite != 0 {
		advice = madvPopulateWrite
	}
	page := uintptr(syscall.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	inPage := start & (page - 1)
	bytes := (inPage + uintptr(len(memory)) + page - 1) &^ (page - 1)
	syscall.Syscall(syscall.SYS_MADVISE, start-inPage, bytes, advice)
}

func (p *poller) register(memory []byte, access Access, mapped bool) (*region, error) {
	populate(memory, access)
	own := &region{poller: p, memory: memory, mapped: mapped}
	err := p.admit(own, func() (RegionHandle, error) {
		return p.raw.Register(unsafe.Pointer(unsafe.SliceData(memory)), len(memory), access)
	})
	return own, err
}

// admit registers a region, and keeps it until it is closed.
func (p *poller) admit(own *region, register func() (RegionHandle, error)) error {
	return p.control(opRegister, func() error {
		var err error
		if own.handle, err = register(); err != nil {
			return err
		}
		if own.info, err = p.raw.RegionInfo(own.handle); err != nil {
			p.raw.Deregister(own.handle)
			return err
		}
		p.regions[own] = struct{}{}
		return nil
	})
}

func (own *region) shown() *Region {
	r := &Region{region: own}
	warnIfLost(r, func() bool { return !own.closed.Load() }, "a Region", fmt.Sprint(own.info.Bytes, " bytes"))
	return r
}

// end is what is to be done once the memory is deregistered. The poller's mutex is held.
func (own *region) end() {
	delete(own.poller.regions, own)
	own.closed.Store(true)
	if own.mapped {
		syscall.Munmap(own.memory)
	}
}

// Bytes returns the memory; nil of another device's, and after the region or its context was closed. The memory must not be
// used after that, because memory of NewRegion is unmapped then.
func (r *Region) Bytes() []byte {
	if r == nil || r.region == nil || r.region.closed.Load() {
		return nil
	}
	return r.region.memory
}

// Info returns the address and the keys of the region.
func (r *Region) Info() (RegionInfo, error) {
	const op = "region info"
	if r == nil || r.region == nil {
		return RegionInfo{}, errorf(op, ErrClosed, "this Region was never registered: make it with Context.NewRegion")
	}
	if r.region.closed.Load() {
		return RegionInfo{}, errorf(op, ErrClosed, "the Region was closed")
	}
	return r.region.info, nil
}

// Close deregisters the memory, and unmaps it if NewRegion mapped it. ErrBusy means that the device
// still uses it for a message of a channel, or for an op of a queue that is not of a [QueueBatch]; the
// region then stays open. Closing twice is allowed.
func (r *Region) Close() error {
	if r == nil || r.region == nil {
		return nil
	}
	if err := r.region.close(); err != nil {
		return err
	}
	letGo(r.region.release)
	return nil
}

func (own *region) close() error {
	p := own.poller
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if own.closed.Load() {
		return nil
	}
	if own.users.Load() > 0 {
		return newError("deregister", ErrBusy)
	}
	err := p.raw.Deregister(own.handle)
	if errors.Is(err, ErrBusy) {
		// What a channel's Close has ended counts as in use until the next poll.
		p.turn()
		p.kick() // that has disarmed it
		err = p.raw.Deregister(own.handle)
	}
	if err == nil {
		own.end()
	}
	return err
}

// ---- The raw level ------------------------------------------------------------------------------

// Register registers memory from C or mmap; see [Context.Register]. The memory must stay mapped
// until Deregister or Close.
func (r *RawContext) Register(address unsafe.Pointer, bytes int, access Access) (RegionHandle, error) {
	const op = "register"
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	if bytes < 0 {
		return 0, errorf(op, ErrInvalid, "a region of %d bytes; a number of bytes cannot be negative", bytes)
	}
	var region C.crpc_region
	theirs := newCError()
	status := C.crpc_region_register(r.handle, address, C.uint64_t(bytes), C.uint32_t(access), &region, &theirs)
	return RegionHandle(region.bits), asError(op, status, &theirs)
}

// RegisterDmabuf registers a dma-buf; see [Context.RegisterDmabuf].
func (r *RawContext) RegisterDmabuf(descriptor int, offset, bytes, address uint64, access Access) (RegionHandle, error) {
	const op = "register dma-buf"
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	if descriptor < 0 || descriptor > math.MaxInt32 {
		return 0, errorf(op, ErrInvalid, "%d is no file descriptor", descriptor)
	}
	var region C.crpc_region
	theirs := newCError()
	status := C.crpc_region_register_dmabuf(r.handle, C.int32_t(descriptor), C.uint64_t(offset), C.uint64_t(bytes), C.uint64_t(address),
		C.uint32_t(access), &region, &theirs)
	return RegionHandle(region.bits), asError(op, status, &theirs)
}

// RegionInfo describes a region.
func (r *RawContext) RegionInfo(region RegionHandle) (RegionInfo, error) {
	info := C.crpc_region_info{struct_size: C.sizeof_crpc_region_info}
	err := r.ask("region info", func() C.int32_t { return C.crpc_region_get_info(r.handle, region.c(), &info) })
	if err != nil {
		return RegionInfo{}, err
	}
	return RegionInfo{
		Address: uint64(info.address), Bytes: int(min(uint64(info.bytes), math.MaxInt)), Access: Access(info.access),
		LocalKey: uint32(info.local_key), RemoteKey: uint32(info.remote_key),
	}, nil
}

// PrepareRegion registers a region for payloads of an endpoint (OpRegion), so that the first op of them need not: a system call.
func (r *RawContext) PrepareRegion(region RegionHandle, endpoint EndpointHandle) error {
	const op = "prepare"
	if r == nil || r.handle == nil {
		return newError(op, ErrClosed)
	}
	theirs := newCError()
	return asError(op, C.crpc_region_prepare(r.handle, region.c(), endpoint.c(), &theirs), &theirs)
}

// Deregister ends a region. The memory stays the caller's. ErrBusy means that it is in use.
func (r *RawContext) Deregister(region RegionHandle) error {
	return r.ask("deregister", func() C.int32_t { return C.crpc_region_deregister(r.handle, region.c()) })
}

func (region RegionHandle) c() C.crpc_region { return C.crpc_region{bits: C.uint64_t(region)} }
