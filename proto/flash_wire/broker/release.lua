-- Hands a job back under its old seq: a drain, a broken stream, room that was lost. Refunds what the claim charged.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefix, in the same slot: <job prefix><id>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> id              ARGV[5] -> epoch              ARGV[6] -> worker (incarnation)
-- ARGV[7] -> crashes as its router counts them, "" leaves them. Set on every live job, whoever holds it
-- --
-- Output: ok, fenced (another holds it), not_active (queued already), gone (unknown or ended)
-- Error PROTOCOL, nothing written, when the job is of an unknown version.
-- @include lib_time
-- @include lib_pool
-- @include lib_job
-- @include lib_queue
-- @include lib_putback
local id, epoch, worker = ARGV[4], ARGV[5], ARGV[6]
local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'hold', 'worker', 'level', 'seq', 'cost', 'charged')
local state = job[2]
if state and foreign(job[1]) then return refuse(id, job[1]) end
if state ~= 'active' and state ~= 'queued' then return 'gone' end
if ARGV[7] ~= '' then redis.call('HSET', JOB .. id, 'crashes', ARGV[7]) end
if state == 'queued' then return 'not_active' end
if job[3] ~= epoch or job[4] ~= worker then return 'fenced' end
put_back(id, job[5], num(job[6]), num(job[7]), num(job[8]))
return 'ok'
