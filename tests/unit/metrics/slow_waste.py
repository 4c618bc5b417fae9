"""The partition of the KV memory by looking at every slot of every block: slow, obviously right."""

from types import SimpleNamespace

from sim.tables import PARTS


class FakeManager:
    """One group's tables; ``window`` None is full attention."""

    def __init__(self, group, window=None):
        self.group = group
        self.window = window
        self.req_to_blocks = {}

    def get_num_skipped_tokens(self, num_computed_tokens):
        if self.group.is_state:
            return num_computed_tokens - 1
        return 0 if self.window is None else max(0, num_computed_tokens - self.window + 1)


def make_group(*, block_size, slot_bytes, layer_padding=0, page_padding=0, is_state=False):
    return SimpleNamespace(
        block_size=block_size,
        content=block_size * slot_bytes,
        layer_padding=layer_padding,
        page_padding=page_padding,
        is_state=is_state,
    )


def make_pool(num_blocks, held=(), cached=(), num_groups=1):
    """held: ids with a holder; cached: (id, group) of free blocks with content."""
    ref_cnt, prefix_id, group_id = [0] * num_blocks, [-1] * num_blocks, [-1] * num_blocks
    ref_cnt[0] = 1 << 60
    for block in held:
        ref_cnt[block] = 1
    for block, group in cached:
        prefix_id[block], group_id[block] = block, group
    free = num_blocks - 1 - len(set(held))
    return SimpleNamespace(
        ref_cnt=ref_cnt,
        prefix_id=prefix_id,
        group_id=group_id,
        num_cached_free=len(cached),
        cached_free_by_group=[sum(g == group for _, group in cached) for g in range(num_groups)],
        get_num_free_blocks=lambda: free,
    )


def make_manager(managers, pool):
    coordinator = SimpleNamespace(single_type_managers=tuple(managers))
    return SimpleNamespace(coordinator=coordinator, block_pool=pool)


def slow_sample(managers, pool, computed, num_blocks, bytes_per_block, kv_memory_bytes):
    """Parts in bytes by name, one block after the other, one slot after the other."""
    parts = dict.fromkeys(PARTS, 0)
    parts["remainder"] = kv_memory_bytes - num_blocks * bytes_per_block
    parts["null_block"] = bytes_per_block
    for block in range(1, num_blocks):
        holders = [
            (manager, table, index, computed[request])
            for manager in managers
            for request, table in manager.req_to_blocks.items()
            for index, entry in enumerate(table)
            if entry == block
        ]
        if not holders and pool.prefix_id[block] < 0:
            parts["free"] += bytes_per_block
            continue
        group = holders[0][0].group if holders else managers[pool.group_id[block]].group
        parts["layer_padding"] += group.layer_padding
        parts["page_padding"] += group.page_padding
        if not holders:
            parts["reusable"] += group.content
        elif group.is_state:
            parts[state_role(holders)] += group.content
        else:
            for slot in range(group.block_size):
                parts[slot_role(slot, holders)] += group.content // group.block_size
    return parts


def slot_role(slot, holders):
    manager, _, index, _ = holders[0]
    size = manager.group.block_size
    token = index * size + slot
    if not any(n > index * size for *_, n in holders):
        return "lookahead"
    if not any(n > token for *_, n in holders):
        return "tail"
    return (
        "live"
        if any(is_read_later(token, manager.window, n) for *_, n in holders)
        else ("out_of_window")
    )


def is_read_later(token, window, num_computed):
    """Whether some token from ``num_computed`` on has ``token`` among those that it reads."""
    later = range(num_computed, num_computed + 100)
    return any(token > later_one - (window or 10**9) and token <= later_one for later_one in later)


def state_role(holders):
    """Live if it is some holder's newest computed state, else as the roles come."""
    roles = set()
    for manager, table, index, num_computed in holders:
        size = manager.group.block_size
        begun = [i for i, entry in enumerate(table) if entry and i * size < num_computed]
        if index not in begun:
            roles.add("lookahead")
        else:
            roles.add("live" if index == max(begun) else "reusable")
    return next(role for role in ("live", "reusable", "lookahead") if role in roles)
