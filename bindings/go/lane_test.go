package copyrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

const everyRight = copyrpc.RemoteRead | copyrpc.RemoteWrite | copyrpc.RemoteAtomic

// lanePair is two endpoints with a lane, and a region on each side, of which the right one is granted to the left side.
type lanePair struct {
	*pair
	left, right *copyrpc.Endpoint
	here, there *copyrpc.Region
	own, grant  *copyrpc.Grant // the right side's, and what the left side has of it
}

func newLanes(t testing.TB) *lanePair {
	t.Helper()
	p := &lanePair{pair: newPair(t, copyrpc.WithLane())}
	p.left, p.right = p.client, p.server
	p.here, p.there = newRegion(t, p.clientContext, copyrpc.LocalWrite), newRegion(t, p.serverContext, copyrpc.LocalWrite)
	for i := range p.here.Bytes() {
		p.here.Bytes()[i], p.there.Bytes()[i] = byte(i*7+1), byte(i*11+3)
	}
	p.own, p.grant = p.give(t, p.there.Slice(0, queueRegionBytes), everyRight)
	return p
}

func (p *lanePair) give(t testing.TB, buffer copyrpc.Buffer, access copyrpc.Access) (own, grant *copyrpc.Grant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	own, err := p.right.Grant(ctx, buffer, access)
	check(t, err)
	grant, err = p.left.OpenGrant(ctx, grantBytes(t, own))
	check(t, err)
	return own, grant
}

func grantBytes(t testing.TB, grant *copyrpc.Grant) []byte {
	t.Helper()
	data, err := grant.Bytes()
	check(t, err)
	if len(data) != copyrpc.GrantBytes {
		t.Fatal(len(data))
	}
	return data
}

// forged gives the bytes of a grant (docs/wire.md) with another number at a place, and the right checksum.
func forged(data []byte, at int, number uint32) []byte {
	made := bytes.Clone(data)
	binary.LittleEndian.PutUint32(made[at:], number)
	sum := fnv.New32a()
	sum.Write(made[:44])
	return binary.LittleEndian.AppendUint32(made[:44], sum.Sum32())
}

const (
	keyOfGrant  = 36
	lifeOfGrant = 40
)

func TestLaneWithout(t *testing.T) {
	for _, who := range []string{"none", "one"} {
		t.Run(who, func(t *testing.T) {
			p := newPair(t)
			client := p.client
			if who == "one" {
				client, _ = p.connect(t, limited(t), copyrpc.WithLane())
			}
			region := newRegion(t, p.clientContext, copyrpc.LocalWrite)
			ctx := limited(t)
			_, err := client.Grant(ctx, region.Slice(0, 8), copyrpc.RemoteRead)
			is(t, err, copyrpc.ErrUnsupported)
			_, err = client.OpenGrant(ctx, make([]byte, copyrpc.GrantBytes))
			is(t, err, copyrpc.ErrUnsupported)
			if _, err = client.Do(ctx, copyrpc.Call{After: true}); !errors.Is(err, copyrpc.ErrUnsupported) {
				t.Fatal(err)
			}
			if info, err := client.Info(); err != nil || info.Lane {
				t.Fatalf("%+v, %v", info, err)
			}
		})
	}
}

func TestLaneOps(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	for _, count := range []int{0, 1, 59, 60, 61, 4096, queueRegionBytes} {
		check(t, p.left.Write(ctx, p.here.Slice(0, count), p.grant.At(0)))
		if !bytes.Equal(p.there.Bytes()[:count], p.here.Bytes()[:count]) {
			t.Fatalf("%d bytes differ", count)
		}
	}
	clear(p.there.Bytes())
	check(t, p.left.Read(ctx, p.here.Slice(100, 600), p.grant.At(8)))
	if !bytes.Equal(p.here.Bytes()[100:600], make([]byte, 500)) || p.here.Bytes()[99] == 0 && p.here.Bytes()[600] == 0 {
		t.Fatal("it has not read what it should")
	}
	before, err := p.left.FetchAdd(ctx, p.grant.At(64), 5)
	check(t, err)
	again, err := p.left.CompareSwap(ctx, p.grant.At(64), 5, 77)
	check(t, err)
	if before != 0 || again != 5 || word(p.there, 64) != 77 {
		t.Fatal(before, again, word(p.there, 64))
	}
	op := copyrpc.LaneOp{Opcode: copyrpc.LaneFetchAdd, Flags: copyrpc.LaneFence, Operand: 1, UserData: 1 << 63}
	check(t, op.SetPlace(p.grant.At(64)))
	work, err := p.left.Post(op, copyrpc.Buffer{})
	check(t, err)
	done, err := work.Wait(ctx)
	check(t, err)
	if done.Token != 77 || done.UserData != 1<<63 || done.Kind != copyrpc.CompletionWork || done.Method != copyrpc.LaneFetchAdd {
		t.Fatalf("%+v", done)
	}
	info, err := p.left.Info()
	check(t, err)
	if !info.Lane {
		t.Fatalf("%+v", info)
	}
}

