"""The types of layers in a model, with pages as large as their content and no larger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.layout.grouping.plan import Bucket
from sim.layout.groups import bucket_by_spec
from sim.layout.kv_cache_spec import FullFamilySpec, KVCacheSpec, MambaSpec
from sim.layout.plans.planned import PlanInput
from sim.layout.uniformity import merge

LATENT_BLOCK_SIZE = 64
"""Tokens per block that latent attention's kernels take. Source: spec/layout.md 15.3."""


def natural_types(given: PlanInput) -> list[Bucket]:
    """Return the layers by type, first seen first, none of them padded.

    Recurrent states lose their padding, and attention beside them goes back to the block size that
    it would have without them: the user's, else the kernel's. Layers that merge into one group are
    one type. Source: spec/layout.md 2.4, 3.1.
    """
    merged = merge(list(given.specs.values()))
    if merged is not None:
        return [Bucket(merged, tuple(given.specs))]
    hybrid = any(isinstance(spec, MambaSpec) for spec in given.specs.values())
    natural: Mapping[str, KVCacheSpec] = {
        name: _natural(spec, given, hybrid) for name, spec in given.specs.items()
    }
    return bucket_by_spec(natural)


def _natural(spec: KVCacheSpec, given: PlanInput, hybrid: bool) -> KVCacheSpec:
    if isinstance(spec, MambaSpec):
        return replace(spec, page_size_padded=None)
    if hybrid and isinstance(spec, FullFamilySpec):
        return replace(spec, block_size=natural_block_size(spec, given), page_size_padded=None)
    return spec


def natural_block_size(spec: FullFamilySpec, given: PlanInput) -> int:
    """Return the tokens per block of full attention before it is aligned to a recurrent state."""
    kernel = LATENT_BLOCK_SIZE if spec.is_latent else given.profile.default_block_size
    named = given.block_size
    return named if named is not None and named % kernel == 0 else kernel


def content_bytes(bucket: Bucket) -> int:
    """Return the content of one block of all layers of a type."""
    return len(bucket) * bucket.spec.real_page_size_bytes


def page_bytes(bucket: Bucket) -> int:
    """Return one block of all layers of a type, padding of single pages included."""
    return len(bucket) * bucket.spec.page_size_bytes
