"""needs.py: which verbs, and which members of them, each side of a scenario has to know: `call`, `call.after`."""
ADDRESS = ("queue_pair_number", "packet_sequence_number", "link", "mtu_bytes", "lid", "gid")
JOINS = {"blob": ("queue_join",), "addresses": ("queue_address", "queue_join_address")}


class Needs(dict):
    """By side, `client` and `server`."""

    def add(self, peer, verb, members=()):
        self.setdefault(peer.rstrip("0123456789"), set()).update([verb, *(f"{verb}.{member}" for member in members)])


def needs_of(scenario):
    needs = Needs()
    for peer, how in scenario["peers"].items():
        needs.add(peer, "reset")
        if how.get("open", True):
            needs.add(peer, "open", how["open"] if isinstance(how.get("open"), dict) else ())
        if how.get("regions"):
            needs.add(peer, "register")
            needs.add(peer, "region")
    for link in scenario.get("links", []):
        need_link(needs, link)
    need_steps(needs, scenario["steps"])
    return needs


def need_link(needs, link):
    client, server, way = link["client"], link["server"], link.get("queue")
    of_client, of_server = link.get("client_options", {}), link.get("server_options", {})
    if "tags" in link:
        needs.add(server, "tags_open", link["tags"])
    if way == "dynamic":
        needs.add(server, "queue_open")
        needs.add(server, "dct_open")
        needs.add(server, "queue_address")
        needs.add(client, "dci_open", of_client)
        needs.add(client, "dc_target_open")
    elif way == "datagrams":
        for peer, options in ((client, of_client), (server, of_server)):
            needs.add(peer, "datagrams_open", options)
            needs.add(peer, "queue_address")
            needs.add(peer, "target_open")
    elif way in JOINS:
        for peer, options in ((client, of_client), (server, of_server)):
            needs.add(peer, "queue_blob", options)
            for verb in JOINS[way]:
                needs.add(peer, verb)
    else:
        kind = "channel_" if link.get("channel") else "queue_" if way else ""
        needs.add(server, "listen", [f"{kind[:-1]}s"] if kind else [])
        needs.add(server, f"{kind}accept", of_server)
        needs.add(client, f"{kind}connect", of_client)


def need_steps(needs, steps):
    for step in steps:
        need_steps(needs, step.get("steps", []))
        if "do" in step:
            needs.add(step["peer"], step["do"], step.get("with", {}))
        if "hears" in step:
            needs.add(step["peer"], "call")
            needs.add(step["hears"], "reply")
