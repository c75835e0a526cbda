"""The owner of every child process: a small program of its own, standard library only.

The host runs `python -I -S __main__.py` once per session and speaks to it over a socket. Three
kinds of process live here:

    owner     one per session; forks keepers, notices the host's death, catches orphans
    keeper    one per command; a subreaper, so every descendant of the command stays below it
    command   forked by its keeper, set up and confined, then replaced by exec

A keeper per command is what makes trees separable: a daemon that forked twice, left its session
and cleared its environment still has exactly one keeper above it, and "no child left" at the
keeper is the kernel's own word that the tree is gone. An idle keeper is always there, with the
next command's process forked ahead below it, so that nothing has to fork when a command comes.

Modules here import each other relatively and nothing else of Toolrest. They keep to the C
modules below `signal` and `socket`, whose Python layers would double the start-up time and the
pages that every fork has to map.
"""
