// lane.go: lanes: reads, writes and atomics of memory that the other side of an endpoint has granted, and grants.

package copyrpc

import (
	"context"
	"errors"
	"time"
	"unsafe"
)

// Grant is memory that one side of an endpoint lets the other use. Endpoint.Grant makes one of this side,
// whose Bytes go to the peer in any payload; Endpoint.OpenGrant makes one of the peer's. It ends with its
// endpoint's lane at the latest. All methods may be called from any goroutine.
type Grant struct {
	lane   *queue
	handle GrantHandle
	info   GrantInfo // when it was made
}

// Place is a place in the memory of a grant.
type Place struct {
	Grant  *Grant
	Offset int // from its start
}

// ---- What the poller hears ----------------------------------------------------------------------

// newLane makes what the poller knows of an endpoint's lane: as a queue, whose ops C takes for the endpoint. The poller's mutex is held.
func newLane(c *connection) *queue {
	q := newQueue()
	q.isLane = true
	q.init(c.poller, c.op, nil)
	q.handle, q.id = c.handle, c.poller.newID()
	q.poller.queues.add(q)
	return q
}

// room is what CompletionRoom means for it.
func (q *queue) room() {
	q.receives.blocked, q.sends.blocked = false, false
	q.mutex.Lock()
	q.enlist()
	if q.roomed != nil {
		close(q.roomed)
		q.roomed = nil
	}
	q.mutex.Unlock()
}

// nextRoom is closed at the next CompletionRoom.
func (q *queue) nextRoom() <-chan struct{} {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.roomed == nil {
		q.roomed = make(chan struct{})
	}
	return q.roomed
}

// passed waits until C has got what was posted before.
func (q *queue) passed(ctx context.Context, op string) error {
	passed := make(chan struct{}) // the run is the poller's from now on, which clears it when the lane ends
	q.mutex.Lock()
	if q.over {
		q.mutex.Unlock()
		return q.reason.toOps(op)
	}
	q.sends.open = append(q.sends.open, &queueRun{passed: passed})
	q.enlist()
	q.mutex.Unlock()
	q.poller.kick()
	select {
	case <-passed:
		return nil
	case <-q.gone:
		return q.why(op)
	case <-ctx.Done():
		return contextError(op, ctx)
	}
}

// afterLane is for what is to be sent behind ops of the lane.
func (c *connection) afterLane(ctx context.Context, op string) error {
	if c.lane == nil {
		return noLane(op)
	}
	return c.lane.passed(ctx, op)
}

func noLane(op string) *Error {
	return errorf(op, ErrUnsupported, "this endpoint has no lane: make it with WithLane on both sides")
}

func (endpoint *Endpoint) laneOf(op string) (*queue, error) {
	c, err := endpoint.valid(op)
	if err != nil {
		return nil, err
	}
	if c.lane == nil {
		return nil, noLane(op)
	}
	return c.lane, nil
}

// ---- Ops ----------------------------------------------------------------------------------------

// SetBuffer has the op name a buffer as its memory of this side: Region, Address and Bytes.
func (op *LaneOp) SetBuffer(buffer Buffer) error {
	var p *poller
	if buffer.Region != nil && buffer.Region.region != nil {
		p = buffer.Region.region.poller
	}
	problem := op.place("set buffer", buffer, p)
	if problem != nil {
		return problem
	}
	return nil
}

// SetPlace has the op name a place in the memory of a grant: Grant and Offset.
func (op *LaneOp) SetPlace(place Place) error {
	const name = "set place"
	if place.Grant == nil || place.Grant.lane == nil {
		return errorf(name, ErrInvalid, "a Place without a Grant: make it with Endpoint.OpenGrant")
	}
	if place.Offset < 0 {
		return errorf(name, ErrInvalid, "an offset of %d", place.Offset)
	}
	op.Grant, op.Offset = place.Grant.handle, uint64(place.Offset)
	return nil
}

func (op *LaneOp) place(name string, buffer Buffer, p *poller) *Error {
	handle, address, problem := buffer.place(name, p)
	if problem == nil && handle != 0 {
		op.Region, op.Address, op.Bytes = handle, address, uint32(buffer.Length)
	}
	return problem
}

// Post submits an op to the lane, and does not wait. Its memory of this side is the buffer; an op without any
// takes the zero Buffer. The fields Region, Address and Bytes must be zero. For ops with the flags LaneInline
// and LanePieces, use a [LaneBatch]. SetPlace names memory of the peer. What there is no room for waits in the package, in the order of the posts, and so it does until
// there is a lane.
func (endpoint *Endpoint) Post(op LaneOp, buffer Buffer) (*Work, error) {
	const name = "post"
	q, err := endpoint.laneOf(name)
	if err != nil {
		return nil, err
	}
	if op.Flags&(LaneInline|LanePieces) != 0 || op.Region != 0 || op.Bytes != 0 || op.Address != 0 {
		return nil, errorf(name, ErrInvalid, "the memory of a posted op is a Buffer: use a LaneBatch for inline payloads and pieces")
	}
	return q.postLane(name, &op, buffer)
}

