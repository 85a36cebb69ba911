-- Puts jobs whose lease lapsed back into the queue under their old seq, a batch at a time. Counts no crash.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> most leases to look at
-- --
-- Output: {requeued ids, dropped}
--   dropped -> {id, owner, "expired" or "owner_lapsed"} each; ended, their routers must be told
-- Jobs of an unknown version are left to a process that knows it.
-- @include lib_time
-- @include lib_pool
-- @include lib_fleet
-- @include lib_owner
-- @include lib_job
-- @include lib_queue
-- @include lib_putback
local requeued, dropped = {}, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASE, '-inf', now, 'LIMIT', 0, tonumber(ARGV[4]))) do
  local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'level', 'seq', 'cost', 'charged', 'deadline', 'owner',
    'tenant')
  local deadline = num(job[7])
  if job[2] ~= 'active' then redis.call('ZREM', LEASE, id)
  elseif not foreign(job[1]) then
    local why = (deadline > 0 and deadline <= now and 'expired') or (lapsed(job[8]) and 'owner_lapsed')
    if why then
      redis.call('ZREM', LEASE, id)
      finish(id, why == 'expired' and 'expired' or 'lapsed', job[9], num(job[5]))
      dropped[#dropped + 1] = {id, job[8], why}
    else
      put_back(id, job[3], num(job[4]), num(job[5]), num(job[6]))
      requeued[#requeued + 1] = id
    end
  end
end
return {requeued, dropped}
