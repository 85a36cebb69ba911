-- Ends a job at its router's word, wherever it is.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> id
-- --
-- Output: queued (it cost nothing), active (its holder hears CANCELLED at the next beat), gone (unknown or ended)
-- An unknown job is marked cancelled for a minute: an enqueue or restore that was sent before and arrives after it
-- must not leave a zombie that holds quota.
-- Error PROTOCOL, nothing written, when the job is of an unknown version.
-- @include lib_time
-- @include lib_pool
-- @include lib_job
local id = ARGV[4]
local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'level', 'cost', 'tenant')
local state, cost = job[2], num(job[4])
if state and foreign(job[1]) then return refuse(id, job[1]) end
if state == 'queued' then
  take_from_queue(id, job[3], cost)
  finish(id, 'cancelled', job[5], cost)
  return 'queued'
end
if state == 'active' then
  redis.call('ZREM', LEASE, id)
  finish(id, 'cancelled', job[5], cost)
  return 'active'
end
if not state or state == 'lapsed' then
  redis.call('HSET', JOB .. id, 'v', PROTOCOL, 'state', 'cancelled')
  redis.call('PEXPIRE', JOB .. id, KEEP_ENDED_MS)
end
return 'gone'
