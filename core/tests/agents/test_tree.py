"""Agents inside agents, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from lagent.agents import Agent, AgentDict, AgentList, Sequential
from lagent.errors import ConfigurationError


class Team(Agent):
    def __init__(self) -> None:
        self.lead = Agent(name="lead")  # before super().__init__, as lagent's own agents do
        super().__init__()
        self.members = AgentList([Agent(name="one"), Agent(name="two")])
        self.experts = AgentDict({"law": Agent(name="law")})


def paths(agent: Agent) -> list[str]:
    return [path for path, _ in agent.named_agents()]


def test_assigned_agents_become_children() -> None:
    team = Team()
    assert paths(team) == ["", "lead", "members", "members.0", "members.1", "experts", "experts.law"]
    assert [child.name for child in team.children()] == ["lead", None, None]
    assert team.find_agent("members.1").name == "two"
    team.lead = None
    assert "lead" not in paths(team)
    team.lead = Agent(name="new")
    del team.lead
    assert "lead" not in paths(team)
    team.add_agent("extra", Agent(name="extra"))
    assert team.extra.name == "extra"


def test_repr_shows_the_tree() -> None:
    assert repr(Team()) == (
        "Team(name='Team')(\n"
        "  (lead): Agent(name='lead')\n"
        "  (members): AgentList(\n"
        "    (0): Agent(name='one')\n"
        "    (1): Agent(name='two')\n"
        "  )\n"
        "  (experts): AgentDict(\n"
        "    (law): Agent(name='law')\n"
        "  )\n"
        ")"
    )
    assert repr(AgentList()) == "AgentList()"


def test_apply_goes_children_first_and_gives_the_agent() -> None:
    seen: list[Any] = []
    team = Team()
    assert team.apply(lambda agent: seen.append(agent.name)) is team
    assert seen == ["lead", "one", "two", None, "law", None, "Team"]


def test_a_shared_child_is_met_once_and_belongs_to_the_first() -> None:
    shared = Agent(name="shared")
    first, second = Sequential(shared, name="first"), Sequential(shared, name="second")
    both = Sequential(first, second)
    assert paths(both) == ["", "0", "0.0", "1"]
    assert shared.full_name == "Sequential.0.0"


@pytest.mark.parametrize("name", ["", "a.b", 3, None])
def test_names_of_children(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="the name of a child agent must be a string"):
        Agent().add_agent(name, Agent())


def test_children_do_not_shadow_what_an_agent_has() -> None:
    agent = Agent()
    with pytest.raises(ConfigurationError, match="has a member of that name"):
        agent.forward = Agent()
    with pytest.raises(ConfigurationError, match="has an attribute of that name"):
        agent.add_agent("memory", Agent())
    with pytest.raises(ConfigurationError, match="is a str, not an Agent"):
        agent.add_agent("child", "no agent")
    assert paths(agent) == [""]


class TestContainers:
    def test_a_list_follows_its_changes(self) -> None:
        a, b, c = (Agent(name=name) for name in "abc")
        agents = AgentList([a, b])
        agents.append(c)
        agents.reverse()
        agents[0] = a
        agents.insert(1, c)
        assert [agent.name for agent in agents] == ["a", "c", "b", "a"]
        assert [agents.find_agent(str(i)) for i in range(4)] == list(agents)
        agents.pop()
        del agents[0]
        agents += [a]
        assert list(agents._agents.values()) == list(agents) == [c, b, a]
        agents.clear()
        assert paths(agents) == [""]

    def test_a_dict_follows_its_changes(self) -> None:
        a, b = Agent(name="a"), Agent(name="b")
        agents = AgentDict({"x": a})
        agents["y"] = b
        agents.update(z=a)
        assert agents.setdefault("y", a) is b
        assert list(agents._agents) == ["x", "y", "z"]
        agents.pop("x")
        del agents["z"]
        assert list(agents._agents) == list(agents) == ["y"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda agents: agents.append("x"),
            lambda agents: agents.extend([Agent(), 3]),
            lambda agents: agents.__setitem__(0, None),
            lambda agents: agents.insert(0, object()),
        ],
    )
    def test_what_is_no_agent_changes_nothing(self, change: Any) -> None:
        agents = AgentList([Agent(name="a")])
        with pytest.raises(ConfigurationError):
            change(agents)
        assert [agent.name for agent in agents] == ["a"]
        assert paths(agents) == ["", "0"]
        with pytest.raises(IndexError):
            agents.pop(7)
        assert paths(agents) == ["", "0"]

    def test_nor_does_a_name_that_is_none(self) -> None:
        agents = AgentDict({"x": Agent()})
        for name in ("a.b", "", 3):
            with pytest.raises(ConfigurationError):
                agents[name] = Agent()
        assert list(agents) == list(agents._agents) == ["x"]
        with pytest.raises(ConfigurationError):
            AgentList(["x"])
