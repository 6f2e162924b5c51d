-- One gateway's call at the shared budget of one upstream, as one step: gateway/domain/shares.py's ShareBook.beat, which
-- says why; tests hold the two to each other. All numbers are integers below 2^53.
--
-- KEYS[1]: a hash of the upstream. ARGV: owner, ttl_ms, then the call: serial, seen, next_id, depth, and one number for
-- each shared resource of keeps, holds, wants, takes, totals. With no more than an owner: it leaves.
local key, me = KEYS[1], ARGV[1]
if #ARGV == 1 then
  redis.call('HDEL', key, 'o:' .. me)
  return {}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl = tonumber(ARGV[2])
local R = (#ARGV - 6) / 5

-- The fields of an owner: heard, serial, next_since, next_id, depth, then the lists.
local HEARD, SERIAL, SINCE, NEXT, DEPTH = 1, 2, 3, 4, 5
local SHARES, HOLDS, WANTS, TAKES, TOTALS = 5, 5 + R, 5 + 2 * R, 5 + 3 * R, 5 + 4 * R

local owners, names, state = {}, {}, {}
local stored = redis.call('HGETALL', key)
for i = 1, #stored, 2 do
  local field = stored[i]
  if string.sub(field, 1, 2) == 'o:' then
    local owner = {}
    for number in string.gmatch(stored[i + 1], '%S+') do owner[#owner + 1] = tonumber(number) end
    owners[string.sub(field, 3)] = owner
  else
    state[field] = stored[i + 1]
  end
end

local serial, seen = tonumber(ARGV[3]), tonumber(ARGV[4])
if owners[me] and serial <= owners[me][SERIAL] then return {} end

-- The clock, and what this store may have lost.
local count, heard = tonumber(state.count or '0'), tonumber(state.heard or '-1')
local settled = tonumber(state.settled or '0')
local silence = now - heard
if count < seen or heard < 0 or silence < 0 or silence > math.floor(ttl / 2) then
  settled = now + ttl
  for _, owner in pairs(owners) do owner[HEARD] = now end
end
count = math.max(count, seen) + 1
local gone = {}
for name, owner in pairs(owners) do
  if now - owner[HEARD] > ttl then gone[#gone + 1] = name end
end
for _, name in ipairs(gone) do
  owners[name] = nil
  redis.call('HDEL', key, 'o:' .. name)
end

local next_id = tonumber(ARGV[5])
local since = now
if owners[me] and owners[me][NEXT] == next_id then since = owners[me][SINCE] end
local mine = {now, serial, since, next_id, tonumber(ARGV[6])}
for i = 7, #ARGV do mine[#mine + 1] = tonumber(ARGV[i]) end
owners[me] = mine
for name in pairs(owners) do names[#names + 1] = name end
table.sort(names)

local totals = {}
for r = 1, R do
  totals[r] = -1
  for _, name in ipairs(names) do
    local told = owners[name][TOTALS + r]
    if told ~= -1 and (totals[r] == -1 or told < totals[r]) then totals[r] = told end
  end
end

-- Fair parts of what is left after `aside` was set aside for `first`.
local function parts_of(r, first, aside)
  local parts, wanted, order, left = {}, {}, {}, totals[r] - aside
  for index, name in ipairs(names) do
    wanted[index] = owners[name][WANTS + r]
    if name == first then wanted[index] = math.max(0, wanted[index] - aside) end
    order[index] = index
    parts[index] = 0
  end
  if totals[r] == -1 then return parts end
  table.sort(order, function(a, b)
    if wanted[a] ~= wanted[b] then return wanted[a] < wanted[b] end
    return a < b
  end)
  for served, index in ipairs(order) do
    parts[index] = math.min(wanted[index], math.floor(left / (#order - served + 1)))
    left = left - parts[index]
  end
  for served, index in ipairs(order) do
    local spare = math.floor(left / (#order - served + 1))
    parts[index] = parts[index] + spare
    left = left - spare
  end
  for index, name in ipairs(names) do
    if name == first then parts[index] = parts[index] + aside end
  end
  return parts
end

local fair = {}
for r = 1, R do fair[r] = parts_of(r, nil, 0) end

-- Whose request that is larger than its fair part is to be let in.
local turn, turn_id = state.turn or '', tonumber(state.turn_id or '0')
local holds_on, eldest = false, nil
for index, name in ipairs(names) do
  local is_large = false
  for r = 1, R do
    if totals[r] ~= -1 and owners[name][TAKES + r] > fair[r][index] then is_large = true end
  end
  if is_large then
    if name == turn and owners[name][NEXT] == turn_id then holds_on = true end
    if not eldest or owners[name][SINCE] < owners[eldest][SINCE] then eldest = name end
  end
end
if not holds_on then
  turn, turn_id = '', 0
  if eldest then turn, turn_id = eldest, owners[eldest][NEXT] end
end
if turn ~= '' then
  for r = 1, R do
    local needed = owners[turn][TAKES + r]
    if needed > 0 then needed = needed + owners[turn][HOLDS + r] end
    fair[r] = parts_of(r, turn, math.min(needed, totals[r]))
  end
end

local answer = {now, count, #names, 0}
local shares, targets, others_hold, others_want = {}, {}, {}, {}
for r = 1, R do
  for index, name in ipairs(names) do
    if name == me then targets[r] = fair[r][index] end
  end
  local taken = 0
  others_hold[r], others_want[r] = 0, 0
  for _, name in ipairs(names) do
    local owner = owners[name]
    taken = taken + math.max(owner[SHARES + r], owner[HOLDS + r])
    if name ~= me then
      others_hold[r] = others_hold[r] + owner[HOLDS + r]
      others_want[r] = others_want[r] + owner[WANTS + r]
    end
  end
  local keeps = mine[SHARES + r]
  shares[r] = keeps
  if now >= settled then
    local used = math.max(keeps, mine[HOLDS + r])
    shares[r] = math.max(keeps, math.min(targets[r], used + math.max(0, totals[r] - taken)))
  end
end
for _, name in ipairs(names) do
  if name ~= me then answer[4] = answer[4] + owners[name][DEPTH] end
end
for r = 1, R do mine[SHARES + r] = shares[r] end

for _, list in ipairs({shares, targets, totals, others_hold, others_want}) do
  for r = 1, R do answer[#answer + 1] = list[r] end
end

local function text_of(number) return string.format('%.0f', number) end
for _, name in ipairs(names) do
  local texts = {}
  for i, number in ipairs(owners[name]) do texts[i] = text_of(number) end
  redis.call('HSET', key, 'o:' .. name, table.concat(texts, ' '))
end
redis.call('HSET', key, 'count', text_of(count), 'heard', text_of(now), 'settled', text_of(settled),
  'turn', turn, 'turn_id', text_of(turn_id))
redis.call('PEXPIRE', key, 3600000)
return answer
