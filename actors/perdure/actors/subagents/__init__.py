"""Subagents: child sessions under a grant, whose result their parent gets exactly once.

    sessions_spawn ─▶ the parent's file says so ─▶ the engine is asked ─▶ the child's file, grant in it
                                                                              │ its turns
    the parent's file: letter, then ending ◀─ result, again and again ◀─ the child's file: ending, text
                       └─▶ receipt: the child's file says that it is told, and it may go

`part` is the session's side of both roles, `beginning` the way to a child; `ending` and `spawning` decide,
`account` counts, `family` is what a host knows of all of them, `tools` what a model sees.
"""
