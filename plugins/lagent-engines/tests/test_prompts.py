"""Prompts extend each other token for token, at the cost of what is new, unless the chat template rewrites history."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagent.errors import ModelConfigurationError
from lagent.llms import INTERNLM2_META, LMTemplateParser
from lagent_engines import ChatTemplate, MetaTemplate, Prompts, Reply

from .conftest import TEMPLATES, tokenizer_of

EXTENDING = ["chatml", "hermes", "inst", "thoughtful", "counting"]
"""The templates that append what is new."""

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


class Conversation:
    """Drives :class:`Prompts` as a model does; what "the engine generates" are the tokens of a text, cut into as many as there can be."""

    def __init__(self, template: str, kind: str = "bytes") -> None:
        self.tokenizer = tokenizer_of(kind, template)
        self.template = ChatTemplate(self.tokenizer)
        self.prompts = Prompts(self.template, self.tokenizer)
        self.messages: list[Message] = []
        self.ids: list[int] = []
        self.generated: list[int] = []
        self.end = self.tokenizer.eos_token

    def ask(self, *messages: Message, **options: Any) -> Any:
        self.messages.extend(messages)
        prompt = self.prompts.make(self.messages, **options)
        self.prompt, self.ids = prompt, prompt.ids
        return prompt

    def answer(self, text: str, *, said: str | None = None, ended: bool = True, **fields: Any) -> None:
        """The engine generates ``said``, of which ``text`` and ``fields`` are made."""
        self.generated = self.in_characters((text if said is None else said) + (self.end if ended else ""))
        self.prompts.answered(self.prompt, Reply(self.generated, text, **fields))
        self.messages.append(assistant(text))

    def in_characters(self, text: str) -> list[int]:
        body, end = (text[: -len(self.end)], [self.tokenizer.eos_token_id]) if text.endswith(self.end) else (text, [])
        each = [self.tokenizer.encode(character, add_special_tokens=False) for character in body]
        return [token for tokens in each for token in tokens] + end

    def rendered(self, **options: Any) -> str:
        return self.template.render(self.messages, generate=True, **options)

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


words = st.text(alphabet="abc the fox ÄÖ 京🙂\n", max_size=12).map(lambda text: text.strip() or "x")


@pytest.mark.parametrize("template", EXTENDING)
@given(turns=st.lists(st.tuples(words, words, st.booleans()), min_size=2, max_size=6))
@settings(max_examples=25)
def test_a_prompt_begins_with_the_last_one_and_what_the_engine_generated(
    template: str, turns: list[tuple[str, str, bool]]
) -> None:
    conversation = Conversation(template)
    for question, answer, ended in turns:
        seen = [*conversation.ids, *conversation.generated]
        prompt = conversation.ask(user(question))
        assert prompt.ids[: len(seen)] == seen
        assert prompt.rewritten is None
        assert conversation.text(prompt.ids) == (conversation.rendered() if template != "inst" else conversation.text(prompt.ids))
        conversation.answer(answer, ended=ended)


@pytest.mark.parametrize("template", EXTENDING)
def test_prompts_extend_each_other_with_tokenizers_that_put_a_space_before_a_text(template: str) -> None:
    conversation = Conversation(template, "spaces")
    for turn in range(4):
        seen = [*conversation.ids, *conversation.generated]
        prompt = conversation.ask(user(f"question {turn} of the fox"))
        assert prompt.ids[: len(seen)] == seen
        conversation.answer("the fox")
        if turn:  # what is added is what tokenising the whole gives, no space more
            whole = conversation.tokenizer.encode(
                conversation.template.render(conversation.messages[:-1], generate=True), add_special_tokens=False
            )
            behind = prompt.ids[len(seen) :]
            assert whole[-len(behind) :] == behind


def test_a_turn_costs_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation("hermes")
    tokenised: list[int] = []
    rendered: list[int] = []
    encode, apply = conversation.tokenizer.encode, conversation.tokenizer.apply_chat_template

    def counting_encode(text: str, **options: Any) -> Any:
        tokenised.append(len(text))
        return encode(text, **options)

    def counting_apply(messages: Any, **options: Any) -> Any:
        rendered.append(len(messages))
        return apply(messages, **options)

    monkeypatch.setattr(conversation.tokenizer, "encode", counting_encode)
    monkeypatch.setattr(conversation.tokenizer, "apply_chat_template", counting_apply)
    costs = []
    for turn in range(100):
        tokenised.clear(), rendered.clear()
        conversation.ask(user(f"question {turn:03}"))
        costs.append((sum(tokenised), sum(rendered)))
        conversation.answer("the answer")
    assert len(set(costs[1:])) == 1, "a turn costs more as the conversation grows"
    assert costs[1][0] < 200


def test_tool_calls_stay_as_the_model_wrote_them() -> None:
    """The template writes them with spaces of its own, which would be other tokens."""
    conversation = Conversation("hermes")
    tools = [{"type": "function", "function": {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object"}}}]
    for turn in range(3):
        seen = [*conversation.ids, *conversation.generated]
        prompt = conversation.ask(user(f"look up {turn}"), tools=tools)
        assert prompt.ids[: len(seen)] == seen
        written = '<tool_call>\n{"name":"look_up",  "arguments":{"of":"the fox"}}\n</tool_call>'
        conversation.answer("", said=written, tool_calls=(("look_up", '{"of": "the fox"}'),))
        call = {"id": f"call{turn}", "type": "function", "function": {"name": "look_up", "arguments": '{"of": "the fox"}'}}
        conversation.messages[-1]["tool_calls"] = [call]
        seen = [*conversation.ids, *conversation.generated]
        prompt = conversation.ask({"role": "tool", "tool_call_id": f"call{turn}", "content": "42"}, tools=tools)
        assert prompt.ids[: len(seen)] == seen
        assert prompt.rewritten is None
        assert written in conversation.text(prompt.ids)
        assert conversation.text(prompt.ids).endswith("42\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
        conversation.answer("it is 42")


@pytest.mark.parametrize("template", ["chatml", "hermes", "counting"])
def test_an_answer_that_was_changed_is_rendered_anew(template: str) -> None:
    conversation = Conversation(template)
    conversation.ask(user("one"))
    conversation.answer("the fox")
    conversation.messages[-1] = assistant("the dog")
    before = list(conversation.ids)
    prompt = conversation.ask(user("two"))
    assert prompt.ids[: len(before)] == before
    assert conversation.text(prompt.ids) == conversation.rendered()


def test_an_answer_cut_by_a_stop_word_is_rendered_anew() -> None:
    conversation = Conversation("chatml")
    conversation.ask(user("one"))
    conversation.answer("the fox", said="the fox Observation:", ended=False, verbatim=False)
    prompt = conversation.ask(user("two"))
    assert conversation.text(prompt.ids) == conversation.rendered()


@pytest.mark.parametrize(
    ("template", "why"), [("forgetful", "changes earlier messages"), ("thoughtless", "unlike it lets the model begin")]
)
def test_a_template_that_drops_reasoning_is_reported(template: str, why: str) -> None:
    conversation = Conversation(template)
    conversation.ask(user("one"))
    conversation.answer("the fox", said="<think>\nwhich?\n</think>\n\nthe fox", reasoning="which?")
    prompt = conversation.ask(user("two"))
    assert why in (prompt.rewritten or "")
    assert conversation.text(prompt.ids) == conversation.rendered(), "what the template writes has to be what the model sees"


def test_reasoning_of_unfinished_tool_calls_stays_with_a_template_that_keeps_it_until_the_next_question() -> None:
    conversation = Conversation("forgetful")
    conversation.ask(user("one"))
    conversation.answer("the fox", said="<think>\nwhich?\n</think>\n\nthe fox", reasoning="which?")
    seen = [*conversation.ids, *conversation.generated]
    prompt = conversation.ask({"role": "tool", "content": "42"})
    assert prompt.ids[: len(seen)] == seen
    assert prompt.rewritten is None
    conversation.answer("the dog")
    prompt = conversation.ask(user("two"))
    assert "changes earlier messages" in (prompt.rewritten or "")
    assert "which?" not in conversation.text(prompt.ids)


def test_reasoning_stays_where_the_template_keeps_it() -> None:
    conversation = Conversation("thoughtful")
    for turn in range(3):
        seen = [*conversation.ids, *conversation.generated]
        prompt = conversation.ask(user(f"question {turn}"))
        assert (prompt.ids[: len(seen)], prompt.rewritten) == (seen, None)
        conversation.answer("the fox", said="<think>\n which one \n</think>\n\nthe fox", reasoning="which one")


def test_reasoning_in_the_text_that_the_template_cuts_off_is_reported() -> None:
    template = TEMPLATES["chatml"].replace("(m.content or '')", "m.content.split('</think>')|last")
    tokenizer = tokenizer_of("bytes", "chatml")
    prompts = Prompts(ChatTemplate(tokenizer, template), tokenizer)
    messages = [user("one")]
    prompt = prompts.make(messages)
    text = "<think>which?</think>the fox"
    prompts.answered(prompt, Reply(tokenizer.encode(text + "<|im_end|>"), text))
    prompt = prompts.make([*messages, assistant(text), user("two")])
    assert "leaves out parts of earlier answers" in (prompt.rewritten or "")
    assert "which?" not in tokenizer.decode(prompt.ids)


def test_sessions_and_agents_are_kept_apart() -> None:
    tokenizer = tokenizer_of("bytes", "chatml")
    prompts = Prompts(ChatTemplate(tokenizer), tokenizer)
    roles = [{"role": "system", "content": "one"}, {"role": "system", "content": "two"}]
    talks: dict[Any, list[Message]] = {(session, agent): [roles[agent]] for session in ("a", "b") for agent in (0, 1)}
    seen: dict[Any, list[int]] = {}
    for turn in range(3):
        for (session, agent), messages in talks.items():
            messages.append(user(f"question {turn} for {agent} in {session}"))
            prompt = prompts.make(messages, session_id=session)
            assert prompt.ids[: len(seen.get((session, agent), []))] == seen.get((session, agent), [])
            generated = tokenizer.encode("t") + tokenizer.encode("he fox<|im_end|>")
            prompts.answered(prompt, Reply(generated, "the fox"), session)
            messages.append(assistant("the fox"))
            seen[session, agent] = [*prompt.ids, *generated]
    prompts.forget("a")
    for (session, agent), messages in talks.items():
        ids = prompts.make([*messages, user("on")], session_id=session).ids
        kept = ids[: len(seen[session, agent])] == seen[session, agent]
        assert kept == (session == "b"), "a session that was closed is still known, or one that was not is forgotten"


def test_other_tools_or_options_are_another_conversation() -> None:
    conversation = Conversation("hermes")
    conversation.ask(user("one"))
    conversation.answer("the fox")
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    prompt = conversation.ask(user("two"), tools=tools)
    assert "look_up" in conversation.text(prompt.ids)


def test_the_same_request_again_gives_the_same_prompt() -> None:
    conversation = Conversation("chatml")
    first = conversation.ask(user("one"))
    conversation.answer("the fox")
    del conversation.messages[-1]
    again = conversation.ask()
    assert again.ids == first.ids


@pytest.mark.parametrize("generate", [False, True])
def test_meta_template(generate: bool) -> None:
    meta = [dict(item) for item in INTERNLM2_META]
    if generate:
        meta[2]["generate"] = True
    tokenizer = tokenizer_of("bytes", "chatml")
    prompts = Prompts(MetaTemplate(LMTemplateParser(meta)), tokenizer)
    messages = [{"role": "system", "content": "Be brief."}, user("one")]
    seen: list[int] = []
    for turn in range(3):
        prompt = prompts.make(messages)
        assert prompt.ids[: len(seen)] == seen
        assert tokenizer.decode(prompt.ids) == LMTemplateParser(meta)(messages)
        generated = [*tokenizer.encode("the "), *tokenizer.encode("fox"), tokenizer.eos_token_id]
        prompts.answered(prompt, Reply(generated, "the fox"))
        messages = [*messages, assistant("the fox"), user(f"question {turn}")]
        seen = [*prompt.ids, *generated]


@functools.cache
def template_of(name: str) -> ChatTemplate:
    return ChatTemplate(tokenizer_of("bytes", name))


@pytest.mark.parametrize(
    ("template", "roles"),
    [
        ("chatml", {"system", "user", "assistant", "tool", "environment"}),
        ("hermes", {"system", "user", "assistant", "tool"}),
        ("inst", {"user", "assistant"}),
    ],
)
def test_roles_that_a_template_refuses_or_leaves_out_are_known(template: str, roles: set[str]) -> None:
    assert {role for role in ("system", "user", "assistant", "tool", "environment") if template_of(template).knows(role)} == roles


def test_templates_that_show_tools_are_known() -> None:
    assert [name for name in TEMPLATES if template_of(name).knows_tools()] == ["hermes"]


def test_templates_that_show_images_are_known() -> None:
    assert [name for name in TEMPLATES if template_of(name).knows_images()] == ["seeing"]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    text = {"type": "text", "text": "Which colour?"}
    assert "<image>Which colour?" in template_of("seeing").render([user([image, text])], generate=True)  # type: ignore[arg-type]
    assert "user\nWhich colour?\nThis one?<" in template_of("seeing").render(
        [user([text, {"type": "text", "text": "This one?"}])],  # type: ignore[arg-type]
        generate=True,
    )


def test_what_a_template_refuses_is_a_clear_error() -> None:
    with pytest.raises(ModelConfigurationError, match="refuses the conversation: only user and assistant roles"):
        template_of("inst").render([{"role": "tool", "content": "42"}], generate=True)
    plain = tokenizer_of("bytes", "chatml").__class__(tokenizer_object=tokenizer_of("bytes", "chatml").backend_tokenizer)
    with pytest.raises(ModelConfigurationError, match="the model has no chat template: pass chat_template="):
        ChatTemplate(plain).render([user("?")], generate=True)
