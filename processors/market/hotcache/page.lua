-- Reads one page of listings, if all partitions hold the state of one block.
--
-- KEYS: 1 meta, 2 the order to walk
-- ARGV: 1 partitions, 2 name of the set, 3 sort, 4 length of a position, 5 position to begin after or '',
--       6 limit, 7 lane or '', 8 term or '', 9 most members to look at, 10 prefix of the rows' keys,
--       11 prefix of the orders' keys, 12 number of the block that the caller knows, 13 that block as a barrier
-- Returns {'ok', number, hash, timestamp, reverts, linked, more, rows…} or {what is missing}.
local meta, order = KEYS[1], KEYS[2]
local partitions, limit, keyLen = tonumber(ARGV[1]), tonumber(ARGV[6]), tonumber(ARGV[4])

local fields = {'n' .. ARGV[2]}
for p = 0, partitions - 1 do
  fields[p + 2] = p
end
local states = redis.call('HMGET', meta, unpack(fields))

-- One block: all partitions have come equally far in the sequence of reverts, and none has changed since
-- the block of the one that is least far.
local number, hash, timestamp, reverts, lowest, changed = nil, '', '', nil, 0, 0
for p = 0, partitions - 1 do
  local s = states[p + 2]
  if not s then
    return {'cold'}
  end
  local n, h, t, r, c = string.match(s, '^r %-?%d+ %x+ %d+ (%d+) (%x+) (%d+) (%d+) (%d+)$')
  if not n then
    return {'cold'}
  end
  if reverts and r ~= reverts then
    return {'torn'}
  end
  reverts = r
  if tonumber(c) > changed then
    changed = tonumber(c)
  end
  if not number or tonumber(n) < tonumber(number) then
    number, hash, timestamp, lowest = n, h, t, p
  elseif n == number and h ~= hash then
    return {'torn'}
  end
end
if changed > tonumber(number) then
  return {'torn'}
end

-- A set that holds more or less than was put into it lost keys to eviction or to a hand. Nothing here can
-- be trusted then, so all of it goes; the writers find their states gone and build again.
local function reset()
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.sub(field, 1, 1) == 'n' then
      for sort = 0, 3 do
        redis.call('UNLINK', ARGV[11] .. sort .. ':' .. string.sub(field, 2))
      end
    end
  end
  for sort = 0, 3 do
    redis.call('UNLINK', ARGV[11] .. sort .. ':' .. ARGV[2])
  end
  for p = 0, partitions - 1 do
    redis.call('UNLINK', ARGV[10] .. p)
  end
  redis.call('UNLINK', meta)
  return {'corrupt'}
end
if redis.call('ZCARD', order) ~= tonumber(states[1] or 0) then
  return reset()
end

local function uint64(s, at)
  local a, b, c, d, e, f, g, h = string.byte(s, at, at + 7)
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end

local now, from, after = tonumber(timestamp), '-', ARGV[5]
if after ~= '' then
  from = '(' .. after .. '\255' -- after every member of that position
end
if ARGV[3] == '1' and now > 0 and (after == '' or uint64(after, 1) < now) then
  local b, rest = {}, now -- in the order of expiry the listings that ended come first
  for i = 8, 1, -1 do
    b[i] = rest % 256
    rest = math.floor(rest / 256)
  end
  from = '[' .. string.char(unpack(b))
end

-- A member is a position and 15 bytes: partition (2), lane (1), term (4), expiry (8).
local found, scanned, chunk = {}, 0, limit + 1
local maxScan = tonumber(ARGV[9])
while #found <= limit do
  if scanned >= maxScan then
    return {'scan'}
  end
  local members = redis.call('ZRANGEBYLEX', order, from, '+', 'LIMIT', 0, chunk)
  for _, m in ipairs(members) do
    local lane, term = string.sub(m, keyLen + 3, keyLen + 3), string.sub(m, keyLen + 4, keyLen + 7)
    local expiry = uint64(m, keyLen + 8)
    if (ARGV[7] == '' or lane == ARGV[7]) and (ARGV[8] == '' or term == ARGV[8])
      and (expiry == 0 or expiry >= now) then -- as rules.ListingExpired
      found[#found + 1] = m
      if #found > limit then
        break
      end
    end
  end
  if #members < chunk then
    break
  end
  scanned = scanned + #members
  from = '(' .. members[#members]
  chunk = 256
end

-- Whether the caller's block is an ancestor of ours: the partition that is least far has passed it.
local linked, more = 0, 0
if tonumber(number) > tonumber(ARGV[12]) then
  local barriers = redis.call('HGET', meta, 'h' .. lowest) or ''
  for i = 1, #barriers, 40 do
    if string.sub(barriers, i, i + 39) == ARGV[13] then
      linked = 1
      break
    end
  end
end
if #found > limit then
  more = 1
end
local answer = {'ok', number, hash, timestamp, reverts, linked, more}
for i = 1, math.min(#found, limit) do
  local m = found[i]
  local p1, p2 = string.byte(m, keyLen + 1, keyLen + 2)
  local row = redis.call('HGET', ARGV[10] .. (p1 * 256 + p2), string.sub(m, keyLen - 31, keyLen))
  if not row then
    return reset()
  end
  answer[#answer + 1] = row
end
return answer
