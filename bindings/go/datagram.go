// datagram.go: queues for datagrams (UD), and where these go.

package copyrpc

import (
	"context"
	"sync/atomic"
)

// Datagrams is a queue pair of the NIC that has no peer: each message goes to a [Target] of its own, and it
// receives from whoever knows its key. Messages may be lost. A receive begins with QueueHeaderBytes of
// header, which count in [Received].Bytes; one for which there is no receive is lost, and nobody is told.
// All methods may be called from any goroutine.
type Datagrams struct {
	queue Queue
}

// Target is where datagrams go, or ops of a [DCI]: a queue pair or a DCT, and its key. It ends with its
// context. All methods may be called from any goroutine.
type Target struct {
	poller *poller
	handle TargetHandle
	forDCI bool
	closed atomic.Bool
}

// ---- Making -------------------------------------------------------------------------------------

// OpenDatagrams makes a queue for datagrams, which is usable at once. Of the options, those of
// connections must not be set. The context must have queues: see [WithQueues].
func (c *Context) OpenDatagrams(options QueueOptions) (*Datagrams, error) {
	q, err := c.openLone("open datagrams", options, datagrams)
	if err != nil {
		return nil, err
	}
	return shown(&q.link, &Datagrams{queue: Queue{queue: q}}, "Datagrams", nil)
}

// OpenTarget makes a target, for messages of these Datagrams and of all others of their context, of the
// address of a queue for datagrams of any program. It may take as long as the network needs to find the
// way.
func (d *Datagrams) OpenTarget(address QueueAddress, options TargetOptions) (*Target, error) {
	const op = "open target"
	if options.ForDCI {
		return nil, errorf(op, ErrInvalid, "a target for a DCI is made with DCI.OpenTarget")
	}
	return d.target(op, func(raw *RawContext) (TargetHandle, error) { return raw.OpenTarget(address, options) })
}

// TargetOf makes a target for an answer to a message that these Datagrams have received into a buffer,
// which has not been used again, with their own key. Who can forge a header can have the answer sent to
// somebody else. A program that answers often keeps the targets of its peers.
func (d *Datagrams) TargetOf(received Received, buffer Buffer) (*Target, error) {
	const op = "target of"
	return d.target(op, func(raw *RawContext) (TargetHandle, error) {
		if _, _, problem := buffer.place(op, d.queue.queue.poller); problem != nil {
			return 0, problem
		}
		return raw.TargetOf(&received.completion, buffer.Bytes())
	})
}

func (d *Datagrams) target(op string, open func(*RawContext) (TargetHandle, error)) (*Target, error) {
	q, err := d.valid(op)
	if err != nil {
		return nil, err
	}
	return q.newTarget(op, false, open)
}

