-- Redis TIME in ms: the only clock of the broker.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
