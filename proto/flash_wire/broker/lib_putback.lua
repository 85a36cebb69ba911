-- An active job returns to its old place. What the claim charged is refunded, or hand-backs would bend the weights.
local function put_back(id, level, seq, cost, charged)
  redis.call('ZREM', LEASE, id)
  if charged ~= 0 then redis.call('HINCRBYFLOAT', SCHED, 'pass:' .. level, real(-charged)) end
  if redis.call('ZCARD', QUEUE[level]) == 0 then restart(level) end
  redis.call('ZADD', QUEUE[level], seq, id)
  count_tokens(level, cost)
  redis.call('HSET', JOB .. id, 'state', 'queued', 'worker', '', 'hold', 0, 'charged', 0)
  wake(1)
end