func TestLaneGrants(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	own, err := p.own.Info()
	check(t, err)
	there, err := p.grant.Info()
	check(t, err)
	if own.OfPeer || !there.OfPeer || own.Bytes != queueRegionBytes || there.Bytes != p.grant.Len() || own.Access != everyRight ||
		there.Access != everyRight || own.Over || there.Over {
		t.Fatalf("%+v, %+v", own, there)
	}
	_, err = p.grant.Bytes()
	is(t, err, copyrpc.ErrState)
	is(t, p.own.Close(), copyrpc.ErrState)
	same, err := p.right.GrantOf(p.own.Handle())
	check(t, err)
	if !bytes.Equal(grantBytes(t, same), grantBytes(t, p.own)) {
		t.Fatal("another grant")
	}
	_, err = p.left.GrantOf(p.own.Handle())
	is(t, err, copyrpc.ErrStale) // of another context
	for _, right := range []copyrpc.Access{copyrpc.RemoteRead, copyrpc.RemoteWrite, copyrpc.RemoteAtomic} {
		own, grant := p.give(t, p.there.Slice(0, 64), right)
		_, added := p.left.FetchAdd(ctx, grant.At(0), 0)
		for access, err := range map[copyrpc.Access]error{
			copyrpc.RemoteWrite:  p.left.Write(ctx, p.here.Slice(0, 8), grant.At(56)),
			copyrpc.RemoteRead:   p.left.Read(ctx, p.here.Slice(0, 8), grant.At(56)),
			copyrpc.RemoteAtomic: added,
		} {
			if access == right {
				check(t, err)
			} else {
				is(t, err, copyrpc.ErrInvalid)
			}
		}
		is(t, p.left.Write(ctx, p.here.Slice(0, 8), grant.At(57)), copyrpc.ErrInvalid)
		check(t, p.right.Revoke(ctx, own, copyrpc.Forever))
	}
	check(t, p.grant.Close())
	check(t, p.grant.Close())
	is(t, p.left.Write(ctx, p.here.Slice(0, 8), p.grant.At(0)), copyrpc.ErrStale)
}

func TestLaneRevoke(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	data := grantBytes(t, p.own)
	var works []*copyrpc.Work
	for i := 0; i < 20; i++ {
		op := copyrpc.LaneOp{Opcode: copyrpc.LaneWrite}
		check(t, op.SetPlace(p.grant.At(0)))
		work, err := p.left.Post(op, p.here.Slice(0, 4096))
		check(t, err)
		works = append(works, work)
	}
	_, err := works[0].Wait(ctx)
	check(t, err)
	is(t, p.there.Close(), copyrpc.ErrBusy)
	check(t, p.right.Revoke(ctx, p.own, time.Minute))
	for _, work := range works {
		if _, err := work.Wait(ctx); err != nil && !errors.Is(err, copyrpc.ErrStale) { // or C was not given it yet
			t.Fatal(err)
		}
	}
	is(t, p.left.Write(ctx, p.here.Slice(0, 8), p.grant.At(0)), copyrpc.ErrStale)
	_, err = p.left.OpenGrant(ctx, data) // replayed
	is(t, err, copyrpc.ErrStale)
	_, err = p.own.Bytes()
	is(t, err, copyrpc.ErrStale)
	is(t, p.right.Revoke(ctx, p.own, time.Minute), copyrpc.ErrStale)
	check(t, p.there.Close())
}

