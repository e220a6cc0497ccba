"""Middleware for `create_agent` of LangChain: requests to models are steps, calls of tools effects.

    from holdfast.ext.langchain import Durability
    from holdfast.ext.langgraph import drive

    agent = create_agent(model, tools=[mail], middleware=[Durability()])

    @hf.agent
    async def bot(text: str) -> str:
        state = await drive(agent, {"messages": [{"role": "user", "content": text}]})
        return str(state["messages"][-1].text)

Keys: `LangGraph:1/3/tools/key:mail.call_7.1`. Put it last, so that what other middleware does is around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import BaseMessage, ToolMessage, message_to_dict, messages_from_dict
from langgraph.types import Command
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from holdfast import ext
from holdfast.errors import Unserialisable
from holdfast.ext.langgraph import call_once, in_graph


def _dump(value: Any) -> Any:
    """Messages with their kind, at any depth; the rest as what JSON has."""
    if isinstance(value, BaseMessage):
        return {"$message": to_jsonable_python(message_to_dict(value))}
    if isinstance(value, Mapping):
        return {str(key): _dump(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_dump(part) for part in value]
    return to_jsonable_python(value)


def _load(stored: Any) -> Any:
    if isinstance(stored, dict):
        if set(stored) == {"$message"}:
            return messages_from_dict([stored["$message"]])[0]
        return {key: _load(part) for key, part in stored.items()}
    return [_load(part) for part in stored] if isinstance(stored, list) else stored


def _dump_response(response: Any) -> Any:
    if isinstance(response, BaseMessage):
        response = ModelResponse(result=[response])
    return {"result": _dump(response.result), "structured": to_jsonable_python(response.structured_response)}


def _load_response(stored: Any) -> Any:
    return ModelResponse(result=_load(stored["result"]), structured_response=stored["structured"])


def _dump_result(result: Any) -> Any:
    if isinstance(result, Command):
        targets = result.goto if isinstance(result.goto, list | tuple) else [result.goto]
        if not all(isinstance(each, str) for each in targets) or result.resume is not None:
            raise Unserialisable("a Command that sends to nodes with a state of their own cannot be stored")
        return {"update": _dump(result.update), "goto": list(targets), "graph": result.graph}
    return {"message": _dump(result)}


def _load_result(stored: Any) -> Any:
    if "message" in stored:
        return _load(stored["message"])
    return Command(update=_load(stored["update"]), goto=stored["goto"], graph=stored["graph"])


_MODEL: Final = ext.Operation("model", codec=ext.Codec(_dump_response, _load_response), raises=(Exception,))


class Durability(AgentMiddleware[Any, Any, Any]):
    """What makes the model and the tools of an agent durable in a graph that `drive` runs; elsewhere it does nothing.

    `tools` says of tools by name what they are, if not effects: `{"search": "step", "ask": "inside"}`, or options of
    `ext.Operation`: `{"mail": {"verify": find_sent, "raises": (Refused,)}}`.

    Example: `create_agent(model, tools=[mail], middleware=[Durability(tools={"search": "step"})])`
    """

    def __init__(self, *, tools: Mapping[str, str | Mapping[str, Any]] | None = None) -> None:
        super().__init__()
        self._said = dict(tools or {})
        self._operations: dict[str, ext.Operation] = {}

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        if not in_graph():
            return await handler(request)
        shown = {"messages": len(request.messages)}
        response = await call_once(_MODEL, lambda: handler(request), name="model", shown=shown)
        schema = getattr(request.response_format, "schema", None)
        if response.structured_response is not None and isinstance(schema, type):
            response.structured_response = TypeAdapter(schema).validate_python(response.structured_response)
        return response

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        call = request.tool_call
        said = self._said.get(call["name"], "effect")
        if not in_graph() or said == "inside":
            return await handler(request)
        operation = self._operation(call["name"], said, call)
        name = f"{call['name']}.{call['id']}"
        result = await call_once(operation, lambda: handler(request), name=name, shown=call["args"])
        if isinstance(result, ToolMessage) and not result.tool_call_id:
            result.tool_call_id, result.name = call["id"], call["name"]  # what a person said became of it
        return result

    def _operation(self, name: str, said: Any, call: Any) -> ext.Operation:
        found = self._operations.get(name)
        if found is None:
            options = dict(said) if isinstance(said, Mapping) else {"kind": said}
            codec = ext.Codec(_dump_result, _load_result, _from_tool)
            found = ext.Operation(name, options.pop("kind", "effect"), codec=codec, **options)
            self._operations[name] = found
        return found


def _from_tool(result: Any) -> ToolMessage:
    return ToolMessage(content=result if isinstance(result, str | list) else str(result), tool_call_id="")
