"""What an agent remembers, in the process and in a store."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.agents import Agent, Sequential
from lagent.aggregators import DefaultAggregator
from lagent.errors import StateError, StoreError
from lagent.memory import Memory, MemoryManager, MemoryStore, StoredMemory, StoredMessages
from lagent.schema import AgentMessage, AgentStatusCode
from lagent_echo import EchoModel


def contents(memory: Any) -> list[Any]:
    return [m.content for m in memory.get_memory()]


class DictStore(MemoryStore):
    """A store in a dict, as JSON text; fails when told to."""

    def __init__(self) -> None:
        self.rows: dict[Any, list[str]] = {}
        self.epochs: dict[Any, int] = {}
        self.reads: list[int] = []
        self.broken = False
        self.lock = threading.Lock()

    def read(self, agent: str, session_id: Any, after: int = 0, epoch: int | None = None) -> StoredMessages:
        key = (agent, type(session_id), session_id)
        current = self.epochs.get(key, 0)
        start = after if epoch == current else 0
        rows = self.rows.get(key, [])[start:]
        self.reads.append(len(rows))
        return StoredMessages(current, start, [json.loads(row) for row in rows])

    def append(self, agent: str, session_id: Any, messages: Sequence[dict[str, Any]]) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        with self.lock:
            self.rows.setdefault((agent, type(session_id), session_id), []).extend(map(json.dumps, messages))

    def replace(self, agent: str, session_id: Any, messages: Sequence[dict[str, Any]]) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        key = (agent, type(session_id), session_id)
        self.rows[key] = list(map(json.dumps, messages))
        self.epochs[key] = self.epochs.get(key, 0) + 1

    def delete(self, agent: str, session_id: Any) -> None:
        key = (agent, type(session_id), session_id)
        self.rows.pop(key, None)
        self.epochs[key] = self.epochs.get(key, 0) + 1

    def sessions(self, agent: str) -> list[Any]:
        return [session_id for name, _, session_id in self.rows if name == agent]


class AsyncDictStore(DictStore):
    async def read(self, *args: Any) -> Any:  # type: ignore[override]
        return super().read(*args)

    async def append(self, *args: Any) -> None:  # type: ignore[override]
        super().append(*args)

    async def replace(self, *args: Any) -> None:  # type: ignore[override]
        super().replace(*args)

    async def delete(self, *args: Any) -> None:  # type: ignore[override]
        super().delete(*args)

    async def sessions(self, *args: Any) -> Any:  # type: ignore[override]
        return super().sessions(*args)


@pytest.fixture(params=[Memory, lambda: StoredMemory(DictStore(), "a", "s")], ids=["process", "store"])
def memory(request: pytest.FixtureRequest) -> Any:
    return request.param()


class TestMemory:
    def test_add_takes_text_messages_data_lists_and_nothing(self, memory: Any) -> None:
        memory.add("a")
        memory.add(AgentMessage("b", sender="x"))
        memory.add([{"content": "c", "sender": "y"}, "d"])
        memory.add(None)
        memory.add(("e",))
        assert contents(memory) == ["a", "b", "c", "d", "e"]
        assert [m.sender for m in memory.get_memory()] == ["user", "x", "y", "user", "user"]
        with pytest.raises(StateError):
            memory.add(3)

    def test_get_memory(self) -> None:
        memory = Memory(recent_n=3)
        memory.add(list("abcde"))
        assert contents(memory) == ["c", "d", "e"]
        assert [m.content for m in memory.get_memory(recent_n=2)] == ["d", "e"]
        assert [m.content for m in memory.get_memory(2, lambda i, m: i == 1)] == ["e"]
        assert len(memory) == 5
        assert bool(Memory())

    @given(st.lists(st.integers(-6, 5), max_size=4))
    def test_delete_removes_what_stood_there_before(self, places: list[int]) -> None:
        memory = Memory()
        memory.add(list("abcdef"))
        memory.delete(places)
        gone = {"abcdef"[place] for place in places}
        assert contents(memory) == [c for c in "abcdef" if c not in gone]

    def test_delete_of_a_place_that_is_not_there_removes_nothing(self, memory: Any) -> None:
        memory.add(["a", "b"])
        for places in (2, -3, [0, 5]):
            with pytest.raises(IndexError, match="the memory holds 2"):
                memory.delete(places)
        assert contents(memory) == ["a", "b"]
        memory.delete(-1)
        assert contents(memory) == ["a"]

    def test_save_and_load(self, memory: Any) -> None:
        memory.add([AgentMessage("a", formatted={"x": (1, 2)}, stream_state=AgentStatusCode.CODING), "b"])
        saved = json.loads(json.dumps(memory.save()))
        other = Memory()
        other.add("before")
        other.load(saved, overwrite=False)
        assert contents(other) == ["before", "a", "b"]
        other.load(saved)
        assert other.get_memory()[0] == AgentMessage("a", formatted={"x": [1, 2]}, stream_state=AgentStatusCode.CODING)
        other.load(saved[1])
        assert contents(other) == ["b"]

    @pytest.mark.parametrize(
        ("wrong", "error", "message"),
        [
            ("text", TypeError, "a list or a mapping, not str"),
            ([{"content": "a"}, {"sender": "b"}], StateError, "message 1: a message needs a 'content'"),
            ([3], StateError, "must be a mapping, not int"),
            ([{"content": "a", "colour": 1}], StateError, "no field colour"),
            ([{"content": "a", "sender": 1}], StateError, "'sender' of a message must be a string"),
            ([{"content": "a", "stream_state": 99}], StateError, "'stream_state'"),
        ],
    )
    def test_load_of_what_is_no_message_changes_nothing(self, memory: Any, wrong: Any, error: Any, message: str) -> None:
        memory.add("kept")
        with pytest.raises(error, match=message):
            memory.load(wrong)
        assert contents(memory) == ["kept"]

    def test_transactions(self, memory: Any) -> None:
        memory.add(["a", "b"])
        memory.rollback()
        assert contents(memory) == ["a", "b"]
        memory.begin()
        memory.add("c")
        assert [m["content"] for m in memory.save()] == ["a", "b"]
        memory.rollback()
        assert contents(memory) == ["a", "b"]
        memory.begin()
        memory.delete(0)
        memory.add("c")
        memory.rollback()
        assert contents(memory) == ["a", "b"]
        memory.begin()
        memory.delete(0)
        memory.add("c")
        memory.commit()
        assert contents(memory) == ["b", "c"]

    def test_restore(self, memory: Any) -> None:
        memory.add("a")
        mark = memory.mark()
        memory.restore(mark)
        memory.add("b")
        memory.restore(mark)
        assert contents(memory) == ["a"]


class TestManager:
    def test_one_memory_a_session(self) -> None:
        manager = MemoryManager()
        assert manager.get(1) is None
        assert manager.get_memory(1) == []
        manager.add("a", session_id=1)
        manager.add("b", session_id="1")
        assert [m.content for m in manager.get_memory(1)] == ["a"]
        assert manager.sessions() == [1, "1"]
        manager.reset(1)
        manager.reset("never")
        assert manager.get_memory(1) == []
        assert [m.content for m in manager.get_memory("1")] == ["b"]
        assert isinstance(manager.create_instance(5), Memory)

    def test_configurations(self) -> None:
        assert MemoryManager({"type": Memory, "recent_n": 2}).open().recent_n == 2
        assert MemoryManager("memory").open().recent_n is None
        assert MemoryManager({"type": "lagent.memory.Memory"}).open(1).recent_n is None


@pytest.mark.parametrize("kind", [DictStore, AsyncDictStore])
class TestStoredMemory:
    def test_a_call_is_written_as_one_and_read_by_the_next_process(self, kind: Any, variant: Any) -> None:
        store = kind()
        agent = variant.cls("Agent")(variant.model(["one", "two"]), memory=store, name="a")
        variant.call(agent, "x", session_id="s")
        other = variant.cls("Agent")(variant.model(["three"]), memory=store, name="a")
        variant.call(other, "y", session_id="s")
        variant.call(agent, "z", session_id="s")
        assert [m.content for m in agent.memory.get_memory("s")] == ["x", "one", "y", "three", "z", "two"]
        assert [m["content"] for m in agent.llm.requests[-1].messages] == ["x", "one", "y", "three", "z"]
        assert other.memory.sessions() == ["s"]
        assert [m["content"] for m in variant.cls("Agent")(memory=store, name="a").state_dict("s")["memory"]][-1] == "two"

    def test_nothing_is_written_by_a_call_that_fails(self, kind: Any, variant: Any) -> None:
        store = kind()
        agent = variant.cls("Agent")(variant.model([RuntimeError]), memory=store)
        with pytest.raises(RuntimeError):
            variant.call(agent, "x")
        assert store.rows == {}

    def test_a_store_that_cannot_write_fails_the_call_and_loses_nothing(self, kind: Any, variant: Any) -> None:
        store = kind()
        agent = variant.cls("Agent")(variant.model(["one", "two", "three"]), memory=store)
        variant.call(agent, "x")
        store.broken = True
        with pytest.raises(StoreError, match="disk is full"):
            variant.call(agent, "y")
        with pytest.raises(StoreError):
            agent.memory.add("z")
        with pytest.raises(StoreError):
            agent.memory.open(0).delete(0)
        assert [m.content for m in agent.memory.get_memory()] == ["x", "one"]
        store.broken = False
        variant.call(agent, "w")
        assert [m.content for m in agent.memory.get_memory()] == ["x", "one", "w", "three"]

    def test_a_turn_reads_what_is_new(self, kind: Any) -> None:
        store = kind()
        agent = Agent(EchoModel(), memory=store)
        for _ in range(20):
            agent("x")
        assert max(store.reads) == 2

    def test_a_turn_converts_what_is_new(self, kind: Any) -> None:
        converted: list[int] = []

        class Counting(DefaultAggregator):
            def convert(self, message: Any, name: str, parser: Any) -> Any:
                converted.append(1)
                return super().convert(message, name, parser)

        agent = Agent(EchoModel(), memory=kind(), aggregator=Counting())
        for _ in range(20):
            agent("x")
        assert len(converted) == 20 * 2 - 1

    def test_deleting_elsewhere_is_seen(self, kind: Any) -> None:
        store = kind()
        agent, other = (Agent(EchoModel(), memory=store, name="a") for _ in range(2))
        agent("one")
        other.memory.open(0).delete([0, 1])
        agent("two")
        assert [m.content for m in agent.memory.get_memory()] == ["two", "two"]
        other.reset()
        agent("three")
        assert [m.content for m in agent.memory.get_memory()] == ["three", "three"]

    def test_writing_elsewhere_during_a_call_keeps_both_turns_whole(self, kind: Any) -> None:
        store = kind()
        other = Agent(EchoModel(), memory=store, name="a")
        agent = Agent(EchoModel(lambda messages: other("inner").content and "outer answer"), memory=store, name="a")
        agent("outer")
        agent.llm.answers = None
        agent("last")
        assert [m.content for m in agent.memory.get_memory()] == ["inner", "inner", "outer", "outer answer", "last", "last"]
        assert [m["content"] for m in agent.llm.requests[-1].messages] == ["inner", "inner", "outer", "outer answer", "last"]

    def test_agents_of_a_tree_do_not_share(self, kind: Any) -> None:
        store = kind()
        chain = Sequential(
            Agent(EchoModel(["a"]), memory=store), Agent(EchoModel(["b"]), memory=store), memory=store, name="root"
        )
        chain("x")
        assert {key[0] for key in store.rows} == {"root", "root.0", "root.1"}
        assert [m.content for m in chain[1].memory.get_memory()] == ["a", "b"]

    def test_closing_a_session_keeps_what_is_stored_and_reset_removes_it(self, kind: Any, variant: Any) -> None:
        store = kind()
        agent = variant.cls("Agent")(variant.model(), memory=store)
        variant.call(agent, "x", session_id="s")
        agent.close_session("s")
        assert agent.memory.get("s") is None
        assert [m.content for m in agent.memory.get_memory("s")] == ["x", "x"]
        agent.reset("s")
        assert agent.memory.get_memory("s") == []

    def test_load_and_atomic(self, kind: Any) -> None:
        store = kind()
        agent = Agent(EchoModel(), memory=store)
        agent("x")
        state = agent.state_dict()
        agent("y")
        agent.load_state_dict(state)
        assert Agent(memory=store).state_dict() == state
        with pytest.raises(ZeroDivisionError), agent.atomic():
            agent("z")
            raise ZeroDivisionError
        assert Agent(memory=store).state_dict() == state
