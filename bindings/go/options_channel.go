// options_channel.go: the options of rails and channels. WithConnectTimeout, WithKeepalive, WithRetry and WithToken are for both
// endpoints and channels.

package copyrpc

/*
#include <copyrpc.h>
*/
import "C"

import "time"

// WithRails opens the rails, the ports that channels stripe over: "name" or "name:port" of each. Without a name, rail 0 is the
// context's own port, and rail 1 an active one of another card with the same link, if there is one. Of Open and OpenRaw, and of
// DialChannel and ListenChannels, which open them in any case.
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

// WithRailReceiveDepth says how many receive WQEs all channels share on each rail; 8192 by default. A channel takes twice its slots,
// and 10, of two thirds of them.
func WithRailReceiveDepth(count int) Option {
	return func(s *settings) { s.device.rail_receive_depth = s.number("rail_receive_depth", count) }
}

// WithChannelsMax says how many channels the context may have; 64 by default. Of Open and OpenRaw.
func WithChannelsMax(count int) Option {
	return func(s *settings) { s.device.channels_max = s.number("channels_max", count) }
}

// WithSlots says how many messages may be open to be received at once, 1 to 256; 64 by default, and the lesser of both sides
// counts. More than that wait their turn here.
func WithSlots(count int) Option {
	return func(s *settings) { s.channel.slots = s.number("the slots", count) }
}

// WithSendsMax says how many sends of a channel may be open at once, 8 to 65536; 256 by default. More than that wait their turn here.
func WithSendsMax(count int) Option {
	return func(s *settings) { s.channel.sends_max = s.number("sends_max", count) }
}

// WithQueuePairs says how many queue pairs a channel has on each rail, 1 to 8; 1 by default, and the lesser of both sides counts.
func WithQueuePairs(count int) Option {
	return func(s *settings) { s.channel.queue_pairs = s.number("the queue pairs", count) }
}

// WithShare has rail 0 carry so many parts of 1024 of each large buffer, until SetShare says otherwise. Without it, and without
// WithShareHint, the speed that the rails show decides.
func WithShare(rail0 int) Option {
	return func(s *settings) {
		s.channel.split = C.CRPC_SPLIT_FIXED
		s.channel.rail0_share = s.number("the share of rail 0", rail0)
	}
}

// WithShareHint has a program outside decide what each rail carries: it writes to the POSIX shared memory of this name ("/name")
// what docs/wire.md says. As long as nothing is there, the speed of the rails decides.
func WithShareHint(name string) Option {
	return func(s *settings) {
		s.channel.split = C.CRPC_SPLIT_HINT
		if !putText(s.channel.hint[:], name) {
			s.problem = errorf("", ErrInvalid, "%q is no name of shared memory", name)
		}
	}
}

// WithStripeBytesMin has buffers that are shorter travel on one rail; 65536 by default.
func WithStripeBytesMin(bytes int) Option {
	return func(s *settings) { s.channel.stripe_bytes_min = s.number("stripe_bytes_min", bytes) }
}

// WithRailsUsed makes a channel that uses these rails of its context only, by their index; 0, over which the peers meet, is one of them.
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

// WithRailRetry says how long to wait between attempts to use a lost rail again; 200 ms by default. Forever: it stays lost.
func WithRailRetry(pause time.Duration) Option {
	return func(s *settings) { s.channel.rail_retry_ns = s.time("the pause before a rail is tried again", pause) }
}
