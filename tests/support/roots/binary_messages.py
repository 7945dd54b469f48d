"""A description of Protobuf messages, as `protoc --descriptor_set_out` writes it."""

from __future__ import annotations

from typing import Any

ORDER = "shop.Order"


def described(*, imports: bool = True) -> bytes:
    """The bytes of a file `.desc`; without imports a type is missing in it."""
    # Not before: an environment may lack it, whose tests are skipped.
    from google.protobuf import descriptor_pb2 as pb  # noqa: PLC0415
    from google.protobuf import timestamp_pb2  # noqa: PLC0415

    field = pb.FieldDescriptorProto
    file = pb.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    file.enum_type.add(name="Kind", value=[{"name": "A", "number": 0}, {"name": "B", "number": 1}])
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=field.TYPE_STRING, label=1)
    item.field.add(name="pieces", number=2, type=field.TYPE_INT32, label=1)
    _add_order(file, field)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=field.TYPE_MESSAGE, label=1, type_name=".shop.Tree")
    file.message_type.add(name="Nothing")
    files = pb.FileDescriptorSet()
    if imports:
        timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return bytes(files.SerializeToString(deterministic=True))


def _add_order(file: Any, field: Any) -> None:
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=1)
    for number, (name, kind, label, of) in enumerate(
        [
            ("id", field.TYPE_INT64, 1, ""),
            ("sku", field.TYPE_STRING, 1, ""),
            ("large", field.TYPE_UINT64, 1, ""),
            ("kind", field.TYPE_ENUM, 1, ".shop.Kind"),
            ("raw", field.TYPE_BYTES, 1, ""),
            ("at", field.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("items", field.TYPE_MESSAGE, 3, ".shop.Item"),
            ("counts", field.TYPE_MESSAGE, 3, ".shop.Order.CountsEntry"),
            ("note", field.TYPE_STRING, 1, ""),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    order.field[-1].proto3_optional = True
    order.field[-1].oneof_index = 0
    order.oneof_decl.add(name="_note")


def nested(width: int, depth: int) -> bytes:
    """The bytes of a file `.desc` with messages L0, L1 and so on; each has the next in it.

    Args:
        width: Fields of each message.
        depth: Count of the messages.
    """
    from google.protobuf import descriptor_pb2 as pb  # noqa: PLC0415

    file = pb.FileDescriptorProto(name="nested.proto", syntax="proto3")
    for level in range(depth):
        message = file.message_type.add(name=f"L{level}")
        for number in range(1, width + 1):
            field = message.field.add(name=f"f{number}", number=number, type=3, label=1)
            if level < depth - 1:
                field.type, field.type_name = 11, f".L{level + 1}"
    return bytes(pb.FileDescriptorSet(file=[file]).SerializeToString())
