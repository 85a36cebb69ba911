-- Extends the leases of all jobs that a worker holds, in one call.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> worker (incarnation)      ARGV[5] -> lease in ms
-- then for each job: id epoch
-- --
-- Output, for each job:
--   extended    also when the lease had lapsed and nobody took the job
--   cancelled   it ended: cancelled, past its deadline, or its owner is gone. Stop
--   fenced      another (epoch, incarnation) holds it. Stop at once
--   unknown     the broker lost it, has it queued, or it is of an unknown version. Keep generating
-- @include lib_time
-- @include lib_pool
-- @include lib_fleet
-- @include lib_owner
-- @include lib_job
local worker, lease_ms = ARGV[4], tonumber(ARGV[5])
local leases, gone, replies = {}, {}, {}
for i = 6, #ARGV, 2 do
  local id, epoch = ARGV[i], ARGV[i + 1]
  local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'hold', 'worker', 'deadline', 'owner', 'tenant', 'cost')
  local state, deadline, said = job[2], num(job[5]), nil
  if not state or foreign(job[1]) or state == 'queued' then said = 'unknown'
  elseif state ~= 'active' then said = 'cancelled'
  elseif job[3] ~= epoch or job[4] ~= worker then said = 'fenced'
  else
    local over = (deadline > 0 and deadline <= now and 'expired') or (lapsed(job[6]) and 'lapsed')
    if over then
      finish(id, over, job[7], num(job[8]))
      gone[#gone + 1] = id
      said = 'cancelled'
    else
      leases[#leases + 1] = now + lease_ms
      leases[#leases + 1] = id
      said = 'extended'
    end
  end
  replies[#replies + 1] = said
end
if #leases > 0 then redis.call('ZADD', LEASE, unpack(leases)) end
if #gone > 0 then redis.call('ZREM', LEASE, unpack(gone)) end
return replies
