-- Lists a poisoned job for people to look at. The list is bounded: the oldest fall off.
--
-- KEYS[1] -> fd:{<ns/name>}:<tier>:<rev>:dead
-- --
-- ARGV[1] -> id      ARGV[2] -> most ids to keep
-- --
-- Output: the number of ids listed
-- @include lib_time
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[2]) - 1)
return redis.call('ZCARD', KEYS[1])
