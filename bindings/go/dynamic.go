// dynamic.go: the two ends of the dynamically connected transport (DC): DCIs, which send to many, and DCTs, to which they send.

package copyrpc

import (
	"context"
	"errors"
)

// DCI is a queue that sends to many: each op goes to a [Destination] of its own, which is a DCT of any program. It is reliable,
// as a [Queue] is, and the device connects by itself. With QueueOptions.Streams, an op that fails ends its stream alone, until
// ResetStream; without, it ends the DCI. All methods may be called from any goroutine.
type DCI struct {
	queue Queue
}

// DCT is what DCIs send to, if they know its address and its access key. They write to, read and change the memory of regions
// that allow it, and their messages go to its SharedReceives. What fails does not end it. All methods may be called from any
// goroutine.
type DCT struct {
	queue Queue
}

// Destination is where an op of a [DCI] goes. Ops of one stream begin in the order in which they were posted; ops of one target
// should be of one stream.
type Destination struct {
	Target *Target
	Stream int // below QueueOptions.Streams; 0 if that is 0
}

// ---- Making -------------------------------------------------------------------------------------

// OpenDCI makes a DCI, which is usable at once. Of the options, it has those of sends, the retries, ReadsMax, Streams and
// StreamFailuresMax. ErrUnsupported: the device has no DC, as all but mlx5 devices; or not as many streams. The context must
// have queues: see [WithQueues].
func (c *Context) OpenDCI(options QueueOptions) (*DCI, error) {
	q, err := c.openLone("open DCI", options, initiator)
	if err != nil {
		return nil, err
	}
	return shown(&q.link, &DCI{queue: Queue{queue: q}}, "a DCI", nil)
}

// OpenDCT makes a DCT, which is usable at once. Of the options, it has Shared, which it needs, and AccessKey. ErrUnsupported: the
// device has no DC. The context must have queues: see [WithQueues].
func (c *Context) OpenDCT(options QueueOptions) (*DCT, error) {
	q, err := c.openLone("open DCT", options, dynamicTarget)
	if err != nil {
		return nil, err
	}
	return shown(&q.link, &DCT{queue: Queue{queue: q}}, "a DCT", nil)
}

// OpenTarget makes a target, for ops of this DCI and of all others of its context, of the address of a DCT of any program, and of
// its AccessKey. It may take as long as the network needs to find the way.
func (d *DCI) OpenTarget(address QueueAddress, options TargetOptions) (*Target, error) {
	const op = "open target"
	q, err := d.valid(op)
	if err != nil {
		return nil, err
	}
	options.ForDCI = true
	return q.newTarget(op, true, func(raw *RawContext) (TargetHandle, error) { return raw.OpenTarget(address, options) })
}

// ---- Ops ----------------------------------------------------------------------------------------

// to has an op name where it goes.
func (d *DCI) to(name string, op QueueOp, where Destination) (QueueOp, error) {
	q, err := d.valid(name)
	if err != nil {
		return op, err
	}
	if where.Stream < 0 || where.Stream > streamMax {
		return op, errorf(name, ErrInvalid, "stream %d; a DCI has at most %d", where.Stream, streamMax)
	}
	op.Stream = uint16(where.Stream)
	op.Target, err = where.Target.of(q, name, true)
	return op, err
}

func (d *DCI) do(ctx context.Context, name string, op QueueOp, buffer Buffer, where Destination) (Completion, error) {
	op, err := d.to(name, op, where)
	if err != nil {
		return Completion{}, err
	}
	return d.queue.do(ctx, name, op, buffer)
}

func (d *DCI) doBytes(ctx context.Context, name string, op QueueOp, data []byte, where Destination) error {
	op, err := d.to(name, op, where)
	if err != nil {
		return err
	}
	return d.queue.doBytes(ctx, name, op, data)
}

func remoteOp(opcode uint8, remote Remote) QueueOp {
	return QueueOp{Opcode: opcode, RemoteAddress: remote.Address, RemoteKey: remote.Key}
}

