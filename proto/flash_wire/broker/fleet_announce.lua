-- Writes one entry of the fleet and says that somebody was heard.
--
-- KEYS[1] -> fd:{<ns/name>}:fleet
-- Built, in the same slot: queues of the pools that the fleet lists
-- --
-- ARGV[1] -> field: w:<incarnation> or r:<id>      ARGV[2] -> json      ARGV[3] -> ttl in ms
-- ARGV[4] -> pool:<tier>:<rev> of a worker that has one, or ""
-- ARGV[5] -> key prefix fd:{<ns/name>}:
-- --
-- Output: Redis TIME in ms
-- A newcomer sweeps out what has lapsed, so that a process that restarts for ever leaves nothing behind.
-- @include lib_time
local FLEET = KEYS[1]
-- @include lib_fleet
local field, ttl, POOL_KEPT_MS = ARGV[1], tonumber(ARGV[3]), 3600000
local heard, trusted = string.match(redis.call('HGET', FLEET, 'clock') or '', '^(%d+)|(%d+)$')
if heard == nil or now > tonumber(heard) then trusted = now + ttl end
if redis.call('HEXISTS', FLEET, field) == 0 and lapses_count() then
  local all = redis.call('HGETALL', FLEET)
  for i = 1, #all, 2 do
    local name = all[i]
    local kind = string.match(name, '^(%a+):')
    local old = (kind == 'w' or kind == 'r' or kind == 'pool') and expiry(all[i + 1]) <= now
    if old and kind == 'pool' then
      local pool = ARGV[5] .. string.sub(name, 6) .. ':'
      old = redis.call('EXISTS', pool .. 'q:high', pool .. 'q:low', pool .. 'lease') == 0
    end
    if old then redis.call('HDEL', FLEET, name) end
  end
end
local function at(ms) return string.format('%.0f', ms) end
redis.call('HSET', FLEET, 'clock', at(now + ttl / 2) .. '|' .. at(tonumber(trusted)), field, at(now + ttl) .. '|' .. ARGV[2])
if ARGV[4] ~= '' then redis.call('HSET', FLEET, ARGV[4], at(now + POOL_KEPT_MS) .. '|') end
return now
