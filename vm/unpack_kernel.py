"""unpack_kernel.py VMLINUZ OUT: takes the plain kernel out of a bzImage (Linux boot protocol, header at 0x1f1), which
QEMU starts directly, and faster."""
import lzma
import struct
import subprocess
import sys
from pathlib import Path

image = Path(sys.argv[1]).read_bytes()
setup_sectors = image[0x1F1] or 4
offset, length = struct.unpack_from("<II", image, 0x248)
begin = (setup_sectors + 1) * 512 + offset
payload = image[begin:begin + length]
if payload.startswith(b"\xfd7zXZ\0"):
    kernel = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
elif payload.startswith(b"\x28\xb5\x2f\xfd"):
    # The last four bytes are the unpacked length, not part of the frame.
    kernel = subprocess.run(["zstd", "-dc"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
elif payload.startswith(b"\x1f\x8b"):
    kernel = subprocess.run(["gzip", "-dcq"], input=payload, stdout=subprocess.PIPE).stdout
else:
    sys.exit("vm: the kernel's compression is not known")
if not kernel.startswith(b"\x7fELF"):
    sys.exit("vm: no ELF kernel in the image")
Path(sys.argv[2]).write_bytes(kernel)