// Send sends a buffer as one message, which takes a receive of the DCT's, and waits until it is there. If ctx is done first, the op
// goes on, and its buffer stays in use, as with [Queue.Send], here and below.
func (d *DCI) Send(ctx context.Context, buffer Buffer, where Destination) error {
	_, err := d.do(ctx, opSend, QueueOp{Opcode: QueueSend}, buffer, where)
	return err
}

// SendImmediate does the same as Send, with a number that the receive there shows.
func (d *DCI) SendImmediate(ctx context.Context, buffer Buffer, immediate uint32, where Destination) error {
	_, err := d.do(ctx, opSend, QueueOp{Opcode: QueueSendImmediate, Immediate: immediate}, buffer, where)
	return err
}

// SendBytes sends a copy of a Go slice, of at most as many bytes as QueueOptions.InlineBytes says.
func (d *DCI) SendBytes(ctx context.Context, data []byte, where Destination) error {
	return d.doBytes(ctx, opSend, QueueOp{Opcode: QueueSend}, data, where)
}

// Write writes a buffer to memory there, and waits until it is there. Nobody is told.
func (d *DCI) Write(ctx context.Context, buffer Buffer, remote Remote, where Destination) error {
	_, err := d.do(ctx, "write", remoteOp(QueueWrite, remote), buffer, where)
	return err
}

// WriteBytes writes a copy of a Go slice to memory there. The rest is as with SendBytes.
func (d *DCI) WriteBytes(ctx context.Context, data []byte, remote Remote, where Destination) error {
	return d.doBytes(ctx, "write", remoteOp(QueueWrite, remote), data, where)
}

// WriteImmediate does the same as Write, and then takes a receive of the DCT's, which shows the number.
func (d *DCI) WriteImmediate(ctx context.Context, buffer Buffer, remote Remote, immediate uint32, where Destination) error {
	op := remoteOp(QueueWriteImmediate, remote)
	op.Immediate = immediate
	_, err := d.do(ctx, "write", op, buffer, where)
	return err
}

// Read fills a buffer, whose Region needs LocalWrite, with what is in memory there.
func (d *DCI) Read(ctx context.Context, buffer Buffer, remote Remote, where Destination) error {
	_, err := d.do(ctx, "read", remoteOp(QueueRead, remote), buffer, where)
	return err
}

// CompareSwap replaces 8 bytes of memory there by `swap` if they are equal to `compare`, and returns what was there before. The
// address must be a multiple of 8. If ctx is done first, they may or may not have changed, and may change yet.
func (d *DCI) CompareSwap(ctx context.Context, remote Remote, compare, swap uint64, where Destination) (before uint64, err error) {
	op := remoteOp(QueueCompareSwap, remote)
	op.Address, op.Operand = compare, swap
	done, err := d.do(ctx, "compare and swap", op, Buffer{}, where)
	return done.Token, err
}

// FetchAdd adds to 8 bytes of memory there, and returns what was there before. The rest is as with CompareSwap.
func (d *DCI) FetchAdd(ctx context.Context, remote Remote, add uint64, where Destination) (before uint64, err error) {
	op := remoteOp(QueueFetchAdd, remote)
	op.Operand = add
	done, err := d.do(ctx, "fetch and add", op, Buffer{}, where)
	return done.Token, err
}

// Post submits an op, which names its Target and its Stream, and does not wait. The rest is as with [Queue.Post].
func (d *DCI) Post(op QueueOp, buffer Buffer) (*Work, error) {
	if _, err := d.valid("post"); err != nil {
		return nil, err
	}
	return d.queue.Post(op, buffer)
}

// Batch makes room for `count` ops, which name their Targets and Streams. The rest is as with [Queue.Batch].
func (d *DCI) Batch(count int) (*QueueBatch, error) { return d.BatchWithPieces(count, 0) }

// BatchWithPieces does the same as Batch, with memory for pieces, as [Queue.BatchWithPieces].
func (d *DCI) BatchWithPieces(count, pieces int) (*QueueBatch, error) {
	if _, err := d.valid(opBatch); err != nil {
		return nil, err
	}
	return d.queue.BatchWithPieces(count, pieces)
}

