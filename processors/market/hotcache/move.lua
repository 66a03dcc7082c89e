-- Moves partitions whose rows are the same from one state to another, or says of which the state is not the expected one.
--
-- KEYS: 1 meta
-- ARGV: for each partition five: itself, expected, next, barrier to remember, how many barriers to keep
-- Returns for each 1, or 0 where nothing was done.
local meta, moved = KEYS[1], {}
for i = 1, #ARGV, 5 do
  local partition, barriers = ARGV[i], 'h' .. ARGV[i]
  local current = redis.call('HMGET', meta, partition, barriers)
  if (current[1] or '') ~= ARGV[i + 1] then
    moved[#moved + 1] = 0
  else
    local kept = current[2] or ''
    if string.sub(kept, -40) ~= ARGV[i + 3] then
      kept = string.sub(kept .. ARGV[i + 3], -40 * tonumber(ARGV[i + 4]))
    end
    redis.call('HSET', meta, barriers, kept, partition, ARGV[i + 2])
    moved[#moved + 1] = 1
  end
end
return moved
