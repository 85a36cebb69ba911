-- Ends jobs whose end the router has confirmed, and corrects the pass by what was really used.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> worker (incarnation)
-- then for each job, each id once: id epoch used(tokens of work)
-- --
-- Output, for each job:
--   ok          ended now, or by an earlier ack of the same holder whose answer was lost
--   fenced      another (epoch, incarnation) holds it
--   not_active  it is queued: its lease lapsed. The next claimer hears DONE and acks it
--   gone        unknown here, or ended otherwise
-- Error PROTOCOL before anything is written when a job is of an unknown version.
-- @include lib_time
-- @include lib_pool
-- @include lib_job
local worker = ARGV[4]
local FIRST, WIDTH = 5, 3
local known = {}
for i = FIRST, #ARGV, WIDTH do
  local job = redis.call('HMGET', JOB .. ARGV[i], 'v', 'state', 'hold', 'worker', 'level', 'cost', 'charged', 'tenant')
  if job[2] and foreign(job[1]) then return refuse(ARGV[i], job[1]) end
  known[i] = job
end
local ended, owed, used_by, replies = {}, {high = 0, low = 0}, {high = 0, low = 0}, {}
for i = FIRST, #ARGV, WIDTH do
  local id, epoch, used, job = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), known[i]
  local state, ours, said = job[2], job[3] == epoch and job[4] == worker, nil
  if state == 'active' and ours then
    local cost, level = num(job[6]), job[5]
    owed[level] = owed[level] + num(job[7]) * (used - cost) / cost
    used_by[level] = used_by[level] + used
    finish(id, 'done', job[8], cost)
    ended[#ended + 1] = id
    said = 'ok'
  elseif state == 'active' then said = 'fenced'
  elseif state == 'queued' then said = 'not_active'
  elseif state == 'done' and ours then said = 'ok'
  else said = 'gone' end
  replies[#replies + 1] = said
end
if #ended > 0 then
  redis.call('ZREM', LEASE, unpack(ended))
  for level, change in pairs(owed) do
    if change ~= 0 then redis.call('HINCRBYFLOAT', SCHED, 'pass:' .. level, real(change)) end
    if used_by[level] > 0 then redis.call('HINCRBY', SCHED, 'used:' .. level, used_by[level]) end
  end
end
return replies
