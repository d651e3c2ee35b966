# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The messages of Chakra execution traces (MLCommons), by the names and numbers of their schema.

A file is a GlobalMetadata, then a Node after the other, each behind its length as a varint. The
schema's tensors are left out: what reads them here skips them.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO

from trnsim.errors import TrnSimError

VERSION = "0.0.4"
NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL = range(1, 8)
# CollectiveCommType, as calls are named here; REDUCE_SCATTER_BLOCK is a reduce_scatter too.
COLLECTIVES = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast",
    6: "all_to_all", 7: "reduce_scatter", 8: "reduce_scatter", 9: "barrier",
}  # fmt: skip
_VALUES = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip  # of AttributeProto, from field 3 on: each alone and as a list
# Field: (number, type or message, is repeated).
_MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "GlobalMetadata": {"version": (1, "string", False), "attr": (2, "AttributeProto", True)},
    "IOInfo": {
        "values": (1, "string", False), "shapes": (2, "string", False),
        "types": (3, "string", False),
    },
    "Node": {
        "id": (1, "uint64", False), "name": (2, "string", False), "type": (3, "int32", False),
        "ctrl_deps": (4, "uint64", True), "data_deps": (5, "uint64", True),
        "start_time_micros": (6, "uint64", False), "duration_micros": (7, "uint64", False),
        "inputs": (8, "IOInfo", False), "outputs": (9, "IOInfo", False),
        "attr": (10, "AttributeProto", True),
    },
}  # fmt: skip


@functools.cache
def messages(error: type[TrnSimError]) -> SimpleNamespace:
    """The classes GlobalMetadata, Node and AttributeProto; raises `error` without protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise error(
            "a Chakra trace needs protobuf, which is not here: pip install 'trnsim[report]', or "
            "pip install protobuf"
        ) from None
    file = descriptor_pb2.FileDescriptorProto(
        name="trnsim/chakra.proto", package="trnsim.chakra", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            _add_field(message, field, number, kind, repeated)
    attribute = file.message_type.add(name="AttributeProto")
    _add_field(attribute, "name", 1, "string", False)
    _add_field(attribute, "doc_string", 2, "string", False)
    attribute.oneof_decl.add(name="value")
    for i, kind in enumerate(_VALUES):
        title = f"{kind.capitalize()}List"
        _add_field(file.message_type.add(name=title), "values", 1, kind, True)
        _add_field(attribute, f"{kind}_val", 3 + 2 * i, kind, False).oneof_index = 0
        _add_field(attribute, f"{kind}_list", 4 + 2 * i, title, False).oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(
                pool.FindMessageTypeByName(f"trnsim.chakra.{name}")
            )
            for name in names
        }
    )


def _add_field(message: Any, name: str, number: int, kind: str, repeated: bool) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    field = message.field.add(name=name, number=number)
    field.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    if kind in _VALUES:
        field.type = getattr(Field, f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".trnsim.chakra.{kind}"
    return field


def encode(message: Any) -> bytes:
    """A message behind its length."""
    from google.protobuf import proto

    out = io.BytesIO()
    proto.serialize_length_prefixed(message, out)
    return out.getvalue()


def decode(kind: Any, file: BinaryIO) -> Iterator[Any]:
    """The messages of one kind from here to the end of the file; google.protobuf's DecodeError, or
    a ValueError, where there are none."""
    from google.protobuf import proto

    while (message := proto.parse_length_prefixed(kind, file)) is not None:
        yield message


def value_of(attribute: Any) -> Any:
    """What an AttributeProto holds: a plain value, a list, or None."""
    which = attribute.WhichOneof("value")
    if which is None:
        return None
    value = getattr(attribute, which)
    return list(value.values) if which.endswith("_list") else value
