-- The six keys of a pool and three arguments come first in every pool script, in this order.
local SCHED, LEASE, WAKE, FLEET = KEYS[1], KEYS[4], KEYS[5], KEYS[6]
local QUEUE = {high = KEYS[2], low = KEYS[3]}
local OTHER = {high = 'low', low = 'high'}
local JOB, TENANT, PROTOCOL = ARGV[1], ARGV[2], tonumber(ARGV[3])
local KEEP_ENDED_MS, WAKE_MAX, OWNER_GRACE_MS, POOL_KEPT_MS = 60000, 64, 15000, 3600000

local function num(value) return tonumber(value or 0) or 0 end
-- Doubles as text without loss; Lua's own conversion keeps 14 digits only.
local function real(value) return string.format('%.17g', value) end

-- A job is understood when its protocol is ours or a neighbour's.
local function foreign(v)
  v = tonumber(v)
  return v == nil or math.abs(v - PROTOCOL) > 1
end
local function refuse(id, v)
  return redis.error_reply('PROTOCOL job ' .. id .. ' is written in protocol ' .. tostring(v) .. ', this process speaks '
    .. PROTOCOL .. ' and its neighbours: let a process of its release finish it')
end
