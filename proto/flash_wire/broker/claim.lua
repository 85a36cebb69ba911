-- Gives a worker the jobs it has room for, by weight: stride scheduling with virtual time over the two levels.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:sched
-- KEYS[2] -> ...:q:high      KEYS[3] -> ...:q:low
-- KEYS[4] -> ...:lease       KEYS[5] -> ...:wake
-- KEYS[6] -> fd:{<ns/name>}:fleet
-- Built from the prefixes, in the same slot: <job prefix><id>, <tenant prefix><tenant>
-- --
-- ARGV[1] -> job prefix      ARGV[2] -> tenant prefix      ARGV[3] -> protocol
-- ARGV[4] -> worker (incarnation)
-- ARGV[5] -> free slots      ARGV[6] -> free KV tokens     ARGV[7] -> lease in ms
-- ARGV[8] -> weight of high  ARGV[9] -> weight of low
-- ARGV[10] -> most dead heads to drop in this call
-- ARGV[11] -> crashes from which a job is a suspect
-- --
-- Output: {jobs, dropped}
--   jobs    -> {id, epoch, owner, level, need, cost, seq, crashes, deadline} each; now active, leased, charged
--   dropped -> {id, owner, "expired" or "owner_lapsed"} each; ended, their routers must be told
-- Stops at the first head that does not fit, so that small jobs never pass over a large one for ever.
-- A suspect is the only job of its claim: the claim stops before it when it has jobs, and after it.
-- Error PROTOCOL when the first head is of an unknown version; a later one ends the claim instead.
-- @include lib_time
-- @include lib_pool
-- @include lib_fleet
-- @include lib_owner
-- @include lib_job
local worker, slots, room, lease_ms = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local weight = {high = tonumber(ARGV[8]), low = tonumber(ARGV[9])}
local skips, suspect_from = tonumber(ARGV[10]), tonumber(ARGV[11])

local s = redis.call('HMGET', SCHED, 'vt', 'pass:high', 'pass:low', 'tokens:high', 'tokens:low')
local vt, pass = num(s[1]), {high = num(s[2]), low = num(s[3])}
local tokens = {high = num(s[4]), low = num(s[5])}
local taken = {high = {}, low = {}}
local ahead = {high = {}, low = {}}
local from = {high = 0, low = 0}
local leases, jobs, dropped = {}, {}, {}

-- Queues are read by the handful and cut once, at the end: `taken` counts what has gone from the front.
local function head(level)
  local index = #taken[level] - from[level] + 1
  if not ahead[level][index] then
    from[level] = #taken[level]
    ahead[level] = redis.call('ZRANGE', QUEUE[level], from[level], from[level] + math.min(slots, 64) - 1)
    index = 1
  end
  return ahead[level][index]
end

local foreign_head
while slots > 0 do
  local high, low = head('high'), head('low')
  local level = 'high'
  if not high or (low and pass.low < pass.high) then level = 'low' end
  local id = level == 'high' and high or low
  if not id then break end
  local job = redis.call('HMGET', JOB .. id, 'v', 'state', 'need', 'cost', 'deadline', 'epoch', 'owner', 'seq',
    'crashes', 'tenant')
  local need, cost, deadline, owner = num(job[3]), num(job[4]), num(job[5]), job[7]
  if job[2] and foreign(job[1]) then
    foreign_head = {id, job[1]}
    break
  end
  local why
  if job[2] ~= 'queued' then why = 'stale'
  elseif deadline > 0 and deadline <= now then why = 'expired'
  elseif lapsed(owner) then why = 'owner_lapsed' end
  local crashes = num(job[9])
  if why then
    if skips <= 0 then break end
    skips = skips - 1
    if why ~= 'stale' then
      finish(id, why == 'expired' and 'expired' or 'lapsed', job[10], cost)
      dropped[#dropped + 1] = {id, owner, why}
    end
  elseif need > room or (crashes >= suspect_from and #jobs > 0) then break
  else
    local epoch = num(job[6]) + 1
    local charged = cost / weight[level]
    redis.call('HSET', JOB .. id, 'state', 'active', 'worker', worker, 'epoch', epoch, 'hold', epoch,
      'charged', real(charged), 'claimed', now)
    leases[#leases + 1] = now + lease_ms
    leases[#leases + 1] = id
    vt = pass[level]
    pass[level] = vt + charged
    slots, room = slots - 1, room - need
    jobs[#jobs + 1] = {id, epoch, owner, level, need, cost, job[8], crashes, deadline}
    if crashes >= suspect_from then slots = 0 end
  end
  taken[level][#taken[level] + 1] = id
  tokens[level] = tokens[level] - cost
end

local cut = false
for level, ids in pairs(taken) do
  if #ids > 0 then
    cut = true
    redis.call('ZREM', QUEUE[level], unpack(ids))
    if not redis.call('ZRANGE', QUEUE[level], 0, 0)[1] then tokens[level] = 0 end
  end
end
if cut then
  redis.call('HSET', SCHED, 'vt', real(vt), 'pass:high', real(pass.high), 'pass:low', real(pass.low),
    'tokens:high', tokens.high, 'tokens:low', tokens.low)
  if #leases > 0 then redis.call('ZADD', LEASE, unpack(leases)) end
elseif foreign_head then return refuse(foreign_head[1], foreign_head[2])
end
-- A signal left over from jobs that others took would wake workers for nothing.
if slots > 0 and not foreign_head and not head('high') and not head('low') then redis.call('DEL', WAKE) end
return {jobs, dropped}