// SetDestination has the op name where it goes: Target and Stream.
func (op *QueueOp) SetDestination(where Destination) error {
	const name = "set destination"
	if err := where.Target.valid(name); err != nil {
		return err
	}
	if where.Stream < 0 || where.Stream > streamMax {
		return errorf(name, ErrInvalid, "stream %d; a DCI has at most %d", where.Stream, streamMax)
	}
	op.Target, op.Stream = where.Target.handle, uint16(where.Stream)
	return nil
}

// ResetStream makes a stream usable again after one of its ops has failed: until then, what is posted to it fails with ErrFlushed.
// All that was posted before must have ended: ErrBusy. ErrUnsupported: the DCI has no streams. ErrState: it has ended. It asks the
// system, and the ops of other streams go on meanwhile.
func (d *DCI) ResetStream(stream int) error {
	const op = "reset stream"
	q, err := d.valid(op)
	if err != nil {
		return err
	}
	err = q.poller.control(op, func() error {
		if q.over {
			return newError(op, ErrState)
		}
		return q.poller.raw.ResetStream(QueueHandle(q.handle), stream)
	})
	switch {
	case errors.Is(err, ErrBusy):
		return errorf(op, ErrBusy, "ops of stream %d are open: wait until each of them has ended", stream)
	case errors.Is(err, ErrUnsupported):
		return errorf(op, ErrUnsupported, "the DCI has no streams: see QueueOptions.Streams")
	}
	return err
}

// ---- Ending and asking --------------------------------------------------------------------------

func (d *DCI) valid(op string) (*queue, error) {
	return d.inner().validAs(op, "this DCI was never opened: make it with Context.OpenDCI", "the DCI was closed")
}

func (d *DCI) inner() *Queue {
	if d == nil {
		return nil
	}
	return &d.queue
}

// Close ends the DCI at once. Open ops fail with ErrClosed, and their buffers may be used again. Closing twice is allowed.
func (d *DCI) Close() error { return d.inner().closeAs("the DCI was closed") }

// Drain refuses new ops, waits until all others have completed, and then ends the DCI. The rest is as with [Queue.Drain].
func (d *DCI) Drain(ctx context.Context) error {
	if _, err := d.valid("drain queue"); err != nil {
		return err
	}
	return d.queue.Drain(ctx)
}

// Done returns a Go channel that is closed when the DCI has ended and all its ops with it.
func (d *DCI) Done() <-chan struct{} { return d.inner().Done() }

// Err returns why the DCI has ended, or nil if it has not.
func (d *DCI) Err() error { return endOf(d.valid("DCI")) }

// Handle returns what completions of batches call this DCI.
func (d *DCI) Handle() QueueHandle { return d.inner().Handle() }

// Info describes the DCI; StreamsFailed counts the streams that have failed and were not reset.
func (d *DCI) Info() (QueueInfo, error) { return infoOfQueue(d.valid(opQueueInfo)) }

// Stats reads the counters of the DCI. After its end, it returns their last values.
func (d *DCI) Stats() (QueueStats, error) { return statsOfQueue(d.valid(opQueueStats)) }

func (d *DCT) valid(op string) (*queue, error) {
	return d.inner().validAs(op, "this DCT was never opened: make it with Context.OpenDCT", "the DCT was closed")
}

func (d *DCT) inner() *Queue {
	if d == nil {
		return nil
	}
	return &d.queue
}

// Close ends the DCT at once. Its SharedReceives go on. Closing twice is allowed.
func (d *DCT) Close() error { return d.inner().closeAs("the DCT was closed") }

// Done returns a Go channel that is closed when the DCT has ended.
func (d *DCT) Done() <-chan struct{} { return d.inner().Done() }

// Err returns why the DCT has ended, or nil if it has not.
func (d *DCT) Err() error { return endOf(d.valid("DCT")) }

// Handle returns what [Received] calls this DCT.
func (d *DCT) Handle() QueueHandle { return d.inner().Handle() }

// Address returns what a program of any kind has to know of the DCT to send to it, besides its access key.
func (d *DCT) Address() (QueueAddress, error) { return addressOfQueue(d.valid(opQueueAddress)) }

// Info describes the DCT.
func (d *DCT) Info() (QueueInfo, error) { return infoOfQueue(d.valid(opQueueInfo)) }
