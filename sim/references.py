"""A NamedTuple of arrays, handed to compiled functions as one pointer.

Numba hands a tuple over field by field: a state of fifty arrays is four hundred arguments of each
call, and most of the time to compile. ``held(state)`` stores it in memory once; compiled functions
get its address and read ``state.pool.blocks`` from there, as they would from the tuple. Where
nothing is compiled the state is its own reference.

Only Numba's public extension interface is used; tests/compiled/test_references.py compares both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.jit import is_available


def held(state: Any) -> Any:
    """Return what compiled functions take instead of a state; it keeps the state alive.

    Fields that are replaced later are not seen: hold the new state then.
    """
    return Held(state) if is_available() else state


class Held:
    """A state in memory at ``address``; ``_numba_type_`` is what Numba's fast dispatch asks for."""

    __slots__ = ("_memory", "_numba_type_", "_state", "address")

    def __init__(self, state: Any):
        self._state = state
        self._numba_type_ = Reference(numba.typeof(state))
        self._memory = np.zeros(_num_words(state), np.int64)
        self.address = self._memory.ctypes.data
        _store(state, self.address)


def _num_words(state: Any) -> int:
    """Words that are surely enough: an array takes 5 + 2 per dimension, a scalar one."""
    if isinstance(state, tuple):
        return sum(map(_num_words, state))
    return 5 + 2 * np.ndim(state)


if is_available():
    import numba
    from llvmlite import ir
    from numba.core import cgutils, imputils, types
    from numba.core.datamodel import models
    from numba.core.typing.templates import AttributeTemplate, infer_getattr
    from numba.extending import (
        NativeValue,
        intrinsic,
        lower_getattr_generic,
        register_model,
        typeof_impl,
        unbox,
    )

    from sim.jit import compiled_door

    class Reference(types.Type):
        """The type of a pointer to a NamedTuple."""

        def __init__(self, of: types.NamedTuple):
            self.of = of
            super().__init__(name=f"Reference({of})")

        def place(self, name: str) -> int:
            """Return the place of a field."""
            place: int = self.of.fields.index(name)
            return place

        def field(self, name: str) -> types.Type:
            """Return the type of a field; a tuple in a tuple is referred to as well."""
            found = self.of.types[self.place(name)]
            return Reference(found) if isinstance(found, types.NamedTuple) else found

    @register_model(Reference)
    class _ReferenceModel(models.PrimitiveModel):
        def __init__(self, dmm: Any, fe_type: Reference):
            super().__init__(dmm, fe_type, ir.IntType(8).as_pointer())

    @infer_getattr
    class _Fields(AttributeTemplate):
        key = Reference

        def generic_resolve(self, typ: Reference, attr: str) -> types.Type | None:
            return typ.field(attr) if attr in typ.of.fields else None

    @lower_getattr_generic(Reference)
    def _load(context: Any, builder: Any, typ: Reference, value: Any, attr: str) -> Any:
        struct = context.get_value_type(typ.of)
        pointer = builder.bitcast(value, struct.as_pointer())
        field = cgutils.gep_inbounds(builder, pointer, 0, typ.place(attr))
        if isinstance(typ.field(attr), Reference):
            return builder.bitcast(field, ir.IntType(8).as_pointer())
        loaded = builder.load(field)
        return imputils.impl_ret_borrowed(context, builder, typ.field(attr), loaded)

    @typeof_impl.register(Held)
    def _typeof(value: Held, _: Any) -> Reference:
        return value._numba_type_

    @unbox(Reference)
    def _unbox(typ: Reference, held_state: Any, c: Any) -> NativeValue:
        number = c.pyapi.object_getattr_string(held_state, "address")
        address = c.pyapi.long_as_longlong(number)
        c.pyapi.decref(number)
        pointer = c.builder.inttoptr(address, ir.IntType(8).as_pointer())
        return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))

    @intrinsic
    def _write(typingctx: Any, state: Any, address: Any) -> Any:
        """Write a tuple to an address."""

        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value, where = _unowned(context, builder, state, args[0]), args[1]
            builder.store(value, builder.inttoptr(where, value.type.as_pointer()))
            return context.get_dummy_value()

        return types.void(state, address), lower

    def _unowned(context: Any, builder: Any, typ: types.Type, value: Any) -> Any:
        """Return a value without the owners of its arrays: ``Held`` keeps those alive.

        The owners that a call is handed are gone when it returns.
        """
        if isinstance(typ, types.Array):
            array = cgutils.create_struct_proxy(typ)(context, builder, value=value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            array.parent = cgutils.get_null_value(array.parent.type)
            return array._getvalue()
        if isinstance(typ, types.BaseTuple):
            for i, field in enumerate(typ.types):
                part = builder.extract_value(value, i)
                value = builder.insert_value(value, _unowned(context, builder, field, part), i)
        return value

    @compiled_door
    def _store(state: Any, address: int) -> None:
        _write(state, address)
