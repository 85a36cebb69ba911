-- The fleet hash: field -> "<expiry ms>|<json>". An absent field has lapsed like one whose expiry passed.
-- Field `clock` is "<heard ms>|<trusted ms>". Nobody can announce while the broker is away, so after a silence
-- (now > heard) or a new start every entry looks lapsed. Lapses count only from `trusted` on, a ttl after the
-- announcements came back. Without this an outage longer than a ttl cancels every running stream.
local function expiry(value) return value and tonumber(string.match(value, '^%d+')) or 0 end

local function lapses_count()
  local heard, trusted = string.match(redis.call('HGET', FLEET, 'clock') or '', '^(%d+)|(%d+)$')
  return heard ~= nil and now <= tonumber(heard) and now >= tonumber(trusted)
end
