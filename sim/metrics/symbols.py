"""The symbols in the formulas of metrics; ``docs/metrics.md`` has the same table with columns."""

SYMBOLS = {
    "R": "all requests that ended: finished, aborted, rejected or stuck",
    "A": "requests of R that were admitted at least once",
    "a": "arrival",
    "s": "when the request was first scheduled",
    "f": "end of the step that made the first output token",
    "e": "end",
    "p, o": "prompt tokens; output tokens generated",
    "c": "prompt tokens found in the prefix cache at the first admission",
    "S": "steps that scheduled something",
    "x, y, z": "prefill tokens, decode tokens, preemptions of a step",
    "running, waiting": "requests in these states while a step runs; waiting: as it begins",
    "free, cached free, held": (
        "free blocks (cached ones included); free blocks that still cache something; "
        "blocks with a holder"
    ),
    "T": (
        "from the first arrival to the last end of a step or the last arrival, whichever is later"
    ),
    "B": "sum of the step times, end minus start",
    "N": "blocks of the pool, the null block included",
    "K": "bytes of KV memory",
    "Q, H": "vLLM's counters of looked-up and found tokens",
    "V, D, G": "verified requests of all steps, their drafts, and the accepted ones of these",
    "M of v": "mean of v over T",
    "W of v": "mean of v over B",
    "P50, P90, P99 of v": "percentile of v, nearest rank",
}
