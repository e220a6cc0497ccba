"""Tools for a loop of your own: a step or an effect that a model can be told of.

from holdfast.ext.tools import Tools, tool

@tool
async def mail(to: str, text: str) -> str:
    return await mailer.send(to, text)

tools = Tools(mail)
answer = await model.chat.completions.create(model="any", messages=messages, tools=tools.openai())
result = await tools.call(call.function.name, call.function.arguments)
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import to_jsonable_python

import holdfast as hf

P = ParamSpec("P")
R = TypeVar("R")


class Tool(Generic[P, R]):
    """A function that a model may call: awaited like the function, recorded like a step or an effect.

    `schema` is the JSON schema of its arguments, `durable` the step or effect that it is.
    """

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R]], kind: str, options: dict[str, Any]) -> None:
        made = (hf.step if kind == "step" else hf.effect)(**options)(fn)
        self.durable: Any = made
        self.name: str = options.get("name") or fn.__name__
        self.description = inspect.cleandoc(fn.__doc__ or "")
        hints = typing.get_type_hints(fn, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints.get(name, Any), ... if each.default is each.empty else each.default)
            for name, each in inspect.signature(fn).parameters.items()
        }
        self._arguments: type[BaseModel] = create_model(self.name, **fields)
        self.schema: dict[str, Any] = {**self._arguments.model_json_schema(), "additionalProperties": False}

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self.durable(*args, **kwargs)
        return result

    async def called(self, arguments: str) -> str:
        """Call it with what a model wrote: what the model is told, which may be what is wrong with the arguments.

        Example: `text = await mail.called('{"to": "ada", "text": "hi"}')`
        """
        try:
            given = self._arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
            return f"These arguments do not fit {self.name}: {problems}"
        result = await self.durable(**{name: getattr(given, name) for name in type(given).model_fields})
        return result if isinstance(result, str) else json.dumps(to_jsonable_python(result))


@overload
def tool(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
@overload
def tool(
    *, kind: Literal["step", "effect"] = "effect", **options: Any
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Tool[P, R]]: ...
def tool(fn: Any = None, /, *, kind: str = "effect", **options: Any) -> Any:
    """Make a function a tool: an effect, or with `kind="step"` a step; `options` are those of `hf.effect` or `hf.step`.

    What a crash leaves of it is what it leaves of an effect: answered from the journal, or in doubt.

    Example:
        @tool(kind="step", retries=3)
        async def search(query: str) -> list[str]: ...
    """
    if kind not in ("step", "effect"):
        raise hf.UsageError(f'A tool is a "step" or an "effect"; got {kind!r}.')

    def made(fn: Callable[..., Coroutine[Any, Any, Any]]) -> Tool[..., Any]:
        if not inspect.iscoroutinefunction(fn):
            raise hf.UsageError(f"@tool takes an async function; {getattr(fn, '__name__', fn)!r} is not one.")
        return Tool(fn, kind, options)

    return made if fn is None else made(fn)


class Tools:
    """The tools of a loop, by name.

    Example: `tools = Tools(mail, search)`
    """

    def __init__(self, *tools: Tool[..., Any]) -> None:
        self._tools = {each.name: each for each in tools}
        if len(self._tools) < len(tools):
            raise hf.UsageError(f"Two tools have the same name: {sorted(each.name for each in tools)}.")

    def openai(self) -> list[dict[str, Any]]:
        """As OpenAI's chat completions take them.

        Example: `create(model="any", messages=messages, tools=tools.openai())`
        """
        return [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": each.schema},
            }
            for each in self._tools.values()
        ]

    def anthropic(self) -> list[dict[str, Any]]:
        """As Anthropic's messages take them.

        Example: `create(model="any", messages=messages, tools=tools.anthropic())`
        """
        return [
            {"name": each.name, "description": each.description, "input_schema": each.schema}
            for each in self._tools.values()
        ]

    async def call(self, name: str, arguments: str | dict[str, Any]) -> str:
        """What the model is told of its call: the result, or what is wrong with it.

        Example: `text = await tools.call(call.function.name, call.function.arguments)`
        """
        found = self._tools.get(name)
        if found is None:
            return f"There is no tool {name}; there are {', '.join(sorted(self._tools))}."
        return await found.called(arguments if isinstance(arguments, str) else json.dumps(arguments))
