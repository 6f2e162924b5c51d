"""A recorded day decided once more under other settings, in virtual time.

The deciders are the gateway's own: plans, prices, what never fits, the gate with its queue, promises and learners. Only
the engine behind it is a model, made from the log itself (pace.py). What it assumes, and what nobody can know from a
log:

- an answer that the engine gave takes as long as it took, stretched or shortened by how crowded the engine is when it
  is sent; a smaller prompt starts sooner. Preemption, and what others send to the same engine, are not modelled, and a
  larger pool is taken to be as fast as the recorded one;
- of what was refused nobody knows the answer: it gets the length of another request's. What was refused before its body
  was read gets the price of a request that was alike;
- who came back after a refusal comes back although it may now be served, and who would be refused now and was not then
  does not come back;
- a client that left stays no longer than it stayed;
- pictures that the recorded settings left out unseen are taken to be like the next one of their conversation, and what
  was refused for a fault of its own (a bad body, a damaged picture, an engine that was away) is refused again;
- each request goes to the model server that it went to, however busy that one is now;
- what the gateway had learned before the log begins, it has to learn again.

No clock, no file and no network here: lines come in, tallies go out.
"""
