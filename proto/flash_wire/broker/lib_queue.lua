-- To be called before a level gets its first job: it restarts at the current virtual time, so that being idle earns
-- no turns. Its own pass stays where that is later (it owes). The other level's pass is the current time where refunds
-- took it below vt.
local function restart(level)
  local s = redis.call('HMGET', SCHED, 'vt', 'pass:' .. level, 'pass:' .. OTHER[level])
  local vt = num(s[1])
  if redis.call('ZCARD', QUEUE[OTHER[level]]) > 0 then vt = math.min(vt, num(s[3])) end
  if num(s[2]) < vt then redis.call('HSET', SCHED, 'pass:' .. level, real(vt)) end
  redis.call('HSET', FLEET, 'pool:' .. string.match(JOB, '}:(.*):job:$'), real(now + POOL_KEPT_MS) .. '|')
end
local function wake(count)
  for _ = 1, math.min(count, WAKE_MAX) do redis.call('LPUSH', WAKE, '1') end
  redis.call('LTRIM', WAKE, 0, WAKE_MAX - 1)
end
