// rail.go: what channels, rails and registrations tell of themselves.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"unsafe"
)

// RailsMax is how many rails a context may have.
const RailsMax = C.CRPC_RAILS_MAX

// NoRail is what WithRails takes as the second name for one rail alone.
const NoRail = "none"

// RailState is the state of a channel's rail.
type RailState uint32

const (
	RailNone   RailState = C.CRPC_RAIL_NONE   // the context has none of this index, or it is not to be used
	RailLacked RailState = C.CRPC_RAIL_LACKED // this side has it, the peer has not
	RailDown   RailState = C.CRPC_RAIL_DOWN
	RailUp     RailState = C.CRPC_RAIL_UP
)

// String returns the name of the state, e.g. "up".
func (state RailState) String() string {
	names := [...]string{RailNone: "none", RailLacked: "lacked", RailDown: "down", RailUp: "up"}
	if int(state) >= len(names) {
		return fmt.Sprintf("RailState(%d)", uint32(state))
	}
	return names[state]
}

// Split is how a channel decides what each rail carries.
type Split uint32

const (
	SplitMeasured Split = C.CRPC_SPLIT_MEASURED // by the speed that each rail showed
	SplitFixed    Split = C.CRPC_SPLIT_FIXED    // as WithShare or SetShare said
	SplitHint     Split = C.CRPC_SPLIT_HINT     // as a program outside says: WithShareHint
)

// ChannelInfo describes a channel.
type ChannelInfo struct {
	State        EndpointState
	Slots        int // messages that may be open to be received; agreed on
	QueuePairs   int // of each rail; likewise
	Rails        [RailsMax]RailState
	Split        Split
	Share        int // of rail 0, of the next large message, in parts of 1024
	ReceivesOpen int
	SendsOpen    int
	Version      int    // of the wire protocol
	PeerAddress  string // "" if it was connected by a ChannelBlob
	LocalAddress string
	Token        []byte // the peer's, at the accepting side
}

// ChannelInfo describes a channel.
func (r *RawContext) ChannelInfo(channel ChannelHandle) (ChannelInfo, error) {
	info := C.crpc_channel_info{struct_size: C.sizeof_crpc_channel_info}
	err := r.ask("channel info", func() C.int32_t { return C.crpc_channel_get_info(r.handle, channel.c(), &info) })
	if err != nil {
		return ChannelInfo{}, err
	}
	return ChannelInfo{
		State: EndpointState(info.state), Slots: int(info.slots), QueuePairs: int(info.queue_pairs),
		Rails: [RailsMax]RailState{RailState(info.rail_state[0]), RailState(info.rail_state[1])},
		Split: Split(info.split), Share: int(info.rail0_share),
		ReceivesOpen: int(info.receives_open), SendsOpen: int(info.sends_open), Version: int(info.version),
		PeerAddress: text(info.peer_address[:]), LocalAddress: text(info.local_address[:]),
		Token: C.GoBytes(unsafe.Pointer(&info.token), C.int(info.token_bytes)),
	}, nil
}

// ChannelStats are counters since the channel was created. capi/copyrpc.h explains each.
type ChannelStats struct {
	MessagesSent, MessagesReceived, BytesSent, BytesReceived uint64
	SendsFailed, ReceivesFailed, Truncated                   uint64
	Rails                                                    [RailsMax]ChannelRailStats
	SharesRepeated, DataWQEs, ClearToSendWQEs, ControlWQEs   uint64
	Doorbells, ProtocolErrors                                uint64
}

// ChannelRailStats are the counters of one rail.
type ChannelRailStats struct {
	BytesSent, MessagesSent, BytesReceived, Failures, Recoveries uint64
}

// ChannelStats reads the counters of a channel.
func (r *RawContext) ChannelStats(channel ChannelHandle) (ChannelStats, error) {
	s := C.crpc_channel_stats{struct_size: C.sizeof_crpc_channel_stats}
	err := r.ask("channel stats", func() C.int32_t { return C.crpc_channel_get_stats(r.handle, channel.c(), &s) })
	if err != nil {
		return ChannelStats{}, err
	}
	stats := ChannelStats{
		MessagesSent: uint64(s.messages_sent), MessagesReceived: uint64(s.messages_received),
		BytesSent: uint64(s.bytes_sent), BytesReceived: uint64(s.bytes_received),
		SendsFailed: uint64(s.sends_failed), ReceivesFailed: uint64(s.receives_failed), Truncated: uint64(s.truncated),
		SharesRepeated: uint64(s.shares_repeated), DataWQEs: uint64(s.data_wqes),
		ClearToSendWQEs: uint64(s.clear_to_send_wqes), ControlWQEs: uint64(s.control_wqes),
		Doorbells: uint64(s.doorbells), ProtocolErrors: uint64(s.protocol_errors),
	}
	for i := range stats.Rails {
		stats.Rails[i] = ChannelRailStats{
			BytesSent: uint64(s.rail_bytes_sent[i]), MessagesSent: uint64(s.rail_messages_sent[i]),
			BytesReceived: uint64(s.rail_bytes_received[i]), Failures: uint64(s.rail_failures[i]),
			Recoveries: uint64(s.rail_recoveries[i]),
		}
	}
	return stats, nil
}

