"""dynamic.py: the links of scenarios of DCIs and DCTs."""


def link_dynamic(play, link):
    """Opens a DCI at the client; at the server an SRQ, whose name is that of the link with _receives, and a DCT; and at the client a
    target for that, which has the server's name. A client of several links of a name has one DCI, and a server one DCT, whose key others
    know as $PEER.NAME.access_key."""
    client, server, name = link["client"], link["server"], link["as"]
    key = f"{server}.{name}.access_key"
    if key not in play.values:
        options = dict(link.get("server_options", {}))
        play.values[key] = str(options.pop("access_key", 0))
        shared = f"{name}_receives"
        play.step({"peer": server, "do": "queue_open", "with": {"name": shared, "receives": 16, **options}}, "")
        play.step({"peer": server, "do": "dct_open", "with": {"name": name, "shared": shared, "access_key": f"${key}"}}, "")
        play.learn_address(server, name)
    if f"{client}.{name}" not in play.values:
        play.step({"peer": client, "do": "dci_open", "with": {"name": name, **link.get("client_options", {})}}, "")
        play.values[f"{client}.{name}"] = "a DCI"
    words = {"name": server, "queue": name, "access_key": f"${key}", **play.address_of(server, name)}
    play.step({"peer": client, "do": "dc_target_open", "with": words}, "")
