"""Seeded traffic beyond what a server can do, before an emulated vLLM, bare and behind each proxy.

intervals, traffic, sdk_rules, visit, judge      pure: arithmetic and decisions
upstream, arms, scenarios, targets               values: what is started, how it is loaded, what is hoped for
messages, client, sdk_client, watch, play        the load itself
run, tables, __main__                            one run, and what it prints
"""
