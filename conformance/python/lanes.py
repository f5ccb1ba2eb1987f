"""lanes.py: the verbs of lanes. Each op is a coroutine."""
import asyncio
import zlib

from words import big, event, payload, status_of

import copyrpc

LETTERS = {2: "w", 4: "r", 8: "a"}  # by CRPC_ACCESS_REMOTE_*


class Lanes:
    """What a Runner has of them."""

    def do_grant(self, endpoint, name, id, region, length, access, offset=0):
        letters = "".join(letter for bit, letter in LETTERS.items() if access & bit)
        self.begin(self.granting(name, id, endpoint.agrant(region[offset : offset + length], letters)))

    async def granting(self, name, number, work):
        try:
            grant = self.things[name] = await work
            event("granted", id=number, status="CRPC_OK", bytes=bytes(grant).hex())
        except (Exception, asyncio.CancelledError) as error:
            event("granted", id=number, status=status_of(error))

    async def do_open_grant(self, endpoint, name, bytes):
        self.things[name] = await endpoint.aopen_grant(bytearray.fromhex(bytes))

    def do_close_grant(self, grant):
        grant.close()

    def do_grant_info(self, grant):
        access = sum(bit for bit, letter in LETTERS.items() if letter in grant.access)
        return {"bytes": len(grant), "access": access, "of_peer": grant.of_peer, "over": grant.over}

    def do_revoke(self, endpoint, id, grant, timeout=None):
        self.begin(self.revoking(id, endpoint.arevoke(grant, timeout=timeout)))

    async def revoking(self, number, work):
        status = "CRPC_OK"
        try:
            await work
        except (Exception, asyncio.CancelledError) as error:
            status = status_of(error)
        event("revoked", id=number, status=status)

    def do_transfer(self, endpoint, id, opcode, grant, count=1, length=0, seed=None, region=None, offset=0, step=None, lengths=(), offsets=(),
                    there=0, there_step=None, fence=0, compare=0, operand=0):
        sizes, starts = (lengths, offsets) if lengths else ([length], [offset])
        step = length if step is None else step
        there_step = (step if length else 0) if there_step is None else there_step  # atomics are all of one place
        for index in range(count):
            moved = index * step
            parts = [region[at + moved : at + moved + size] for at, size in zip(starts, sizes)] if region is not None else [b""]
            data = payload(sum(sizes), seed + index) if seed is not None else b""
            for part in parts if data else []:
                part.memory[:], data = data[: len(part)], data[len(part) :]
            place = copyrpc.GrantPlace(grant, there + index * there_step)
            work = self.move(endpoint, opcode, parts if lengths else parts[0], place, compare, operand, bool(fence))
            self.begin(self.transferring(id + index, opcode, parts, work))

    @staticmethod
    async def move(endpoint, opcode, places, there, compare, operand, fence):
        if opcode == "write":
            return await endpoint.awrite(places, there, fence=fence)
        if opcode == "read":
            return await endpoint.aread(places, there, fence=fence)
        if opcode == "compare_swap":
            return await endpoint.acompare_swap(there, compare, operand, fence=fence)
        return await endpoint.afetch_add(there, operand, fence=fence)

    @staticmethod
    async def transferring(number, opcode, parts, work):
        status, fields = "CRPC_OK", {}
        try:
            result = await work
            if opcode == "read":
                data = b"".join(bytes(part.memory) for part in parts if len(part))
                fields = {"length": len(data), "checksum": zlib.crc32(data)}
            elif opcode != "write":
                fields = {"before": big(result)}
        except (Exception, asyncio.CancelledError) as error:
            status = status_of(error)
        event("completed", id=number, status=status, **fields)
