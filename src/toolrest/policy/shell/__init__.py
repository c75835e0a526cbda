"""A command line taken apart: words, redirects, nested scripts, working folders."""