// RailInfo describes one rail of a context.
type RailInfo struct {
	Device            string // e.g. "mlx5_0"
	Port              int
	Driver            string // e.g. "verbs"
	InfiniBand        bool   // the link; else Ethernet
	LinkMbps          int    // 0 = not known
	MTUBytes          int
	GIDIndex          int
	GID               netip.Addr
	CardGUID          uint64 // rails of one card have the same
	ReceiveDepth      int
	ReceivesLeft      int // that new channels may still ask for
	ReceiveWQEs       uint64
	ReceivesCompleted uint64
	BufferBytesMax    int    // of one buffer that is sent, over any rails
	QueuePairsMax     int    // that all channels together can have
	LastWQEsMissed    uint64 // as in Stats, of queue pairs of channels
}

// RailInfo describes the rail with this index, from 0. It returns ErrNotFound if there is no such
// rail.
func (r *RawContext) RailInfo(index int) (RailInfo, error) {
	const op = "rail info"
	if r == nil || r.handle == nil {
		return RailInfo{}, newError(op, ErrClosed)
	}
	if index < 0 || index > math.MaxInt32 {
		return RailInfo{}, errorf(op, ErrNotFound, "there is no rail %d", index)
	}
	info := C.crpc_rail_info{struct_size: C.sizeof_crpc_rail_info}
	if status := C.crpc_rail_get_info(r.handle, C.uint32_t(index), &info); status < 0 {
		return RailInfo{}, newError(op, Status(status))
	}
	driver := "verbs"
	if info.driver == C.CRPC_DRIVER_MLX5 {
		driver = "mlx5"
	}
	return RailInfo{
		Device: text(info.device[:]), Port: int(info.port), Driver: driver, InfiniBand: info.link == C.CRPC_LINK_INFINIBAND,
		LinkMbps: int(info.link_mbps), MTUBytes: int(info.mtu_bytes), GIDIndex: int(info.gid_index),
		GID:      netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&info.gid))),
		CardGUID: uint64(info.system_image_guid), ReceiveDepth: int(info.receive_depth), ReceivesLeft: int(info.receives_left),
		ReceiveWQEs: uint64(info.receive_wqes), ReceivesCompleted: uint64(info.receives_completed),
		BufferBytesMax: int(min(uint64(info.message_bytes_max), math.MaxInt)), QueuePairsMax: int(info.queue_pairs_max),
		LastWQEsMissed: uint64(info.last_wqes_missed),
	}, nil
}

// Rails describes the rails that the context's channels stripe over. A context opened without
// WithRails has none.
func (c *Context) Rails() ([]RailInfo, error) { return asked(c, "rail info", (*RawContext).rails) }

func (r *RawContext) rails() ([]RailInfo, error) {
	var rails []RailInfo
	for {
		info, err := r.RailInfo(len(rails))
		if errors.Is(err, ErrNotFound) {
			return rails, nil
		}
		if err != nil {
			return nil, err
		}
		rails = append(rails, info)
	}
}

// CacheInfo describes the registrations that were made for ops without a region.
type CacheInfo struct {
	Registrations, RegistrationsMax int
	Bytes, BytesMax                 uint64
	Hits, Misses, Evictions         uint64
}

// CacheInfo describes the registrations that were made for ops without a region.
func (r *RawContext) CacheInfo() (CacheInfo, error) {
	info := C.crpc_cache_info{struct_size: C.sizeof_crpc_cache_info}
	if err := r.ask("cache info", func() C.int32_t { return C.crpc_cache_get_info(r.handle, &info) }); err != nil {
		return CacheInfo{}, err
	}
	return CacheInfo{
		Registrations: int(info.registrations), RegistrationsMax: int(info.registrations_max),
		Bytes: uint64(info.bytes), BytesMax: uint64(info.bytes_max),
		Hits: uint64(info.hits), Misses: uint64(info.misses), Evictions: uint64(info.evictions),
	}, nil
}

// ForgetMemory removes every registration that was made for ops without a region and overlaps these
// bytes; 0 bytes removes all. It returns how many. Call it before such memory is unmapped or freed.
// ErrBusy means that an op uses one of them, and none was removed.
func (r *RawContext) ForgetMemory(address unsafe.Pointer, bytes int) (int, error) {
	const op = "forget memory"
	if r == nil || r.handle == nil {
		return 0, newError(op, ErrClosed)
	}
	if bytes < 0 {
		return 0, errorf(op, ErrInvalid, "%d bytes; a number of bytes cannot be negative", bytes)
	}
	count := C.crpc_cache_forget(r.handle, address, C.uint64_t(bytes))
	if count < 0 {
		return 0, newError(op, Status(count))
	}
	return int(count), nil
}
