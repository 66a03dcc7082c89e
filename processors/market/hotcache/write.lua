-- Moves one partition from the state `expected` to the state `next`, with all rows that changed between
-- them, or does nothing and says what the partition's state is.
--
-- KEYS: 1 meta, 2 the partition's rows
-- ARGV: 1 partition, 2 expected, 3 next, 4 barrier to remember or '', 5 how many barriers to keep,
--       6 prefix of the orders' keys, then for each row its id and its value ('' = gone)
-- Returns {1, rows before} or {0, the state found}.
local meta, rows, partition = KEYS[1], KEYS[2], ARGV[1]
local current = redis.call('HGET', meta, partition) or ''
if current ~= ARGV[2] then
  return {0, current}
end

-- Until the last line the state is one that no reader takes. A Redis out of memory refuses this line
-- before anything has changed; whatever stops the script later leaves a state that is built again.
redis.call('HSET', meta, partition, 'x')

-- The header of a row: where its parts begin and end. See row.go.
local heads = {{1, 8}, {9, 16}, {17, 32}, {33, 64}}
local headEnd, suffixAt, suffixEnd, laneAt, tokenAt, tokenEnd = 99, 65, 79, 67, 80, 99

-- Members are gathered and then written by set: a command a set, not one a member. A row comes once, so
-- that what goes can go before what comes.
local gathered, counted = {ZREM = {}, ZADD = {}}, {}

local function index(command, id, row)
  local suffix = string.sub(row, suffixAt, suffixEnd)
  local sets = {'a', 'l' .. string.sub(row, laneAt, laneAt), 't' .. string.sub(row, tokenAt, tokenEnd)}
  for sort = 1, 4 do
    local member = string.sub(row, heads[sort][1], heads[sort][2]) .. id .. suffix
    for _, set in ipairs(sets) do
      local key = ARGV[6] .. (sort - 1) .. ':' .. set
      local args = gathered[command][key]
      if not args then
        args = {}
        gathered[command][key] = args
      end
      if command == 'ZADD' then
        args[#args + 1] = 0
      end
      args[#args + 1] = member
      if sort == 1 then
        counted[key] = set
      end
    end
  end
end

local function flush(command, sign)
  for key, args in pairs(gathered[command]) do
    local n = 0
    for from = 1, #args, 1000 do -- what unpack takes has a limit
      n = n + redis.call(command, key, unpack(args, from, math.min(from + 999, #args)))
    end
    -- What a set holds is counted where eviction cannot take it without taking the partition's state.
    local set = counted[key]
    if set and n ~= 0 and redis.call('HINCRBY', meta, 'n' .. set, sign * n) == 0 then
      redis.call('HDEL', meta, 'n' .. set)
    end
  end
end

for i = 7, #ARGV, 2 do
  local id, row = ARGV[i], ARGV[i + 1]
  local old = redis.call('HGET', rows, id)
  local same = old and row ~= '' and string.sub(old, 1, headEnd) == string.sub(row, 1, headEnd)
  if old and not same then
    index('ZREM', id, old)
  end
  if row == '' then
    redis.call('HDEL', rows, id)
  else
    redis.call('HSET', rows, id, row)
    if not same then
      index('ZADD', id, row)
    end
  end
end

flush('ZREM', -1)
flush('ZADD', 1)

local keep = tonumber(ARGV[5]) * 40
if keep == 0 then
  redis.call('HDEL', meta, 'h' .. partition)
elseif ARGV[4] ~= '' then
  local former = redis.call('HGET', meta, 'h' .. partition) or ''
  if string.sub(former, -40) ~= ARGV[4] then
    redis.call('HSET', meta, 'h' .. partition, string.sub(former .. ARGV[4], -keep))
  end
end

redis.call('HSET', meta, partition, ARGV[3])
return {1, ''}