func TestLaneBadGrants(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	good := grantBytes(t, p.own)
	damaged := bytes.Clone(good)
	damaged[20] ^= 1
	for _, data := range [][]byte{nil, good[:47], append(bytes.Clone(good), 0), make([]byte, 48), damaged} {
		_, err := p.left.OpenGrant(ctx, data)
		is(t, err, copyrpc.ErrProtocol)
	}
	_, err := p.right.OpenGrant(ctx, good) // given to the other side
	is(t, err, copyrpc.ErrStale)
	other, _ := p.connect(t, ctx, copyrpc.WithLane())
	_, err = other.OpenGrant(ctx, good) // of another connection
	is(t, err, copyrpc.ErrStale)
	is(t, other.Write(ctx, p.here.Slice(0, 8), p.grant.At(0)), copyrpc.ErrInvalid)
	_, err = p.left.OpenGrant(ctx, forged(good, keyOfGrant, 0x123456))
	check(t, err)
	check(t, p.left.Write(ctx, p.here.Slice(0, 8), p.grant.At(0)))
}

// The device refuses what was forged: the lane fails, calls go on, and both sides have a lane again.
func TestLaneFailsAndComesAgain(t *testing.T) {
	p := newLanes(t)
	p.serve(t, echo)
	ctx := limited(t)
	wrong, err := p.left.OpenGrant(ctx, forged(grantBytes(t, p.own), keyOfGrant, 0x123456))
	check(t, err)
	is(t, p.left.Read(ctx, p.here.Slice(0, 8), wrong.At(0)), copyrpc.ErrAccess)
	if reply, err := p.left.Call(ctx, []byte("still there")); err != nil || string(reply) != "still there" {
		t.Fatal(string(reply), err)
	}
	own, grant := p.give(t, p.there.Slice(0, 64), everyRight)
	check(t, p.left.Read(ctx, p.here.Slice(0, 64), grant.At(0)))
	if !bytes.Equal(p.here.Bytes()[:64], p.there.Bytes()[:64]) {
		t.Fatal("it has read something else")
	}
	is(t, p.left.Read(ctx, p.here.Slice(0, 8), p.grant.At(0)), copyrpc.ErrStale)
	is(t, p.right.Revoke(ctx, p.own, time.Minute), copyrpc.ErrStale)
	_, err = p.left.OpenGrant(ctx, forged(grantBytes(t, own), lifeOfGrant, 1)) // of the lane before
	is(t, err, copyrpc.ErrStale)
	for _, old := range []*copyrpc.Grant{p.own, p.grant, wrong} {
		if info, err := old.Info(); err == nil && !info.Over {
			t.Fatalf("%+v", info)
		}
	}
}

func TestLaneAfter(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	seen := make(chan bool, 100)
	p.serve(t, func(_ context.Context, request *copyrpc.Request) ([]byte, error) {
		seen <- bytes.Equal(p.here.Bytes(), p.there.Bytes())
		return nil, nil
	})
	batch, err := p.left.LaneBatch(200) // more than a lane has room for
	check(t, err)
	defer batch.Close()
	for round := 0; round < 3; round++ {
		for i := range p.here.Bytes() {
			p.here.Bytes()[i] = byte(i*7 + round)
		}
		for i := range batch.Ops() {
			op := &batch.Ops()[i]
			*op = copyrpc.LaneOp{Opcode: copyrpc.LaneWrite}
			check(t, op.SetBuffer(p.here.Slice(i*queueRegionBytes/200, (i+1)*queueRegionBytes/200)))
			check(t, op.SetPlace(p.grant.At(i*queueRegionBytes/200)))
		}
		check(t, batch.Submit(200))
		switch round {
		case 0:
			_, err = p.left.Do(ctx, copyrpc.Call{After: true})
			check(t, err)
		default:
			results, err := p.left.DoBatch(ctx, []copyrpc.Call{{After: true}, {}})
			check(t, err)
			check(t, results[1].Err)
			<-seen
		}
		if !<-seen {
			t.Fatal("the call came before the writes were done")
		}
		_, err := batch.Wait(ctx)
		check(t, err)
	}
}

