"""verbs.py: what the foreign peer in Python has of pyverbs: a device, memory, queue pairs that are connected by the numbers which the two
sides tell each other, and datagrams. It knows nothing of copyrpc."""
import socket
from collections import namedtuple
from enum import Enum
from types import SimpleNamespace

from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

try:
    from pyverbs import enums
except ImportError:  # its name since rdma-core 50 or so
    from pyverbs import libibverbs_enums as enums

members = {}  # of its enumerations, which with rdma-core 61 the module does not have itself
for enumeration in vars(enums).values():
    if isinstance(enumeration, type) and issubclass(enumeration, Enum):
        members.update(enumeration.__members__)
e = SimpleNamespace(**{**members, **vars(enums)})

PORT = 1
ROCE_V2 = 2  # enum ibv_gid_type
INFINIBAND, ETHERNET = 1, 2  # CRPC_LINK_
GRH_REQUIRED = 1  # of a port's flags
GIDS = 64
IPV4 = bytes(10) + b"\xff\xff"  # how such a GID begins; packets have the header of the GID that they are sent from, so both sides have one
ENTRIES = 8192
SEQUENCE_NUMBER = 0x234567
HOPS = 64
TIMEOUT = 14  # 67 ms
RNR_TIMER = 12  # 0.64 ms
READS = 16
QUEUE_KEY = 0x11111111  # where nobody says another
HEADER_BYTES = 40  # before each datagram
OPCODES = {
    "send": e.IBV_WR_SEND, "send_immediate": e.IBV_WR_SEND_WITH_IMM, "write": e.IBV_WR_RDMA_WRITE,
    "write_immediate": e.IBV_WR_RDMA_WRITE_WITH_IMM, "read": e.IBV_WR_RDMA_READ, "compare_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}  # fmt: skip
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
ACCESSES = (e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ, e.IBV_ACCESS_REMOTE_ATOMIC)
STATUSES = {
    e.IBV_WC_SUCCESS: "CRPC_OK", e.IBV_WC_WR_FLUSH_ERR: "CRPC_E_FLUSHED", e.IBV_WC_REM_ACCESS_ERR: "CRPC_E_ACCESS",
    e.IBV_WC_RNR_RETRY_EXC_ERR: "CRPC_E_NOT_READY", e.IBV_WC_RETRY_EXC_ERR: "CRPC_E_DISCONNECTED",
    e.IBV_WC_REM_INV_REQ_ERR: "CRPC_E_ACCESS", e.IBV_WC_LOC_LEN_ERR: "CRPC_E_TRUNCATED",
}  # fmt: skip

#: What a program without rdma_cm has to know of a queue pair, as struct crpc_queue_address; the GID as 16 bytes.
Address = namedtuple("Address", "queue_pair_number packet_sequence_number link mtu_bytes lid gid")
#: What came of an op. Of one that failed, the rest is None.
Done = namedtuple("Done", "number status bytes immediate written source lid grh")
#: Memory of this side: bytes of a region.
Piece = namedtuple("Piece", "region offset bytes")


class Device:
    def __init__(self, name):
        self.context = Context(name=name)
        self.domain = PD(self.context)
        wanted = e.IBV_WC_EX_WITH_BYTE_LEN | e.IBV_WC_EX_WITH_IMM | e.IBV_WC_EX_WITH_QP_NUM | e.IBV_WC_EX_WITH_SRC_QP | e.IBV_WC_EX_WITH_SLID
        self.completions = CQEX(self.context, CqInitAttrEx(cqe=ENTRIES, wc_flags=wanted))
        port = self.context.query_port(PORT)
        self.link = INFINIBAND if port.link_layer == e.IBV_LINK_LAYER_INFINIBAND else ETHERNET
        self.lid, self.mtu = port.lid, port.active_mtu
        # On InfiniBand, a GRH is only where the port requires one.
        self.uses_grh = self.link == ETHERNET or bool(port.flags & GRH_REQUIRED)
        if self.link == INFINIBAND:
            self.gid_index, self.gid = self.gid_at(0)
        else:
            found = (entry.gid_index for entry in self.context.query_gid_table(GIDS) if (entry.port_num, entry.gid_type) == (PORT, ROCE_V2))
            self.gid_index, self.gid = next((index, gid) for index, gid in map(self.gid_at, found) if gid[:12] == IPV4)

    def gid_at(self, index):
        return index, bytes.fromhex(self.context.query_gid(PORT, index).gid.replace(":", ""))

    def register(self, length, access):
        """`access` is the sum of CRPC_ACCESS_*."""
        return MR(self.domain, length, sum(flag for index, flag in enumerate(ACCESSES) if access >> index & 1))

    def way_to(self, address):
        if not self.uses_grh:
            return AHAttr(is_global=0, port_num=PORT, dlid=address.lid)
        words = ":".join(address.gid.hex()[index : index + 4] for index in range(0, 32, 4))
        route = GlobalRoute(dgid=GID(words), sgid_index=self.gid_index, hop_limit=HOPS)
        return AHAttr(gr=route, is_global=1, port_num=PORT, dlid=address.lid)

    def poll(self):
        """Returns what has ended since."""
        found = []
        if self.completions.start_poll(PollCqAttr()):
            return found
        while True:
            found.append(self.one())
            if self.completions.poll_next():
                break
        self.completions.end_poll()
        return found

    def one(self):
        entry = self.completions
        if entry.status != e.IBV_WC_SUCCESS:
            return Done(entry.wr_id, STATUSES.get(entry.status, "CRPC_E_DEVICE"), None, None, None, None, None, None)
        immediate = socket.ntohl(entry.read_imm_data()) if entry.read_wc_flags() & e.IBV_WC_WITH_IMM else None
        written = entry.read_opcode() == e.IBV_WC_RECV_RDMA_WITH_IMM
        grh = bool(entry.read_wc_flags() & e.IBV_WC_GRH)
        return Done(entry.wr_id, "CRPC_OK", entry.read_byte_len(), immediate, written, entry.read_src_qp(), entry.read_slid(), grh)

    def close(self):
        self.context.close()  # and all that was made of it


def source_of(header, link, grh):
    """The GID from which a datagram came: before it are 20 bytes of nothing, and its IP header; or, on InfiniBand, a GRH if there is one."""
    if link == ETHERNET:
        return IPV4 + header[32:36]
    return header[8:24] if grh else bytes(16)


class Target:
    """Where datagrams are sent to."""

    def __init__(self, device, address, key):
        self.address = address
        self.key = key
        self.closed = False
        self.way = AH(device.domain, attr=device.way_to(address))

    def close(self):
        self.way.close()
        self.closed = True


class QueuePair:
    """RC, to be connected, or with a queue key for datagrams."""

    def __init__(self, device, sends=256, send_pieces=1, receives=1, receive_pieces=1, inline_bytes=60, queue_key=None):
        self.device = device
        self.datagrams = queue_key is not None
        room = QPCap(
            max_send_wr=sends, max_send_sge=send_pieces, max_recv_wr=receives, max_recv_sge=receive_pieces, max_inline_data=inline_bytes
        )
        made = QPInitAttr(
            qp_type=e.IBV_QPT_UD if self.datagrams else e.IBV_QPT_RC, scq=device.completions, rcq=device.completions, cap=room, sq_sig_all=1
        )
        self.attributes = QPAttr(port_num=PORT)
        self.attributes.sq_psn = SEQUENCE_NUMBER
        if self.datagrams:
            self.attributes.qkey = queue_key
        else:
            self.attributes.qp_access_flags = REMOTE
        self.pair = QP(device.domain, made, self.attributes)  # to INIT, or ready to send

    def address(self):
        device = self.device
        return Address(self.pair.qp_num, SEQUENCE_NUMBER, device.link, 128 << device.mtu, device.lid, device.gid)

    def connect(self, peer):
        it = self.attributes
        it.path_mtu = min(self.device.mtu, (peer.mtu_bytes // 128).bit_length() - 1)
        it.dest_qp_num, it.rq_psn = peer.queue_pair_number, peer.packet_sequence_number
        it.max_dest_rd_atomic = it.max_rd_atomic = READS
        it.min_rnr_timer, it.timeout, it.retry_cnt, it.rnr_retry = RNR_TIMER, TIMEOUT, 6, 7
        it.ah_attr = self.device.way_to(peer)
        self.pair.to_rts(it)

    def fail(self):
        self.pair.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def close(self):
        self.pair.close()

    # ---- Ops ----

    @staticmethod
    def list_of(pieces):
        """At least one, since pyverbs wants that."""
        return [SGE(piece.region.buf + piece.offset, piece.bytes, piece.region.lkey) for piece in pieces] or [SGE(0, 0, 0)]

    def receive(self, number, pieces):
        entries = self.list_of(pieces)
        self.pair.post_recv(RecvWR(wr_id=number, num_sge=len(entries), sg=entries))

    def post(self, number, opcode, pieces, remote=0, key=0, immediate=0, compare=0, operand=0, inline=False, fence=False, solicited=False,
             target=None):  # fmt: skip
        entries = self.list_of(pieces)
        flags = (e.IBV_SEND_INLINE if inline else 0) | (e.IBV_SEND_FENCE if fence else 0) | (e.IBV_SEND_SOLICITED if solicited else 0)
        op = SendWR(wr_id=number, opcode=OPCODES[opcode], num_sge=len(entries), sg=entries, imm_data=socket.htonl(immediate),
                    send_flags=e.IBV_SEND_SIGNALED | flags)  # fmt: skip
        if self.datagrams:
            op.set_wr_ud(target.way, target.address.queue_pair_number, target.key)
        elif opcode == "compare_swap":
            op.set_wr_atomic(key, remote, compare, operand)
        elif opcode == "fetch_add":
            op.set_wr_atomic(key, remote, operand)
        elif not opcode.startswith("send"):
            op.set_wr_rdma(key, remote)
        self.pair.post_send(op)
