-- One model's allowance, kept as a hash of numbers; the same arithmetic as llm/ratelimit.py, which
-- explains it. ARGV[1] is the time, or empty for the server's own.

local KEPT_SECONDS = 3600
local FLOW_MEMORY = 0.9
local SURE_CALLS = 16
local BACK_OFF_SURE = 0.92
local BACK_OFF_UNSURE = 0.7
local BACK_OFF_FIRST = 0.6
local DEEPEST_CUT = 0.25
local FIRST_PER_SECOND = 5
local RISE_PER_SECOND = 0.01
local RISE_PER_CALL = 0.002
local HASTE_UNSURE = 10
local MEMORY_CALLS = 256
local IDLE_SECONDS = 1
local FIRST_SECONDS = 1

local function read_now()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1])
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local now = read_now()
local saved = redis.call('HGETALL', KEYS[1])
local state = setmetatable({ haste = 1 }, { __index = function() return 0 end })
for index = 1, #saved, 2 do
  state[saved[index]] = tonumber(saved[index + 1])
end

-- Lua would write 14 digits: not enough for times in microseconds.
local function write(number)
  return string.format('%.17g', number)
end

local function save()
  local fields = {}
  for name, number in pairs(state) do
    fields[#fields + 1] = name
    fields[#fields + 1] = write(number)
  end
  redis.call('HSET', KEYS[1], unpack(fields))
  local closed_seconds = math.max(0, state.next_at - now)
  redis.call('EXPIRE', KEYS[1], math.ceil(KEPT_SECONDS + closed_seconds))
end

local function flow(bucket)
  local reset = state[bucket .. '_reset']
  return reset > 0 and state[bucket .. '_used'] / reset or 0
end

local function fill(bucket)
  local gained = (now - state[bucket .. '_at']) * flow(bucket)
  state[bucket .. '_level'] =
    math.min(state[bucket .. '_capacity'], state[bucket .. '_level'] + gained)
  state[bucket .. '_at'] = now
end

local function wait_seconds(bucket, amount)
  if flow(bucket) == 0 then
    return 0
  end
  fill(bucket)
  local missing = math.min(amount, state[bucket .. '_capacity']) - state[bucket .. '_level']
  return missing / flow(bucket)
end

local function take(bucket, amount)
  state[bucket .. '_level'] =
    math.min(state[bucket .. '_capacity'], state[bucket .. '_level'] - amount)
end

local function correct(bucket, limit, remaining, reset, age_seconds, taken_since)
  if not limit or not remaining or not reset then
    return
  end
  if reset <= 0 or remaining >= limit then
    return
  end
  fill(bucket)
  local known = flow(bucket) > 0 and state[bucket .. '_capacity'] == limit
  local memory = known and FLOW_MEMORY or 0
  state[bucket .. '_capacity'] = limit
  state[bucket .. '_used'] = state[bucket .. '_used'] * memory + limit - remaining
  state[bucket .. '_reset'] = state[bucket .. '_reset'] * memory + reset
  local bound = remaining + flow(bucket) * age_seconds - taken_since
  state[bucket .. '_level'] = math.min(known and state[bucket .. '_level'] or limit, bound)
end

local function count(unused_seconds)
  if state.since == 0 then
    state.since = now
  elseif unused_seconds > IDLE_SECONDS then
    state.since = state.since + unused_seconds
  end
  state.accepted = state.accepted + 1
  if state.accepted > MEMORY_CALLS then
    state.accepted = state.accepted / 2
    state.since = (now + state.since) / 2
  end
end

local function take_slot()
  local unused_seconds = now - state.next_at
  count(unused_seconds)
  local spacing = state.pace > 0 and 1 / state.pace or 0
  if unused_seconds < spacing then
    state.pace = state.pace + state.haste * math.min(RISE_PER_SECOND, RISE_PER_CALL * state.pace)
  end
  state.next_at = math.max(state.next_at + spacing, now)
end

local function back_off(sure)
  if state.pace == 0 then
    return BACK_OFF_FIRST
  end
  return sure and BACK_OFF_SURE or BACK_OFF_UNSURE
end

local function slow_down()
  local paced = state.pace > 0
  local seconds = math.max(now - state.since, paced and 1 / state.pace or FIRST_SECONDS)
  local measured = state.accepted / seconds
  local sure = paced and state.accepted > SURE_CALLS
  local slower = math.min(measured, paced and state.pace or measured) * back_off(sure)
  state.pace_before = state.pace
  state.pace = math.max(slower, DEEPEST_CUT * state.pace, paced and 0 or FIRST_PER_SECOND)
  state.haste = sure and 1 or HASTE_UNSURE
end

local function refuse(started_at, seconds)
  state.next_at = math.max(state.next_at, now + seconds)
  if started_at < state.changed_at then
    return
  end
  if state.changed_at > 0 and state.accepted <= 1 then
    state.pace = state.pace_before
  else
    slow_down()
  end
  state.accepted, state.since, state.changed_at = 0, now, now
end
