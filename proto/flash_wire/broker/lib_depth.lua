-- {jobs, tokens, age of the head in ms, tokens used by acked jobs} of high, then of low, then the active count.
local function depth_of(pool)
  local s = redis.call('HMGET', pool .. 'sched', 'tokens:high', 'tokens:low', 'used:high', 'used:low')
  local out = {}
  for i, level in ipairs({'high', 'low'}) do
    local queue, age = pool .. 'q:' .. level, 0
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if first then
      age = now - (tonumber(redis.call('HGET', pool .. 'job:' .. first, 'enqueued') or now) or now)
    end
    out[i] = {redis.call('ZCARD', queue), tonumber(s[i] or 0), math.max(age, 0), tonumber(s[i + 2] or 0)}
  end
  out[3] = redis.call('ZCARD', pool .. 'lease')
  return out
end
