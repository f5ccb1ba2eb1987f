// options_channel.go: the options of rails and channels. WithConnectTimeout, WithKeepalive, WithRetry and WithToken are for both
// endpoints and channels.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import "time"

// WithRails opens the rails, which are the ports that channels stripe over: "name" or "name:port"
// for each. Without names, rail 0 is the context's own port, and rail 1 is an active port of
// another card with the same link layer, if there is one. One name names rail 0, and rail 1 is then
// found likewise; with NoRail as the second there is no rail 1. For Open and OpenRaw, and for
// DialChannel and ListenChannels, which always open rails.
func WithRails(names ...string) Option {
	return func(s *settings) {
		s.device.flags |= C.CRPC_CONTEXT_RAILS
		if len(names) > len(s.device.rails) {
			s.problem = errorf("", ErrInvalid, "%d rails; there may be %d", len(names), len(s.device.rails))
			return
		}
		for i, name := range names {
			if name == "" || !putText(s.device.rails[i][:], name) {
				s.problem = errorf("", ErrInvalid, "%q is no name of a rail; one is a device, or device:port", name)
			}
		}
	}
}

// WithRailReceiveDepth sets how many receive WQEs all channels share on each rail; 8192 by default.
// Channels may take two thirds of them; each channel takes 2 * slots + 10.
func WithRailReceiveDepth(count int) Option {
	return func(s *settings) { s.device.rail_receive_depth = s.number("rail_receive_depth", count) }
}

// WithRailQueuePairsMax sets how many queue pairs of each rail a channel of the context may have; 8 by
// default. With fewer, the context takes less memory for completions.
func WithRailQueuePairsMax(count int) Option {
	return func(s *settings) { s.device.rail_queue_pairs_max = s.number("rail_queue_pairs_max", count) }
}

// WithChannelsMax sets how many channels the context may have; 64 by default. For Open and OpenRaw.
func WithChannelsMax(count int) Option {
	return func(s *settings) { s.device.channels_max = s.number("channels_max", count) }
}

// WithSlots sets how many messages to be received may be open, 1 to 256; 64 by default. The channel
// uses the smaller number of both sides. More receives wait here until others end.
func WithSlots(count int) Option {
	return func(s *settings) { s.channel.slots = s.number("the slots", count) }
}

// WithSendsMax sets how many sends of a channel may be open, 8 to 65536; 256 by default. More sends
// wait here until others end.
func WithSendsMax(count int) Option {
	return func(s *settings) { s.channel.sends_max = s.number("sends_max", count) }
}

// WithQueuePairs sets how many queue pairs a channel has on each rail, 1 to 8; 1 by default. The
// channel uses the smaller number of both sides.
func WithQueuePairs(count int) Option {
	return func(s *settings) { s.channel.queue_pairs = s.number("the queue pairs", count) }
}

// WithShare makes rail 0 carry rail0 / 1024 of each large buffer, until SetShare changes it.
// Without it, and without WithShareHint, the measured speed of the rails decides.
func WithShare(rail0 int) Option {
	return func(s *settings) {
		s.channel.split = C.CRPC_SPLIT_FIXED
		s.channel.rail0_share = s.number("the share of rail 0", rail0)
	}
}

// WithShareHint lets another program decide what each rail carries: one that has the hint of this name ("/name") open, as by
// [OpenShareHint]; docs/wire.md has the format. While it says nothing, the measured speed of the rails decides.
func WithShareHint(name string) Option {
	return func(s *settings) {
		s.channel.split = C.CRPC_SPLIT_HINT
		if !putText(s.channel.hint[:], name) {
			s.problem = errorf("", ErrInvalid, "%q is no name of shared memory", name)
		}
	}
}

// WithStripeBytesMin sets the length below which a buffer uses only one rail; 65536 by default.
func WithStripeBytesMin(bytes int) Option {
	return func(s *settings) { s.channel.stripe_bytes_min = s.number("stripe_bytes_min", bytes) }
}

// WithRailsUsed makes a channel that only uses these rails of its context, by index. They must
// include rail 0, over which the peers connect.
func WithRailsUsed(rails ...int) Option {
	return func(s *settings) {
		s.channel.rails = 0
		for _, rail := range rails {
			if rail < 0 || rail >= RailsMax {
				s.problem = errorf("", ErrInvalid, "there is no rail %d; they count from 0 to %d", rail, RailsMax-1)
				return
			}
			s.channel.rails |= 1 << rail
		}
	}
}

// WithRailRetry sets the pause before the first attempt to use a lost rail again; 200 ms by
// default. With Forever, the rail stays lost.
func WithRailRetry(pause time.Duration) Option {
	return func(s *settings) { s.channel.rail_retry_ns = s.time("the pause before a rail is tried again", pause) }
}
