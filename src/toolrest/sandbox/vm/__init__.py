"""Commands in a virtual machine: how is one prepared, booted, spoken with and ended?"""
