// lanes.go: the verbs of lanes, and what comes of them.
package main

import (
	"encoding/hex"

	"github.com/copyrpc/copyrpc/bindings/go"
)

func (r *runner) ofLane(it *peer, verb string, l line) error {
	switch verb {
	case "grant":
		return r.grant(it, l)
	case "open_grant":
		data, _ := hex.DecodeString(l["bytes"])
		grant, err := it.OpenGrant(r.ctx, data)
		if err == nil {
			r.things.Store(l["name"], grant)
		}
		return err
	case "revoke":
		return r.revoke(it, l)
	case "transfer":
		return r.transfer(it, l)
	}
	return errNoVerb
}

func ofGrant(grant *copyrpc.Grant, verb string) (said, error) {
	switch verb {
	case "close_grant":
		return nil, grant.Close()
	case "grant_info":
		info, err := grant.Info()
		return said{"bytes": info.Bytes, "access": info.Access, "of_peer": info.OfPeer, "over": info.Over || err != nil}, err
	}
	return nil, errNoVerb
}

// buffer is the memory of an op; the zero one, if the line names no region.
func (r *runner) buffer(l line, at int) (buffer copyrpc.Buffer) {
	if thing, ok := r.things.Load(l["region"]); ok {
		buffer = thing.(*copyrpc.Region).Slice(at, at+l.number("length"))
	}
	return buffer
}

func (r *runner) grantNamed(l line) (*copyrpc.Grant, error) {
	if thing, ok := r.things.Load(l["grant"]); ok {
		return thing.(*copyrpc.Grant), nil
	}
	return nil, errUnknown
}

// grant posts, so that what comes after it is after it.
func (r *runner) grant(it *peer, l line) error {
	op := copyrpc.LaneOp{Opcode: copyrpc.LaneGrant}
	op.SetAccess(copyrpc.Access(l.number("access")))
	work, err := it.Post(op, r.buffer(l, l.number("offset")))
	if err != nil {
		event("granted", said{"id": l.number("id"), "status": statusOf(err)})
		return nil
	}
	r.begin(func() {
		done, err := work.Wait(r.ctx)
		if r.ctx.Err() != nil {
			return
		}
		var grant *copyrpc.Grant
		if err == nil {
			grant, err = it.GrantOf(copyrpc.GrantHandle(done.Token))
		}
		var data []byte
		if err == nil {
			data, err = grant.Bytes()
		}
		if err != nil {
			event("granted", said{"id": l.number("id"), "status": statusOf(err)})
			return
		}
		r.things.Store(l["name"], grant)
		event("granted", said{"id": l.number("id"), "status": "CRPC_OK", "bytes": hex.EncodeToString(data)})
	})
	return nil
}

func (r *runner) revoke(it *peer, l line) error {
	grant, err := r.grantNamed(l)
	if err != nil {
		return err
	}
	limit := copyrpc.Forever
	if l.number("timeout_ms") > 0 {
		limit = l.milliseconds("timeout_ms")
	}
	r.begin(func() {
		if err := it.Revoke(r.ctx, grant, limit); r.ctx.Err() == nil {
			event("revoked", said{"id": l.number("id"), "status": statusOf(err)})
		}
	})
	return nil
}

var laneOpcodes = map[string]uint8{"write": copyrpc.LaneWrite, "read": copyrpc.LaneRead, "compare_swap": copyrpc.LaneCompareSwap,
	"fetch_add": copyrpc.LaneFetchAdd}

func (r *runner) transfer(it *peer, l line) error {
	grant, err := r.grantNamed(l)
	if err != nil {
		return err
	}
	length := l.number("length")
	step, thereStep := length, 0 // atomics are all of one place
	if _, ok := l["step"]; ok {
		step = l.number("step")
	}
	if length > 0 {
		thereStep = step
	}
	if _, ok := l["there_step"]; ok {
		thereStep = l.number("there_step")
	}
	if _, ok := l["lengths"]; ok {
		return r.transferPieces(it, l, grant, step)
	}
	for i := 0; i < max(l.number("count"), 1); i++ {
		op := copyrpc.LaneOp{Opcode: laneOpcodes[l["opcode"]], Compare: l.big("compare"), Operand: l.big("operand")}
		if l["fence"] == "1" {
			op.Flags = copyrpc.LaneFence
		}
		buffer := r.buffer(l, l.number("offset")+i*step)
		if _, ok := l["seed"]; ok {
			copy(buffer.Bytes(), payload(length, l.number("seed")+i))
		}
		r.move(it, l.number("id")+i, op, buffer, grant.At(l.number("there")+i*thereStep))
	}
	return nil
}

// transferPieces posts ops in pieces, of which single ones have no form.
func (r *runner) transferPieces(it *peer, l line, grant *copyrpc.Grant, step int) error {
	thing, ok := r.things.Load(l["region"])
	if !ok {
		return errUnknown
	}
	region, lengths, offsets, count := thing.(*copyrpc.Region), l.numbers("lengths"), l.numbers("offsets"), max(l.number("count"), 1)
	batch, err := it.LaneBatchWithPieces(count, count*len(lengths))
	if err != nil {
		return err
	}
	parts := make([][]copyrpc.Buffer, count)
	for i := range batch.Ops() {
		op := &batch.Ops()[i]
		*op = copyrpc.LaneOp{Opcode: laneOpcodes[l["opcode"]], Flags: copyrpc.LanePieces, Address: uint64(i * len(lengths)), Bytes: uint32(len(lengths))}
		if err := op.SetPlace(grant.At(l.number("there") + i*l.number("there_step"))); err != nil {
			return err
		}
		sum := 0
		for j, length := range lengths {
			part := region.Slice(offsets[j]+i*step, offsets[j]+i*step+length)
			parts[i] = append(parts[i], part)
			if err := batch.Pieces()[i*len(lengths)+j].SetBuffer(part); err != nil {
				return err
			}
			sum += length
		}
		if _, ok := l["seed"]; ok {
			data := payload(sum, l.number("seed")+i)
			for _, part := range parts[i] {
				data = data[copy(part.Bytes(), data):]
			}
		}
	}
	if err := batch.Submit(count); err != nil {
		return err
	}
	r.begin(func() {
		defer batch.Close()
		done, _ := batch.Wait(r.ctx)
		for i := range done {
			more := said{}
			if done[i].Status == 0 && done[i].Method == copyrpc.LaneRead {
				var data []byte
				for _, part := range parts[i] {
					data = append(data, part.Bytes()...)
				}
				more = told(data)
			}
			event("completed", more.with(said{"id": l.number("id") + i, "status": copyrpc.Status(done[i].Status).Name()}))
		}
	})
	return nil
}

// move posts one op.
func (r *runner) move(it *peer, id int, op copyrpc.LaneOp, buffer copyrpc.Buffer, place copyrpc.Place) {
	err := op.SetPlace(place)
	var work *copyrpc.Work
	if err == nil {
		work, err = it.Post(op, buffer)
	}
	if err != nil {
		event("completed", said{"id": id, "status": statusOf(err)})
		return
	}
	r.begin(func() {
		done, err := work.Wait(r.ctx)
		if r.ctx.Err() != nil {
			return
		}
		more := said{}
		if err == nil && op.Opcode == copyrpc.LaneRead {
			var data []byte
			if buffer.Region != nil {
				data = buffer.Bytes()
			}
			more = told(data)
		} else if err == nil && op.Opcode != copyrpc.LaneWrite {
			more = said{"before": big(done.Token)}
		}
		event("completed", more.with(said{"id": id, "status": statusOf(err)}))
	})
}
