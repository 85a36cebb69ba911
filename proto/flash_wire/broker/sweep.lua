-- Compares jobs with the queue and the lease set, and repairs what a half-done script or an older release left.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefix, in the same slot: <job prefix><id>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4..] -> ids, from a scan of the job keys
-- --
-- Output: the ids that were repaired
--   active without a lease      -> back into the queue under its old seq
--   queued but in no queue      -> into it
--   ended but without an expiry -> gets one
-- Jobs of an unknown version are left alone.
-- @include lib_time
-- @include lib_pool
-- @include lib_job
-- @include lib_queue
-- @include lib_putback
local repaired = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'level', 'seq', 'cost', 'charged')
  local state, broken = job[2], false
  if state and not foreign(job[1]) then
    if state == 'active' then broken = not redis.call('ZSCORE', LEASE, id)
    elseif state == 'queued' then broken = not redis.call('ZSCORE', QUEUE[job[3]], id)
    elseif redis.call('PTTL', JOB .. id) < 0 then
      redis.call('PEXPIRE', JOB .. id, KEEP_ENDED_MS)
      repaired[#repaired + 1] = id
    end
    if broken then
      put_back(id, job[3], num(job[4]), num(job[5]), num(job[6]))
      repaired[#repaired + 1] = id
    end
  end
end
return repaired
