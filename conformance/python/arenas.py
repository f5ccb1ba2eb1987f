"""arenas.py: the verbs of arenas, and in which place a payload lies."""
import copyrpc


class Arenas:
    """What a Runner has of them. `arenas` has, by the names of endpoints, where the first place begins and how long each is."""

    def do_lend(self, endpoint, region, place_bytes, places, offset=0):
        endpoint.lend(region[offset : offset + places * place_bytes], place_bytes)
        self.arenas[endpoint.user_data] = region.address + offset, place_bytes

    def do_give_back(self, request=None, endpoint=None, place=0):
        if request is not None:
            request.release()
        else:
            first, place_bytes = self.arenas[endpoint.user_data]
            endpoint.give_back(first + place * place_bytes)

    def placed(self, request):
        """The number of its place; -1: it lies in none."""
        if not isinstance(request, copyrpc.PlacedRequest):
            return -1
        first, place_bytes = self.arenas[request.endpoint.user_data]
        return (request.place.address - first) // place_bytes