func (q *queue) postLane(name string, op *LaneOp, buffer Buffer) (*Work, error) {
	if problem := op.place(name, buffer, q.poller); problem != nil {
		return nil, problem
	}
	w := &Work{op: name, userData: op.UserData, done: make(chan struct{})}
	if op.Region != 0 {
		w.region = buffer.Region.region
	}
	if err := q.gather(w, op.asQueueOp()); err != nil {
		return nil, err
	}
	return w, nil
}

// transfer posts an op for memory of the peer, and waits for it.
func (endpoint *Endpoint) transfer(ctx context.Context, name string, op LaneOp, buffer Buffer, place Place) (Completion, error) {
	q, err := endpoint.laneOf(name)
	if err != nil {
		return Completion{}, err
	}
	if err := op.SetPlace(place); err != nil {
		return Completion{}, err
	}
	if place.Grant.lane != q {
		return Completion{}, errorf(name, ErrInvalid, "the Grant is of another Endpoint")
	}
	return q.waitForLane(ctx, name, op, buffer)
}

func (q *queue) waitForLane(ctx context.Context, name string, op LaneOp, buffer Buffer) (Completion, error) {
	if ctx.Err() != nil {
		return Completion{}, contextError(name, ctx)
	}
	w, err := q.postLane(name, &op, buffer)
	if err != nil {
		return Completion{}, err
	}
	return w.Wait(ctx)
}

// Write writes a buffer to memory that the peer has granted, and waits until it is there. The peer is not
// told: see Call.After. An op cannot be canceled once it is posted, here and below: if ctx is done first,
// it goes on, and its buffer stays in use until it has completed. A Region with such a buffer cannot be
// closed before that ([ErrBusy]).
//
// If the peer's device refuses an op ([ErrAccess]), the lane fails: ops behind it fail with [ErrFlushed], and
// all grants of both sides end. Calls go on, and the lane is made again. Until then, ops wait.
func (endpoint *Endpoint) Write(ctx context.Context, buffer Buffer, place Place) error {
	_, err := endpoint.transfer(ctx, "write", LaneOp{Opcode: LaneWrite}, buffer, place)
	return err
}

// WriteBytes writes a copy of a short Go slice, of at most as many bytes as InlineBytesMax of the Info of its
// Context says, to memory that the peer has granted. The slice may change as soon as WriteBytes has returned, whatever became of the op.
func (endpoint *Endpoint) WriteBytes(ctx context.Context, data []byte, place Place) error {
	const name = "write"
	q, err := endpoint.laneOf(name)
	if err != nil {
		return err
	}
	op := LaneOp{Opcode: LaneWrite}
	if err := op.SetPlace(place); err != nil {
		return err
	}
	if place.Grant.lane != q {
		return errorf(name, ErrInvalid, "the Grant is of another Endpoint")
	}
	return q.doCopy(ctx, name, data, func(at unsafe.Pointer) *QueueOp {
		if at != nil {
			op.Flags, op.Address, op.Bytes = LaneInline, uint64(uintptr(at)), uint32(len(data))
		}
		return op.asQueueOp()
	})
}

// Read fills a buffer, whose Region needs LocalWrite, with memory that the peer has granted. What writes that
// were posted before it have written is there.
func (endpoint *Endpoint) Read(ctx context.Context, buffer Buffer, place Place) error {
	_, err := endpoint.transfer(ctx, "read", LaneOp{Opcode: LaneRead}, buffer, place)
	return err
}

// CompareSwap replaces 8 bytes of the peer's memory by `swap` if they are equal to `compare`, and returns
// what was there before. Their address must be a multiple of 8. If ctx is done first, the memory may or may
// not have changed, and may change yet.
func (endpoint *Endpoint) CompareSwap(ctx context.Context, place Place, compare, swap uint64) (before uint64, err error) {
	done, err := endpoint.transfer(ctx, "compare and swap", LaneOp{Opcode: LaneCompareSwap, Compare: compare, Operand: swap}, Buffer{}, place)
	return done.Token, err
}

// FetchAdd adds to 8 bytes of the peer's memory, and returns what was there before. The rest is as with
// CompareSwap.
func (endpoint *Endpoint) FetchAdd(ctx context.Context, place Place, add uint64) (before uint64, err error) {
	done, err := endpoint.transfer(ctx, "fetch and add", LaneOp{Opcode: LaneFetchAdd, Operand: add}, Buffer{}, place)
	return done.Token, err
}

