"""arenas.py: how a peer of scenarios hears what the other side has lent and given back."""
METHOD = 65535  # and ids from here on, which no scenario has
FIRST_ID = 4000000000


def hear(play, step):
    """Has the peer call the other side, which then answers: by the answer it has heard of all that the other had said before."""
    peer, other, endpoint = step["peer"], step["hears"], step["endpoint"]
    number = FIRST_ID + len(play.calls)
    play.step({"peer": peer, "do": "call", "with": {"endpoint": endpoint, "id": number, "method": METHOD}}, "")
    play.step({"peer": other, "expect": [{"event": "request", "endpoint": endpoint, "method": METHOD, "payload": "empty", "as": "heard"}]}, "")
    play.step({"peer": other, "do": "reply", "with": {"request": "$heard"}}, "")
    play.step({"peer": peer, "expect": [{"event": "response", "id": number, "payload": "empty"}]}, "")
