-- Admits jobs and puts them into their queues: all limits are checked here, so they hold across router replicas.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> most tokens waiting in a level (0 is no limit)
-- ARGV[5] -> most jobs waiting in a level (0 is no limit)
-- ARGV[6] -> most tokens of one tenant, waiting and running (0 is no limit)
-- then for each job, each id once:
--   id level need cost owner deadline tenant request seq(0 draws one) epoch crashes
-- --
-- Output, for each job: {outcome, seq, queued jobs, queued tokens, limit, have}, the counts of its level
--   admitted        queued; seq counter = max(counter, seq)
--   duplicate       it waits or runs already; epoch is raised to the given one, crashes is set
--   finished        it was acked or cancelled here less than a minute ago: nothing was queued
--   expired         its deadline has passed
--   queue_tokens, queue_requests, tenant_tokens    refused; `have` is what it would have become
-- Error PROTOCOL before anything is written when a job of that id is of an unknown version.
-- @include lib_time
-- @include lib_pool
-- @include lib_fleet
-- @include lib_owner
-- @include lib_queue
local max_tokens, max_jobs, max_tenant = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local FIRST, WIDTH = 7, 11
local known = {}
for i = FIRST, #ARGV, WIDTH do
  local job = redis.call('HMGET', JOB .. ARGV[i], 'v', 'state', 'seq', 'epoch')
  if job[2] and foreign(job[1]) then return refuse(ARGV[i], job[1]) end
  known[i] = job
end

local s = redis.call('HMGET', SCHED, 'seq', 'tokens:high', 'tokens:low')
local seq = num(s[1])
local jobs = {high = redis.call('ZCARD', QUEUE.high), low = redis.call('ZCARD', QUEUE.low)}
local tokens = {high = num(s[2]), low = num(s[3])}
local added = {high = {}, low = {}}
local tenants, vouched, admitted, replies = {}, {}, 0, {}

local function account(tenant)
  if not tenants[tenant] then
    local have = max_tenant > 0 and num(redis.call('HGET', TENANT .. tenant, 'tokens')) or 0
    tenants[tenant] = {have = have, tokens = 0, jobs = 0}
  end
  return tenants[tenant]
end

for i = FIRST, #ARGV, WIDTH do
  local id, level, need, cost, owner = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local deadline, tenant, at = tonumber(ARGV[i + 5]), ARGV[i + 6], tonumber(ARGV[i + 8])
  local job, outcome, limit, have = known[i], 'admitted', 0, 0
  local state = job[2]
  if not vouched[owner] then vouch(owner); vouched[owner] = true end
  if state == 'queued' or state == 'active' then
    redis.call('HSET', JOB .. id, 'epoch', math.max(num(job[4]), tonumber(ARGV[i + 9])), 'crashes', ARGV[i + 10])
    outcome, at = 'duplicate', num(job[3])
  elseif state == 'done' or state == 'cancelled' then outcome = 'finished'
  elseif state == 'expired' or (deadline > 0 and deadline <= now) then outcome = 'expired'
  elseif max_jobs > 0 and jobs[level] + 1 > max_jobs then
    outcome, limit, have = 'queue_requests', max_jobs, jobs[level] + 1
  elseif max_tokens > 0 and tokens[level] + cost > max_tokens then
    outcome, limit, have = 'queue_tokens', max_tokens, tokens[level] + cost
  elseif max_tenant > 0 and account(tenant).have + cost > max_tenant then
    outcome, limit, have = 'tenant_tokens', max_tenant, account(tenant).have + cost
  end
  if outcome == 'admitted' then
    if at == 0 then at = seq + 1 end
    seq = math.max(seq, at)
    if jobs[level] == 0 then restart(level) end
    -- Left of an owner that came back: written anew, without the expiry.
    if state then redis.call('DEL', JOB .. id) end
    redis.call('HSET', JOB .. id, 'v', PROTOCOL, 'state', 'queued', 'level', level, 'need', need, 'cost', cost,
      'owner', owner, 'deadline', deadline, 'tenant', tenant, 'request', ARGV[i + 7], 'seq', at,
      'epoch', ARGV[i + 9], 'crashes', ARGV[i + 10], 'hold', 0, 'worker', '', 'charged', 0, 'enqueued', now)
    local add, of = added[level], account(tenant)
    add[#add + 1] = at
    add[#add + 1] = id
    jobs[level], tokens[level], admitted = jobs[level] + 1, tokens[level] + cost, admitted + 1
    of.have, of.tokens, of.jobs = of.have + cost, of.tokens + cost, of.jobs + 1
  elseif outcome ~= 'duplicate' then at = 0
  end
  replies[#replies + 1] = {outcome, at, jobs[level], tokens[level], limit, have}
end

if admitted > 0 then
  for level, add in pairs(added) do
    if #add > 0 then redis.call('ZADD', QUEUE[level], unpack(add)) end
  end
  redis.call('HSET', SCHED, 'seq', seq, 'tokens:high', tokens.high, 'tokens:low', tokens.low)
  for tenant, of in pairs(tenants) do
    if of.jobs > 0 then
      redis.call('HINCRBY', TENANT .. tenant, 'tokens', of.tokens)
      redis.call('HINCRBY', TENANT .. tenant, 'requests', of.jobs)
    end
  end
  wake(admitted)
end
return replies