func (q *queue) newTarget(op string, forDCI bool, open func(*RawContext) (TargetHandle, error)) (*Target, error) {
	target := &Target{poller: q.poller, forDCI: forDCI}
	err := q.poller.control(op, func() (err error) {
		target.handle, err = open(q.poller.raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	return target, nil
}

// Close ends the target. Messages that were posted go on. Closing twice is allowed.
func (target *Target) Close() error {
	const op = "close target"
	if target == nil || target.poller == nil || target.closed.Swap(true) {
		return nil
	}
	target.poller.control(op, func() error { return target.poller.raw.CloseTarget(target.handle) })
	return nil // or the context was closed, and it with that
}

// Address returns the address of the queue pair.
func (target *Target) Address() (address QueueAddress, err error) {
	const op = "target address"
	if err := target.valid(op); err != nil {
		return QueueAddress{}, err
	}
	err = target.poller.control(op, func() (err error) {
		address, err = target.poller.raw.TargetAddress(target.handle)
		return err
	})
	return address, err
}

// Handle returns what ops of batches call the target.
func (target *Target) Handle() TargetHandle {
	if target == nil {
		return 0
	}
	return target.handle
}

func (target *Target) valid(op string) error {
	switch {
	case target == nil || target.poller == nil:
		return errorf(op, ErrInvalid, "there is no target: make one with OpenTarget")
	case target.closed.Load():
		return errorf(op, ErrClosed, "the Target was closed")
	}
	return nil
}

// of tells what ops of this queue call the target.
func (target *Target) of(q *queue, op string, isDCI bool) (TargetHandle, error) {
	if err := target.valid(op); err != nil {
		return 0, err
	}
	switch {
	case target.poller != q.poller:
		return 0, errorf(op, ErrInvalid, "the Target is one of another Context")
	case isDCI && !target.forDCI:
		return 0, errorf(op, ErrInvalid, "the Target is one for datagrams: make one with DCI.OpenTarget")
	case target.forDCI && !isDCI:
		return 0, errorf(op, ErrInvalid, "the Target is one for a DCI: make one with Datagrams.OpenTarget")
	}
	return target.handle, nil
}

// ---- Messages -----------------------------------------------------------------------------------

// to has an op name a target.
func (d *Datagrams) to(name string, op QueueOp, target *Target) (QueueOp, error) {
	q, err := d.valid(name)
	if err != nil {
		return op, err
	}
	op.Target, err = target.of(q, name, false)
	return op, err
}

// Send sends a buffer as one message of at most QueueInfo.MessageBytesMax, and waits until it was sent. If
// ctx is done first, the op goes on, and its buffer stays in use, as with [Queue.Send].
func (d *Datagrams) Send(ctx context.Context, buffer Buffer, target *Target) error {
	op, err := d.to(opSend, QueueOp{Opcode: QueueSend}, target)
	if err != nil {
		return err
	}
	_, err = d.queue.do(ctx, opSend, op, buffer)
	return err
}

// SendImmediate does the same as Send, with a number that the receive there shows.
func (d *Datagrams) SendImmediate(ctx context.Context, buffer Buffer, target *Target, immediate uint32) error {
	op, err := d.to(opSend, QueueOp{Opcode: QueueSendImmediate, Immediate: immediate}, target)
	if err != nil {
		return err
	}
	_, err = d.queue.do(ctx, opSend, op, buffer)
	return err
}

// SendBytes sends a copy of a Go slice, of at most as many bytes as QueueOptions.InlineBytes says.
func (d *Datagrams) SendBytes(ctx context.Context, data []byte, target *Target) error {
	op, err := d.to(opSend, QueueOp{Opcode: QueueSend}, target)
	if err != nil {
		return err
	}
	return d.queue.doBytes(ctx, opSend, op, data)
}

// Post submits an op, which names its Target, and does not wait. The rest is as with [Queue.Post].
func (d *Datagrams) Post(op QueueOp, buffer Buffer) (*Work, error) {
	if _, err := d.valid("post"); err != nil {
		return nil, err
	}
	return d.queue.Post(op, buffer)
}

// PostReceive gives a buffer for one message, and does not wait.
func (d *Datagrams) PostReceive(buffer Buffer) (*Work, error) {
	if _, err := d.valid(opReceive); err != nil {
		return nil, err
	}
	return d.queue.PostReceive(buffer)
}

// Receive gives a buffer, whose Region needs LocalWrite, for one message, and waits for the message. The
// rest is as with [Queue.Receive].
func (d *Datagrams) Receive(ctx context.Context, buffer Buffer) (Received, error) {
	if _, err := d.valid(opReceive); err != nil {
		return Received{}, err
	}
	return d.queue.Receive(ctx, buffer)
}

// Batch makes room for `count` ops, which name their Targets. The rest is as with [Queue.Batch].
func (d *Datagrams) Batch(count int) (*QueueBatch, error) {
	if _, err := d.valid("batch"); err != nil {
		return nil, err
	}
	return d.queue.Batch(count)
}

// ---- Ending and asking --------------------------------------------------------------------------

func (d *Datagrams) valid(op string) (*queue, error) {
	return d.inner().validAs(op, "these Datagrams were never opened: make them with Context.OpenDatagrams", "the Datagrams were closed")
}

func (d *Datagrams) inner() *Queue {
	if d == nil {
		return nil
	}
	return &d.queue
}

// Close ends the queue at once. Open ops fail with ErrClosed, and their buffers may be used again.
// Closing twice is allowed.
func (d *Datagrams) Close() error { return d.inner().closeAs("the Datagrams were closed") }

// Drain refuses new ops, waits until all sends have completed, and then ends the queue. The rest is as
// with [Queue.Drain].
func (d *Datagrams) Drain(ctx context.Context) error {
	if _, err := d.valid("drain queue"); err != nil {
		return err
	}
	return d.queue.Drain(ctx)
}

// Done returns a Go channel that is closed when the queue has ended and all its ops with it.
func (d *Datagrams) Done() <-chan struct{} { return d.inner().Done() }

// Err returns why the queue has ended, or nil if it has not.
func (d *Datagrams) Err() error { return endOf(d.valid("datagrams")) }

// Handle returns what completions of batches and [Received] call this queue.
func (d *Datagrams) Handle() QueueHandle { return d.inner().Handle() }

// Address returns what a program of any kind has to know of the queue to send to it, besides its key.
func (d *Datagrams) Address() (QueueAddress, error) { return addressOfQueue(d.valid(opQueueAddress)) }

// Info describes the queue.
func (d *Datagrams) Info() (QueueInfo, error) { return infoOfQueue(d.valid(opQueueInfo)) }

// Stats reads the counters of the queue. After its end, it returns their last values.
func (d *Datagrams) Stats() (QueueStats, error) { return statsOfQueue(d.valid(opQueueStats)) }