// ---- Grants -------------------------------------------------------------------------------------

// Grant lets the peer use a buffer: RemoteRead, RemoteWrite, RemoteAtomic, or several of these. The Region
// needs no remote right; for more than reading it needs LocalWrite. It cannot be closed ([ErrBusy]) until the
// grant has ended: by Revoke, with the lane, or with the endpoint.
func (endpoint *Endpoint) Grant(ctx context.Context, buffer Buffer, access Access) (*Grant, error) {
	const name = "grant"
	q, err := endpoint.laneOf(name)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, contextError(name, ctx)
	}
	op := LaneOp{Opcode: LaneGrant}
	op.SetAccess(access)
	w, err := q.postLane(name, &op, buffer)
	if err != nil {
		return nil, err
	}
	done, err := w.Wait(ctx)
	if err != nil {
		if ctx.Err() != nil {
			go q.revokeUnheard(w)
		}
		return nil, err
	}
	return q.grantOf(name, GrantHandle(done.Token))
}

// revokeUnheard ends a grant that nobody has waited for. The peer cannot know it, so nobody waits for its answer either.
func (q *queue) revokeUnheard(w *Work) {
	<-w.done
	if w.result.Status == 0 {
		q.postLane("revoke", &LaneOp{Opcode: LaneRevoke, Grant: GrantHandle(w.result.Token), Operand: 1}, Buffer{})
	}
}

