-- Takes a job's tokens out of its tenant's account; an empty account is deleted, so tenants leave nothing behind.
local function leave_tenant(tenant, cost)
  local account = TENANT .. tenant
  redis.call('HINCRBY', account, 'tokens', -cost)
  if redis.call('HINCRBY', account, 'requests', -1) <= 0 then redis.call('DEL', account) end
end
-- The end of a job: the hash stays for a minute, so that a late enqueue or restore of it is seen.
local function finish(id, state, tenant, cost)
  redis.call('HSET', JOB .. id, 'state', state)
  redis.call('PEXPIRE', JOB .. id, KEEP_ENDED_MS)
  leave_tenant(tenant, cost)
end
-- Tokens that wait in a level. An empty level has none, whatever was counted before.
local function count_tokens(level, change)
  if redis.call('ZCARD', QUEUE[level]) == 0 then redis.call('HSET', SCHED, 'tokens:' .. level, 0)
  else redis.call('HINCRBY', SCHED, 'tokens:' .. level, change) end
end
local function take_from_queue(id, level, cost)
  if redis.call('ZREM', QUEUE[level], id) == 1 then count_tokens(level, -cost) end
end
