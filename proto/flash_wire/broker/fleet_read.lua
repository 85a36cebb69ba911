-- One consistent reading of the fleet: who has not lapsed, what is wanted, how deep each known pool is.
--
-- KEYS[1] -> fd:{<ns/name>}:fleet
-- Built, in the same slot: the keys of each pool that the fleet lists
-- --
-- ARGV[1] -> key prefix fd:{<ns/name>}:
-- --
-- Output: {Redis TIME in ms, {field, json, ...} of workers and routers, {tier, wanted, ...}, {"tier:rev", depth, ...}}
-- An owner that only enqueued so far has an entry without json: it is left out.
-- @include lib_time
local FLEET = KEYS[1]
-- @include lib_fleet
-- @include lib_depth
local alive, desired, pools = {}, {}, {}
local all = redis.call('HGETALL', FLEET)
for i = 1, #all, 2 do
  local kind, name = string.match(all[i], '^(%a+):(.*)$')
  if kind == 'w' or kind == 'r' then
    local json = string.match(all[i + 1], '^%d+|(.+)$')
    if json and expiry(all[i + 1]) > now then
      alive[#alive + 1] = all[i]
      alive[#alive + 1] = json
    end
  elseif kind == 'desired' then
    desired[#desired + 1] = name
    desired[#desired + 1] = all[i + 1]
  elseif kind == 'pool' then
    local depth = depth_of(ARGV[1] .. name .. ':')
    if expiry(all[i + 1]) > now or depth[1][1] + depth[2][1] + depth[3] > 0 then
      pools[#pools + 1] = name
      pools[#pools + 1] = depth
    end
  end
end
return {now, alive, desired, pools}