func TestLaneReplyAfter(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	back := newRegion(t, p.clientContext, copyrpc.LocalWrite)
	given, err := p.left.Grant(ctx, back.Slice(0, queueRegionBytes), copyrpc.RemoteWrite)
	check(t, err)
	p.serve(t, func(ctx context.Context, request *copyrpc.Request) ([]byte, error) {
		grant, err := p.right.OpenGrant(ctx, request.Payload)
		if err != nil {
			return nil, err
		}
		op := copyrpc.LaneOp{Opcode: copyrpc.LaneWrite}
		if err := op.SetPlace(grant.At(0)); err != nil {
			return nil, err
		}
		if _, err := p.right.Post(op, p.there.Slice(0, queueRegionBytes)); err != nil {
			return nil, err
		}
		return nil, request.ReplyAfter(ctx, []byte("filled"))
	})
	reply, err := p.left.Call(ctx, grantBytes(t, given))
	check(t, err)
	if string(reply) != "filled" || !bytes.Equal(back.Bytes(), p.there.Bytes()) {
		t.Fatalf("%q, or the memory differs", reply)
	}
}

func TestLaneBatch(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	const count = 1000
	batch, err := p.left.LaneBatch(count)
	check(t, err)
	for round := 0; round < 3; round++ {
		for i := range batch.Ops() {
			op := &batch.Ops()[i]
			*op = copyrpc.LaneOp{Opcode: copyrpc.LaneFetchAdd, Operand: 1, UserData: uint64(i)}
			check(t, op.SetPlace(p.grant.At(8)))
		}
		start := word(p.there, 8)
		done, err := batch.Do(ctx)
		check(t, err)
		for i := range done {
			if done[i].UserData != uint64(i) || done[i].Token != start+uint64(i) {
				t.Fatalf("%d: %+v", i, done[i])
			}
		}
	}
	batch.Ops()[3].Opcode = 99
	batch.Ops()[0].Grant = p.grant.Handle()
	done, err := batch.DoFirst(ctx, 10)
	is(t, err, copyrpc.ErrUnsupported)
	if copyrpc.Status(done[3].Status) != copyrpc.ErrUnsupported || copyrpc.Status(done[4].Status) != copyrpc.ErrCanceled || done[2].Status != 0 {
		t.Fatalf("%+v", done)
	}
	check(t, batch.Close())
	if batch.Ops() != nil && len(batch.Ops()) > 0 {
		t.Fatal("a closed batch has ops")
	}
	_, err = batch.Do(ctx)
	is(t, err, copyrpc.ErrClosed)
	if _, err = p.left.LaneBatch(0); !errors.Is(err, copyrpc.ErrInvalid) {
		t.Fatal(err)
	}
	var none *copyrpc.LaneBatch
	if _, err = none.Do(ctx); !errors.Is(err, copyrpc.ErrClosed) || none.Close() != nil {
		t.Fatal(err)
	}
}

func TestLanePieces(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	batch, err := p.left.LaneBatchWithPieces(100, 200)
	check(t, err)
	defer batch.Close()
	for i := range batch.Ops() {
		op := &batch.Ops()[i]
		*op = copyrpc.LaneOp{Opcode: copyrpc.LaneWrite, Flags: copyrpc.LanePieces, Address: uint64(2 * i), Bytes: 2}
		check(t, op.SetPlace(p.grant.At(30*i)))
		check(t, batch.Pieces()[2*i].SetBuffer(p.here.Slice(30*i, 30*i+10)))
		check(t, batch.Pieces()[2*i+1].SetBuffer(p.here.Slice(30*i+10, 30*i+30)))
	}
	_, err = batch.Do(ctx)
	check(t, err)
	if !bytes.Equal(p.here.Bytes()[:3000], p.there.Bytes()[:3000]) {
		t.Fatal("it is not what was gathered")
	}
	check(t, p.left.WriteBytes(ctx, []byte("copied"), p.grant.At(7)))
	check(t, p.left.WriteBytes(ctx, nil, p.grant.At(7)))
	if string(p.there.Bytes()[7:13]) != "copied" {
		t.Fatal(p.there.Bytes()[:20])
	}
	is(t, p.left.WriteBytes(ctx, make([]byte, 600), p.grant.At(0)), copyrpc.ErrTooBig)
	is(t, p.right.WriteBytes(ctx, nil, p.grant.At(0)), copyrpc.ErrInvalid)
	_, err = p.left.Post(copyrpc.LaneOp{Opcode: copyrpc.LaneWrite, Flags: copyrpc.LaneInline}, copyrpc.Buffer{})
	is(t, err, copyrpc.ErrInvalid)
}

