"""Programs that run apart from Toolrest, with the standard library only: what do they say?

`agent` owns the commands inside the machine, `client` stands for one of them outside, and
`frames` is what they say to each other. Both are started as scripts, by path: the machine has no
more of Toolrest than its files.
"""