func (q *queue) grantOf(name string, handle GrantHandle) (*Grant, error) {
	grant := &Grant{lane: q, handle: handle}
	err := q.poller.control(name, func() (err error) {
		grant.info, err = q.poller.raw.GrantInfo(handle)
		if err == nil && uint64(grant.info.Endpoint) != q.handle {
			err = errorf(name, ErrInvalid, "the grant is of another Endpoint")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return grant, nil
}

// GrantOf returns the Grant of a handle: the Token of the completion of a LaneGrant.
func (endpoint *Endpoint) GrantOf(handle GrantHandle) (*Grant, error) {
	const name = "grant"
	q, err := endpoint.laneOf(name)
	if err != nil {
		return nil, err
	}
	return q.grantOf(name, handle)
}

// OpenGrant returns the grant that the peer has made, of its bytes. They may come from anybody: what they
// name is only reached over this endpoint's lane, if its peer has granted it. [ErrProtocol]: they are cut or
// damaged; [ErrStale]: they are of another connection, or revoked. It waits until there is a lane.
func (endpoint *Endpoint) OpenGrant(ctx context.Context, bytes []byte) (*Grant, error) {
	const name = "open grant"
	q, err := endpoint.laneOf(name)
	if err != nil {
		return nil, err
	}
	for {
		if ctx.Err() != nil {
			return nil, contextError(name, ctx)
		}
		room := q.nextRoom()
		grant := &Grant{lane: q}
		err := q.poller.control(name, func() (err error) {
			if q.over {
				return q.reason.toOps(name)
			}
			if grant.handle, err = q.poller.raw.OpenGrant(EndpointHandle(q.handle), bytes); err == nil {
				grant.info, err = q.poller.raw.GrantInfo(grant.handle)
			}
			return err
		})
		if err == nil {
			return grant, nil
		}
		if !errors.Is(err, ErrAgain) {
			return nil, err
		}
		select {
		case <-room:
		case <-q.gone:
			return nil, q.why(name)
		case <-ctx.Done():
		}
	}
}

// Revoke ends a grant of this side, and waits until nobody reaches the memory any more. The peer is asked to
// let go of it, and answers when its program polls, and its ops have ended. It has `limit` for this, and
// Forever is no limit: then the grant ends all the same, and with it the lane if the peer still uses it. If
// ctx is done first, the revoke goes on.
func (endpoint *Endpoint) Revoke(ctx context.Context, grant *Grant, limit time.Duration) error {
	const name = "revoke"
	q, err := endpoint.laneOf(name)
	if err != nil {
		return err
	}
	switch {
	case grant == nil || grant.lane != q:
		return errorf(name, ErrInvalid, "the Grant is none of this Endpoint")
	case grant.info.OfPeer:
		return errorf(name, ErrState, "the peer has given it: Close ends what this side has of it")
	case limit <= 0:
		return errorf(name, ErrInvalid, "a limit of %v: it is above 0, or Forever", limit)
	}
	if info, err := grant.Info(); err != nil {
		return err
	} else if info.Over {
		return errorf(name, ErrStale, "the grant has ended with its lane")
	}
	_, err = q.waitForLane(ctx, name, LaneOp{Opcode: LaneRevoke, Grant: grant.handle, Operand: revokeLimit(limit)}, Buffer{})
	return err
}

// At returns the place that lies `offset` bytes after the grant's start.
func (grant *Grant) At(offset int) Place { return Place{Grant: grant, Offset: offset} }

// Handle returns what LaneOps call the grant.
func (grant *Grant) Handle() GrantHandle {
	if grant == nil {
		return 0
	}
	return grant.handle
}

// Len returns how many bytes of memory it gives.
func (grant *Grant) Len() int {
	if grant == nil {
		return 0
	}
	return grant.info.Bytes
}

// Bytes returns the GrantBytes of a grant of this side, for the peer of its endpoint, in any payload. They
// are of no use to anybody else.
func (grant *Grant) Bytes() (bytes []byte, err error) {
	err = grant.ask("grant", func(raw *RawContext) (err error) {
		bytes, err = raw.GrantBytes(grant.handle)
		return err
	})
	return bytes, err
}

// Info describes the grant.
func (grant *Grant) Info() (info GrantInfo, err error) {
	err = grant.ask("grant info", func(raw *RawContext) (err error) {
		info, err = raw.GrantInfo(grant.handle)
		return err
	})
	return info, err
}

// Close forgets a grant of the peer; ops that were posted go on. ErrState: it is of this side, and Revoke ends
// it. Closing twice is allowed.
func (grant *Grant) Close() error {
	if grant == nil || grant.lane == nil {
		return nil
	}
	err := grant.ask("close grant", func(raw *RawContext) error { return raw.CloseGrant(grant.handle) })
	if errors.Is(err, ErrStale) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

func (grant *Grant) ask(name string, talk func(*RawContext) error) error {
	if grant == nil || grant.lane == nil {
		return errorf(name, ErrClosed, "this Grant was never made: make it with Endpoint.Grant or OpenGrant")
	}
	p := grant.lane.poller
	return p.control(name, func() error { return talk(p.raw) })
}

// ---- Many ops -----------------------------------------------------------------------------------

// LaneBatch is an array of ops of a lane in C memory, and of their completions, which is used as a
// [QueueBatch] is.
type LaneBatch struct {
	batch *QueueBatch
}

// LaneBatch makes a batch of `count` ops, which are zero.
func (endpoint *Endpoint) LaneBatch(count int) (*LaneBatch, error) {
	return endpoint.LaneBatchWithPieces(count, 0)
}

// LaneBatchWithPieces makes a batch of `count` ops, with memory for `pieces` Pieces, at most 4096, which ops
// with the flag LanePieces name.
func (endpoint *Endpoint) LaneBatchWithPieces(count, pieces int) (*LaneBatch, error) {
	q, err := endpoint.laneOf(opBatch)
	if err != nil {
		return nil, err
	}
	b, err := q.newBatch(count, pieces)
	if err != nil {
		return nil, err
	}
	return &LaneBatch{batch: b}, nil
}

// Pieces returns the pieces, under the same terms as Ops.
func (b *LaneBatch) Pieces() []Piece { return b.inner().Pieces() }

func (b *LaneBatch) inner() *QueueBatch {
	if b == nil {
		return nil
	}
	return b.batch
}

// Ops returns the ops, to be filled before Do: see [LaneOp.SetBuffer] and [LaneOp.SetPlace]. A Region must not
// be closed while a batch with its memory is under way. UserData comes back with the completion. While the
// batch is under way, the ops must be left alone. They are C memory, which Close frees.
func (b *LaneBatch) Ops() []LaneOp { return laneOps(b.inner().Ops()) }

// Do submits all ops and waits for them. See Submit and Wait.
func (b *LaneBatch) Do(ctx context.Context) ([]Completion, error) { return b.inner().Do(ctx) }

// DoFirst does the same as Do, for the first `count` ops.
func (b *LaneBatch) DoFirst(ctx context.Context, count int) ([]Completion, error) {
	return b.inner().DoFirst(ctx, count)
}

// Submit submits the first `count` ops, and does not wait. The rest is as with [QueueBatch.Submit].
func (b *LaneBatch) Submit(count int) error { return b.inner().Submit(count) }

// Wait waits until all ops that were submitted have completed, and returns their completions, in the order of
// the ops. The rest is as with [QueueBatch.Wait].
func (b *LaneBatch) Wait(ctx context.Context) ([]Completion, error) { return b.inner().Wait(ctx) }

// Close frees the memory: at once, or when the ops that are under way have completed. Closing twice is
// allowed.
func (b *LaneBatch) Close() error { return b.inner().Close() }
