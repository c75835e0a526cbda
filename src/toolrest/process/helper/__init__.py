"""The owner of every child process: a small program of its own, standard library only.

The host runs `python -I -S __main__.py` once per session and speaks to it over a socket. Three
kinds of process live here:

    owner     one per session; forks keepers, notices the host's death, catches orphans
    keeper    one per command; a subreaper, so every descendant of the command stays below it
    command   started by its keeper; one that confines itself is forked, any other is spawned

A keeper per command is what makes trees separable: a daemon that forked twice, left its session
and cleared its environment still has exactly one keeper above it, and "no child left" at the
keeper is the kernel's own proof that the tree is gone. An idle keeper is always there, so that none
has to be forked when a command comes.

What ends with what: a keeper ends its tree when the owner dies; a keeper's death hands its tree to
the owner, which ends it; a launcher asks the kernel for its own death, as a forked command does;
and the host ends what a lost keeper had started, should the owner be gone as well.

Modules here import each other relatively and nothing else of Toolrest. They keep to the C
modules below `signal` and `socket`, whose Python layers would double the start-up time and the
pages that every fork has to map.
"""
