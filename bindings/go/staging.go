// staging.go: messages of Go's own slices, copied through registered memory: Go's is never what a NIC sees.

package copyrpc

import (
	"context"
	"math/bits"
)

const (
	// StagingBytesMax is the longest message of SendBytes and ReceiveBytes.
	StagingBytesMax = 1 << 20

	stagingBytesMin = 1 << 12
	stagingKept     = 16 // regions that nobody uses, of a channel
)

// SendBytes sends a Go slice of at most StagingBytesMax bytes, through a registered copy. For
// longer or frequent messages, use a [Region].
func (ch *Channel) SendBytes(ctx context.Context, data []byte, tag uint32) error {
	c, err := ch.valid(opSend)
	if err != nil {
		return err
	}
	own, err := c.takeStaging(opSend, len(data))
	if err != nil {
		return err
	}
	defer c.putStaging(own)
	copy(own.memory, data)
	region := &Region{region: own}
	return ch.Send(ctx, region.Slice(0, len(data)).Tagged(tag))
}

// ReceiveBytes receives a message of at most bytesMax bytes, which is at most StagingBytesMax, and
// returns a copy. As with Receive, the receive cannot be canceled: if ctx is done first, the next
// message for it is dropped.
func (ch *Channel) ReceiveBytes(ctx context.Context, bytesMax int, tag uint32) ([]byte, error) {
	c, err := ch.valid(opReceive)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, contextError(opReceive, ctx)
	}
	own, err := c.takeStaging(opReceive, bytesMax)
	if err != nil {
		return nil, err
	}
	region := &Region{region: own}
	t, err := ch.PostReceive(region.Slice(0, bytesMax).Tagged(tag))
	if err != nil {
		c.putStaging(own)
		return nil, err
	}
	err = t.Wait(ctx)
	if c.leftTo(t, own) {
		return nil, err
	}
	defer c.putStaging(own)
	if err = t.result(); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, t.sizes[0]), own.memory[:t.sizes[0]]...), nil
}

// leftTo has a transfer that nobody waits for any more give its memory back when it is done; false if it is.
func (c *channel) leftTo(t *Transfer, own *region) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if t.over.Load() {
		return false
	}
	t.staging = own
	return true
}

// takeStaging gives registered memory of at least so many bytes.
func (c *channel) takeStaging(op string, bytes int) (*region, error) {
	if bytes < 0 {
		return nil, errorf(op, ErrInvalid, "%d bytes; a number of bytes cannot be negative", bytes)
	}
	if bytes > StagingBytesMax {
		return nil, errorf(op, ErrTooBig, "%d bytes; for more than %d use a Region", bytes, StagingBytesMax)
	}
	bytes = max(1<<bits.Len(uint(max(bytes, 1)-1)), stagingBytesMin)
	c.mutex.Lock()
	for i, own := range c.staging {
		if len(own.memory) == bytes {
			last := len(c.staging) - 1
			c.staging[i] = c.staging[last]
			c.staging = c.staging[:last]
			c.mutex.Unlock()
			return own, nil
		}
	}
	c.mutex.Unlock()
	return mapRegion(c.poller, bytes, LocalWrite|RemoteWrite)
}

func (c *channel) putStaging(own *region) {
	c.mutex.Lock()
	kept := c.keepStaging(own)
	c.mutex.Unlock()
	if !kept {
		own.close()
	}
}

// keepStaging keeps memory for the next; false if there is enough. The channel's mutex is held.
func (c *channel) keepStaging(own *region) bool {
	if c.over || len(c.staging) == stagingKept {
		return false
	}
	c.staging = append(c.staging, own)
	return true
}
