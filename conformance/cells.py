"""cells.py: which languages, and which of their forms, a scenario runs in."""
from abilities import base

LANGUAGES = ["c", "python", "go"]
# Programs without the library, each of which is the peer of each language in some scenarios: in C with verbs and librdmacm, and in Python
# with pyverbs.
FOREIGN = ["foreign", "pyverbs"]


class Dealer:
    """Deals cells: the (client, server) languages that a scenario runs in; "" where it has no such peer."""

    def __init__(self, options, abilities):
        self.abilities = abilities
        self.lacking = set(options.lacking)
        self.pairs = options.pairs
        asked = options.languages.split(",")
        self.own = [language for language in asked if language not in FOREIGN]
        self.foreign = [language for language in asked if language in FOREIGN]
        self.forms = abilities.forms(self.own) if options.forms else []
        # Where nobody says which languages, those of this repository are there as peers of the runners from outside.
        self.outside = set(options.outside) if options.outside and not options.languages_given else None

    def cells(self, scenario, turn):
        cells = self.some(scenario, turn)
        return [cell for cell in cells if self.outside is None or self.outside.intersection(map(base, cell))]

    def some(self, scenario, turn):
        """Who is lacking has no turn."""
        strange = [cells for program in self.foreign for cells in foreign_cells(scenario, self.own, program)]
        if self.pairs in ("once", "turns"):
            cells = own_cells(scenario, self.own)
            fit = [cell for cell in cells if self.fits(scenario, cell)] or cells
            each = [cell for cell in fit if "" in cell or (self.own.index(cell[0]) + turn) % len(self.own) == self.own.index(cell[1])]
            formed = self.form_cells(scenario, turn)
            if self.pairs == "once" and each:
                return each + [cells[turn % len(cells)] for cells in [*([formed] if formed else []), *strange]]
            fit += formed + [cell for cells in strange for cell in cells if not self.lacking.intersection(cell)]
            return [fit[turn % len(fit)]] if fit else []
        cells = own_cells(scenario, self.own)
        if self.pairs == "same":
            cells = [cell for cell in cells if len(set(cell) - {""}) == 1]
        return cells + self.form_cells(scenario, turn) + [cell for cells in strange for cell in cells]

    def fits(self, scenario, cell):
        return not self.abilities.lacking(scenario, *cell)

    def form_cells(self, scenario, turn):
        """Each form of a language once on each side, with languages that take turns on the other."""
        if not of_calls(self.abilities.scenario_needs(scenario)):
            return []
        sides = sides_of(scenario)
        cells = []
        for index, form in enumerate(self.forms):
            other = self.own[(turn + index) % len(self.own)]
            pairs = [(form, other), (other, form)] if all(sides) else [(form, "") if sides[0] else ("", form)]
            cells += [cell for cell in pairs if self.fits(scenario, cell)]
        return cells


def of_calls(needs):
    """Whether a scenario has nothing but endpoints: what forms are for. They are about how calls are made and served."""
    words = {word for side in needs.values() for word in side}
    other = ("channel_", "queue_", "rail", "datagrams_", "tags_", "dci_", "dct_", "open.rails", "open.queues", "open.arrays", "open.initiators",
             "open.traffic_class", "listen.queues", "listen.channels", "grant", "open_grant", "transfer")
    return not any(word.startswith(other) for word in words) and words & {"connect", "blob", "listen"} != set()


def sides_of(scenario):
    return tuple(any(name.startswith(side) for name in scenario["peers"]) for side in ("client", "server"))


def own_cells(scenario, languages):
    if scenario.get("requires", {}).get("foreign"):
        return []
    clients, servers = sides_of(scenario)
    if not (clients and servers):
        return [(language, "") if clients else ("", language) for language in languages]
    return [(client, server) for client in languages for server in languages]


def foreign_cells(scenario, languages, program):
    """Those in which the foreign program is the client, and those in which it is the server."""
    able = scenario.get("foreign", []) if program != "pyverbs" or for_pyverbs(scenario) else []
    clients = [(program, language) for language in languages if "client" in able]
    servers = [(language, program) for language in languages if "server" in able]
    return [cells for cells in (clients, servers) if cells]


def for_pyverbs(scenario):
    """It has neither rdma_cm nor blobs, and knows its peer by addresses alone."""
    steps = [one for step in scenario["steps"] for one in step.get("steps", [step])]
    ways = {link.get("queue") for link in scenario.get("links", [])} | {step.get("do") for step in steps}
    return not ways & {"rdma_cm", "blob", "listen", "queue_connect", "queue_join"}