// More may be open, and so nothing of these waits in the package.
func TestLaneDepth(t *testing.T) {
	p := newPair(t, copyrpc.WithLane(), copyrpc.WithLaneDepth(1000))
	region := newRegion(t, p.serverContext, copyrpc.LocalWrite)
	ctx := limited(t)
	own, err := p.server.Grant(ctx, region.Slice(0, 8), copyrpc.RemoteAtomic)
	check(t, err)
	grant, err := p.client.OpenGrant(ctx, grantBytes(t, own))
	check(t, err)
	batch, err := p.client.LaneBatch(1000)
	check(t, err)
	defer batch.Close()
	for i := range batch.Ops() {
		batch.Ops()[i] = copyrpc.LaneOp{Opcode: copyrpc.LaneFetchAdd, Operand: 1}
		check(t, batch.Ops()[i].SetPlace(grant.At(0)))
	}
	_, err = batch.Do(ctx)
	check(t, err)
	if word(region, 0) != 1000 {
		t.Fatal(word(region, 0))
	}
}

func TestLaneGoroutines(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	start := word(p.there, 0)
	var all sync.WaitGroup
	for i := 0; i < 50; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < 20; j++ {
				if _, err := p.left.FetchAdd(ctx, p.grant.At(0), 1); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
	if word(p.there, 0) != start+1000 {
		t.Fatal(word(p.there, 0)-start, "of 1000")
	}
}

func TestLaneEnds(t *testing.T) {
	for _, way := range []struct {
		name  string
		end   func(p *lanePair) error
		after copyrpc.Status
	}{
		{"Close", func(p *lanePair) error { return p.left.Close() }, copyrpc.ErrClosed},
		{"Shutdown", func(p *lanePair) error { return p.left.Shutdown(context.Background()) }, copyrpc.ErrClosed},
		{"the Context's Close", func(p *lanePair) error { return p.clientContext.Close() }, copyrpc.ErrClosed},
		{"the peer's Close", func(p *lanePair) error { return p.right.Close() }, copyrpc.ErrDisconnected},
	} {
		t.Run(way.name, func(t *testing.T) {
			p := newLanes(t)
			ctx := limited(t)
			batch, err := p.left.LaneBatch(300)
			check(t, err)
			defer batch.Close()
			for i := range batch.Ops() {
				op := &batch.Ops()[i]
				*op = copyrpc.LaneOp{Opcode: copyrpc.LaneWrite, UserData: uint64(i)}
				check(t, op.SetBuffer(p.here.Slice(0, 4096)))
				check(t, op.SetPlace(p.grant.At(0)))
			}
			check(t, batch.Submit(300))
			check(t, way.end(p))
			<-p.left.Done()
			done, err := batch.Wait(ctx)
			if way.name == "Shutdown" {
				check(t, err) // what was posted before is done
			}
			if len(done) != 300 {
				t.Fatal(err, len(done))
			}
			for i := range done {
				if done[i].Kind != copyrpc.CompletionWork || done[i].UserData != uint64(i) {
					t.Fatalf("%d: %+v", i, done[i])
				}
			}
			is(t, p.left.Write(ctx, p.here.Slice(0, 8), p.grant.At(0)), way.after)
			if _, err := p.left.Grant(ctx, p.here.Slice(0, 8), copyrpc.RemoteRead); err == nil {
				t.Fatal("it grants after its end")
			}
			check(t, p.grant.Close())
		})
	}
}

func TestLaneArguments(t *testing.T) {
	p := newLanes(t)
	ctx := limited(t)
	place := p.grant.At(0)
	readonly, err := p.clientContext.NewRegion(4096, 0)
	check(t, err)
	defer readonly.Close()
	for name, attempt := range map[string]func() error{
		"no grant":             func() error { return p.left.Write(ctx, p.here.Slice(0, 8), copyrpc.Place{}) },
		"an offset below 0":    func() error { return p.left.Write(ctx, p.here.Slice(0, 8), p.grant.At(-1)) },
		"past the grant":       func() error { return p.left.Write(ctx, p.here.Slice(0, 8), p.grant.At(queueRegionBytes-7)) },
		"no region":            func() error { return p.left.Write(ctx, copyrpc.Buffer{Length: 8}, place) },
		"another's region":     func() error { return p.left.Write(ctx, p.there.Slice(0, 8), place) },
		"a read into it":       func() error { return p.left.Read(ctx, readonly.Slice(0, 8), place) },
		"this side's grant":    func() error { return p.right.Write(ctx, p.there.Slice(0, 8), p.own.At(0)) },
		"the other's endpoint": func() error { return p.right.Write(ctx, p.there.Slice(0, 8), place) },
		"an odd place":         func() error { _, err := p.left.FetchAdd(ctx, p.grant.At(4), 1); return err },
		"no rights":            func() error { _, err := p.left.Grant(ctx, p.here.Slice(0, 8), 0); return err },
		"a right too many":     func() error { _, err := p.left.Grant(ctx, p.here.Slice(0, 8), 1<<20|copyrpc.RemoteRead); return err },
		"a local right":        func() error { _, err := p.left.Grant(ctx, p.here.Slice(0, 8), anyAccess); return err },
		"nothing granted":      func() error { _, err := p.left.Grant(ctx, p.here.Slice(0, 0), copyrpc.RemoteRead); return err },
		"written where none may": func() error {
			_, err := p.left.Grant(ctx, readonly.Slice(0, 8), copyrpc.RemoteWrite)
			return err
		},
		"no revoke":   func() error { return p.right.Revoke(ctx, nil, time.Second) },
		"no time":     func() error { return p.right.Revoke(ctx, p.own, 0) },
		"less":        func() error { return p.right.Revoke(ctx, p.own, -time.Second) },
		"other's":     func() error { return p.left.Revoke(ctx, p.own, time.Second) },
		"posted with": func() error { _, err := p.left.Post(copyrpc.LaneOp{Bytes: 8}, copyrpc.Buffer{}); return err },
	} {
		if err := attempt(); !errors.Is(err, copyrpc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	is(t, p.left.Revoke(ctx, p.grant, time.Second), copyrpc.ErrState)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range []error{p.left.Write(canceled, p.here.Slice(0, 8), place), p.right.Revoke(canceled, p.own, time.Second)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	_, err = p.left.Grant(canceled, p.here.Slice(0, 8), copyrpc.RemoteRead)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var none *copyrpc.Grant
	if _, err := none.Bytes(); !errors.Is(err, copyrpc.ErrClosed) || none.Close() != nil || none.Len() != 0 || none.Handle() != 0 {
		t.Error(err)
	}
	check(t, p.left.Write(ctx, p.here.Slice(0, 8), place))
}

// A region with an op under way stays.
func TestLaneRegionInUse(t *testing.T) {
	p := newLanes(t)
	op := copyrpc.LaneOp{Opcode: copyrpc.LaneWrite}
	check(t, op.SetPlace(p.grant.At(0)))
	region := newRegion(t, p.clientContext, copyrpc.LocalWrite)
	work, err := p.left.Post(op, region.Slice(0, queueRegionBytes))
	check(t, err)
	if err := region.Close(); err != nil {
		is(t, err, copyrpc.ErrBusy)
	}
	_, err = work.Wait(limited(t))
	check(t, err)
	check(t, region.Close())
}

// Calls that wait until ops before them are on their way find out when the lane ends. The race detector looks at the rest.
func TestLaneEndsWhileCallsWait(t *testing.T) {
	for round := 0; round < 4; round++ {
		p := newLanes(t)
		ctx := limited(t)
		batch, err := p.left.LaneBatch(2000) // far more than the lane has room for
		check(t, err)
		for i := range batch.Ops() {
			op := &batch.Ops()[i]
			*op = copyrpc.LaneOp{Opcode: copyrpc.LaneWrite}
			check(t, op.SetBuffer(p.here.Slice(0, 4096)))
			check(t, op.SetPlace(p.grant.At(0)))
		}
		check(t, batch.Submit(2000))
		var calls sync.WaitGroup
		for i := 0; i < 8; i++ {
			calls.Add(1)
			go func() {
				defer calls.Done()
				if _, err := p.left.Do(ctx, copyrpc.Call{After: true}); err == nil {
					t.Error("a call that nobody has answered was answered")
				}
			}()
		}
		time.Sleep(time.Millisecond)
		check(t, p.left.Close())
		calls.Wait()
		check(t, batch.Close())
	}
}
