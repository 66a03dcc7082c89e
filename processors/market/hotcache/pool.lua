-- Sets the overview of the pool, unless what is there is of a later point: more reverts, or as many and a
-- higher block. The digits that say so are hexadecimal and as many in every value.
--
-- KEYS: 1 the pool's key
-- ARGV: 1 value, 2 milliseconds after which it expires
-- Returns 1, or 0: there is a later one.
local function digits(s)
  return string.match(string.sub(s, 1, 32), '^[0-9a-f]+$') or ''
end
local held, new = digits(redis.call('GETRANGE', KEYS[1], 0, 31)), digits(ARGV[1])
if #held == 32 and held > new then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
