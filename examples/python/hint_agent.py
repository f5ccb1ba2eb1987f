"""hint_agent.py NAME DEVICE0 DEVICE1: an agent that tells channels how to split their messages, by what else their rails carry.

It reads what the ports of the two devices have sent, and publishes a hint: what rail 0 should carry, so that both ports are
equally busy with all that goes through them. Channels with ChannelOptions(split="hint", hint=NAME) go by it, in any
language. A sender measures its own messages only. The agent sees the traffic of all programs, also of those that use one
rail alone. It is a pattern for agents that know more: of switches, or of jobs to come.

    python3 hint_agent.py /rails mlx5_0 mlx5_1
"""
import argparse
import os
import pathlib
import time

import copyrpc

WHOLE = 1024  # the parts in which shares are told
GAIN = 0.25  # how much of an imbalance a step takes away: half of it, if channels are all that the ports carry
QUIET_BYTES_PER_SECOND = 1e6  # below this there is nothing to balance


class Port:
    """A port's counters in sysfs. SYSFS_PATH replaces /sys, as for libibverbs."""

    def __init__(self, device: str, port: int) -> None:
        self._folder = pathlib.Path(os.environ.get("SYSFS_PATH", "/sys"), "class/infiniband", device, "ports", str(port))
        gigabits = (self._folder / "rate").read_text().split()[0]  # "100 Gb/sec (4X EDR)"
        self.bytes_per_second = float(gigabits) * 1e9 / 8

    def sent_bytes(self) -> int:
        return 4 * int((self._folder / "counters/port_xmit_data").read_text())  # it counts words of four bytes


def next_share(share: float, loads: "list[float]") -> float:
    """Moves the share of rail 0 toward where both ports have the same load. With less of the load than that in the hands of channels,
    it ends at 0 or WHOLE."""
    imbalance = (loads[1] - loads[0]) / (loads[0] + loads[1])
    return min(max(share + WHOLE * GAIN * imbalance, 0), WHOLE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tells channels how to split their messages, by what the ports of two devices carry.")
    parser.add_argument("name", help='the hint\'s name, as in "/rails"')
    parser.add_argument("devices", nargs=2, metavar="device", help="the devices of rail 0 and rail 1, as in mlx5_0")
    parser.add_argument("--port", type=int, default=1, help="their port (default: 1)")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two looks (default: 0.1)")
    options = parser.parse_args()
    ports = [Port(device, options.port) for device in options.devices]
    share = WHOLE * ports[0].bytes_per_second / (ports[0].bytes_per_second + ports[1].bytes_per_second)
    with copyrpc.ShareHint(options.name) as hint:
        before, then = [port.sent_bytes() for port in ports], time.monotonic()
        while True:
            time.sleep(options.interval)
            sent, now = [port.sent_bytes() for port in ports], time.monotonic()
            rates = [(after - start) / (now - then) for after, start in zip(sent, before)]
            before, then = sent, now
            if sum(rates) < QUIET_BYTES_PER_SECOND:
                continue  # what was published is over soon: channels measure by themselves
            share = next_share(share, [rate / port.bytes_per_second for rate, port in zip(rates, ports)])
            hint.publish(round(share), lifetime=10 * options.interval)
            print(f"{round(share)}/{WHOLE} over {options.devices[0]}: they send {rates[0] / 1e6:.1f} and {rates[1] / 1e6:.1f} MB/s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
