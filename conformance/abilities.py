"""abilities.py: what runners say that they can do, and what a scenario needs that they cannot."""
import json
from pathlib import Path

from needs import needs_of

HERE = Path(__file__).resolve().parent
# What is no matter of verbs and their members; docs/conformance.md says what each means.
CAPABILITIES = ("handles", "strict_regions", "room_events", "early_calls", "early_cancel", "any_place", "busy_rooms")
FORM = ":"  # between a language and one of its forms


def base(language):
    """The runner of a language, or of a form of one."""
    return language.partition(FORM)[0]


class Abilities:
    """Of all runners that are asked for. `outside` are the names of those that others have written."""

    def __init__(self, hellos, lines, outside):
        self.hellos = hellos
        self.lines = lines
        self.outside = set(outside)
        self.allowed = json.loads((HERE / "lacks.json").read_text())
        self.needs = {}

    def lacks_of(self, name):
        """Verbs, members of verbs, and capabilities that a runner does not have."""
        hello = self.hellos[name]
        everything = {*self.lines.commands, *CAPABILITIES}
        return (everything - {*hello["verbs"], *hello["capabilities"]}) | set(hello["lacks"])

    def wrong(self):
        """What our own runners lack and must not, what they have though lacks.json does not know it, and what nobody knows."""
        wrong = []
        for name in self.hellos:
            words = {verb: schema["properties"] for verb, schema in self.lines.commands.items()}
            known = {*words, *CAPABILITIES, *(f"{verb}.{member}" for verb in words for member in words[verb])}
            hello = self.hellos[name]
            said = {*hello["verbs"], *hello["capabilities"], *hello["lacks"], *(need for lacks in hello["forms"].values() for need in lacks)}
            wrong += [f"{name} says {word} in its hello: there is none" for word in sorted(said - known)]
            if name in self.allowed:
                lacks = self.lacks_of(name)
                wrong += [f"{name} lacks {word}: lacks.json does not allow that" for word in sorted(lacks - set(self.allowed[name]))]
                wrong += [f"{name} has {word}: lacks.json says that it lacks it" for word in sorted(set(self.allowed[name]) - lacks)]
        return wrong

    def forms(self, languages):
        """The other ways in which these do calls, as languages."""
        return [f"{name}{FORM}{form}" for name in languages for form in self.hellos.get(name, {}).get("forms", {})]

    def scenario_needs(self, scenario):
        if scenario["name"] not in self.needs:
            self.needs[scenario["name"]] = needs_of(scenario)
        return self.needs[scenario["name"]]

    def lacking(self, scenario, client, server):
        """Why a scenario cannot run with these, or ""."""
        for side, language in (("client", client), ("server", server)):
            name, _, form = language.partition(FORM)
            if name not in self.hellos:
                continue
            needs = self.scenario_needs(scenario).get(side, set()) | set(scenario.get("requires", {}).get("capabilities", []))
            lacks = self.lacks_of(name) | set(self.hellos[name]["forms"].get(form, []))
            missing = sorted(needs & lacks)
            if missing:
                why = self.allowed.get(name, {}).get(missing[0], "")
                return f"{'the outside runner ' if name in self.outside else ''}{language} lacks {missing[0]}{': ' * bool(why)}{why}"
        return ""
