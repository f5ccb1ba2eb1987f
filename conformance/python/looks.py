"""looks.py: the verbs about devices, the log, errors, the registration cache and dma-bufs."""
import asyncio
import mmap
import os

from words import ACCESSES, ERRORS, picked, status_of

import copyrpc

DRIVERS = ((1, "verbs"), (2, "mlx5"))  # by CRPC_DRIVER_*
CACHE = "registrations registrations_max bytes bytes_max hits misses evictions"


class Looks:
    """What a Runner has of them. `dmabufs` has the memory of regions that are dma-bufs, by their handles."""

    def do_device(self, device):
        ports = [port for port in copyrpc.devices() if port.name == device]
        drivers = [name for bit, name in DRIVERS if ports and ports[0].drivers >> bit & 1]
        return {"ports": len(ports), "active": any(port.active for port in ports), "drivers": drivers}

    def do_log(self):
        return {"entries": len(self.context.log())}

    async def do_wait(self, timeout):
        woken = await asyncio.get_running_loop().run_in_executor(None, self.context.wait, timeout)
        return {"done": "CRPC_OK" if woken else "CRPC_E_TIMEOUT"}

    def do_status_text(self, status):
        return {"explained": bool(str(ERRORS[status]))}

    def do_error(self, endpoint=None, channel=None, queue=None):
        error = (endpoint or channel or queue).error
        return {"reason": "CRPC_OK" if error is None else status_of(error), "explained": bool(str(error or ""))}

    def do_cache_info(self):
        return picked(self.context.cache_info(), CACHE)

    def do_cache_forget(self):
        return {"forgotten": self.context.forget()}

    def do_register_dmabuf(self, name, length, access, offset=0):
        """A file stands for the memory of another device: simnic takes any that can be mapped."""
        descriptor = os.memfd_create("dmabuf")
        try:
            os.truncate(descriptor, offset + length)
            memory = mmap.mmap(descriptor, offset + length)
            words = [word for bit, word in enumerate(ACCESSES) if access >> bit & 1]
            region = self.things[name] = self.context.register_dmabuf(descriptor, length, *words, offset=offset, address=offset or mmap.PAGESIZE)
            self.dmabufs[region.bits] = memoryview(memory)[offset:]
        finally:
            os.close(descriptor)
