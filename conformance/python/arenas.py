"""arenas.py: the verbs of arenas, and in which place a payload lies."""


class Arenas:
    """What a Runner has of them. `arenas` has, by the names of endpoints, the memory that was lent and how long a place of it is."""

    def do_lend(self, endpoint, region, place_bytes, places, offset=0):
        arena = region[offset : offset + places * place_bytes]
        endpoint.lend(arena, place_bytes)
        self.arenas[endpoint.user_data] = arena, place_bytes

    def do_give_back(self, request=None, endpoint=None, place=0):
        if request is not None:
            request.release()
        else:
            arena, place_bytes = self.arenas[endpoint.user_data]
            endpoint.give_back(arena.address + place * place_bytes)

    def placed(self, request):
        """The number of its place; -1: it lies in none."""
        place = getattr(request, "place", None)
        if place is None:
            return -1
        arena, place_bytes = self.arenas[request.endpoint.user_data]
        return (place.address - arena.address) // place_bytes
