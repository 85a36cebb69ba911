-- Makes a job active again under its (epoch, incarnation) after the broker lost it. Never refused for quota.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> worker (incarnation)      ARGV[5] -> epoch it holds the job under      ARGV[6] -> lease in ms
-- ARGV[7..17] -> id level need cost owner deadline tenant request seq(0 draws one) epoch crashes
-- --
-- Output:
--   ok               active, leased; counted for its tenant as enqueue does; charged 0, since the pass that paid for it
--                    is lost too. A queued job (its lease was reaped) is taken out of the queue
--   held_by_another  left alone
--   gone             acked, cancelled or expired here less than a minute ago: nothing was restored
-- Error PROTOCOL, nothing written, when the job is of an unknown version.
-- @include lib_time
-- @include lib_pool
-- @include lib_fleet
-- @include lib_owner
-- @include lib_job
local worker, epoch, lease_ms = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local id, level, need, cost, owner = ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11]
local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'hold', 'worker', 'epoch', 'level', 'cost')
local state = job[2]
if state and foreign(job[1]) then return refuse(id, job[1]) end
vouch(owner)
if state == 'active' and (num(job[3]) ~= epoch or job[4] ~= worker) then return 'held_by_another' end
if state == 'done' or state == 'cancelled' or state == 'expired' then return 'gone' end

local top = math.max(num(job[5]), epoch, tonumber(ARGV[16]))
if state == 'queued' then take_from_queue(id, job[6], num(job[7])) end
if state == 'queued' or state == 'active' then
  redis.call('HSET', JOB .. id, 'state', 'active', 'worker', worker, 'hold', epoch, 'epoch', top,
    'crashes', ARGV[17], 'claimed', now)
  if state == 'queued' then redis.call('HSET', JOB .. id, 'charged', 0) end
else
  local last = num(redis.call('HGET', SCHED, 'seq'))
  local seq = tonumber(ARGV[15])
  if seq == 0 then seq = last + 1 end
  redis.call('HSET', SCHED, 'seq', math.max(last, seq))
  if state then redis.call('DEL', JOB .. id) end
  redis.call('HSET', JOB .. id, 'v', PROTOCOL, 'state', 'active', 'level', level, 'need', need, 'cost', cost,
    'owner', owner, 'deadline', ARGV[12], 'tenant', ARGV[13], 'request', ARGV[14], 'seq', seq, 'epoch', top,
    'crashes', ARGV[17], 'hold', epoch, 'worker', worker, 'charged', 0, 'enqueued', now, 'claimed', now)
  redis.call('HINCRBY', TENANT .. ARGV[13], 'tokens', cost)
  redis.call('HINCRBY', TENANT .. ARGV[13], 'requests', 1)
end
redis.call('ZADD', LEASE, now + lease_ms, id)
return 'ok'
