local judged, counting = {}, nil
-- True when the router that owns a job is known to be gone.
local function lapsed(owner)
  if judged[owner] == nil then
    if counting == nil then counting = lapses_count() end
    judged[owner] = counting and expiry(redis.call('HGET', FLEET, 'r:' .. owner)) <= now
  end
  return judged[owner]
end
-- The owner itself is speaking (enqueue, restore): that proves it alive until its next announcement.
local function vouch(owner)
  local value = redis.call('HGET', FLEET, 'r:' .. owner)
  if expiry(value) <= now then
    local json = value and string.match(value, '|(.*)$') or ''
    redis.call('HSET', FLEET, 'r:' .. owner, real(now + OWNER_GRACE_MS) .. '|' .. json)
  end
end
