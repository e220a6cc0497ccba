"""Values, arguments and exceptions as JSON text, and back.

There is one format, whatever the annotation: JSON in ASCII, where an object with a single key that starts with `$` is
a tag for what JSON does not have (`{"$tuple": [1, 2]}`). The tags are a closed set; a dict of the user that looks like
one is written as `{"$dict": [[key, value]]}`. Nothing in stored data ever names a class to import or a function to
call: classes come only from the annotation that the code has now.

Three kinds of coders read and write that format. They differ in how they know that a value comes back as it was:

- no annotation: only exact builtin types are taken, and each of them is written without loss;
- an annotation made of builtins (`list[str]`): the same, and the shape is compared with the annotation;
- anything else goes through pydantic, which may drop or convert. So each value is decoded right after it was encoded,
  compared with the original, and refused if it differs; unless its types alone show that it does not (`proofs`).

Live equals replay: whoever calls a step gets what `roundtrip` decoded, never the object that the step returned.

To read: `refusal`, `fastjson`, `swift`, `tags`, `foreign`, `members`, `text`, `order` are the format; `shapes`,
`coders`, `comparison`, `proofs`, `models`, `annotations` are the coders; `outside`, `recent`, `marks`, `hints`,
`functions` and `exceptions` use both;
`plain`, `formats`, `patterns`, `schema` and `model_schema` say what a type takes to those who do not have it. Each
imports only from those before it. These five are not loaded with the rest: whoever needs a schema takes it from
`schema`. `later` has the types of other modules that are known and not loaded. `differences` stands alone: it is about
texts, whatever they are of.
"""

from holdfast.codec.annotations import coder_for, coder_of
from holdfast.codec.coders import MISSING, Coder
from holdfast.codec.exceptions import decode_error, encode_error, message_of, named, roundtrip_error, said_by
from holdfast.codec.fastjson import blob_digest, digest
from holdfast.codec.functions import (
    Input,
    bind_input,
    decode_input,
    defaults_of,
    encode_call,
    encode_input,
    first_annotation,
    first_parameter,
    input_of,
    with_defaults_of,
)
from holdfast.codec.hints import result_annotation
from holdfast.codec.marks import is_same
from holdfast.codec.outside import plain_json, read_outside
from holdfast.codec.recent import Recent

__all__ = [
    "MISSING",
    "Coder",
    "Input",
    "Recent",
    "bind_input",
    "blob_digest",
    "coder_for",
    "coder_of",
    "decode_error",
    "decode_input",
    "defaults_of",
    "digest",
    "encode_call",
    "encode_error",
    "encode_input",
    "first_annotation",
    "first_parameter",
    "input_of",
    "is_same",
    "message_of",
    "named",
    "plain_json",
    "read_outside",
    "result_annotation",
    "roundtrip_error",
    "said_by",
    "with_defaults_of",
]
