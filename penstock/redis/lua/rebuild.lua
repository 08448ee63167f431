-- Builds the lists and counters of the queue ARGV[1] anew from its jobs; ARGV[2] and on are the
-- tenants that have a counter now. Under other names first: if this fails, the old ones stay.

local queue = ARGV[1]
local PLACES = '^%d+ %d+ %d+ (%l+) ([%d.]+) %S+ ([^\n]*)\n(.*)$'

local function swap(name, values, command)
  local next_key = queue .. ':' .. name .. ':next'
  redis.call('DEL', next_key)
  push(command, next_key, values)
  if #values > 0 then
    redis.call('RENAME', next_key, queue .. ':' .. name)
  else
    redis.call('DEL', queue .. ':' .. name)
  end
end

local waiting, retries, tenants = {}, {}, {}
for index = 2, #ARGV do
  tenants[ARGV[index]] = 0
end
for _, text in ipairs(redis.call('HVALS', queue .. ':jobs')) do
  local place, run_at, payload, tenant = string.match(text, PLACES)
  if place then
    tenants[tenant] = (tenants[tenant] or 0) + 1
  end
  if place == 'queue' then
    waiting[#waiting + 1] = text
  elseif place == 'retry' then
    retries[#retries + 1] = run_at
    retries[#retries + 1] = payload
  end
end

-- Their text begins with when they came.
table.sort(waiting)
local payloads = {}
for index = #waiting, 1, -1 do
  payloads[#payloads + 1] = select(3, string.match(waiting[index], PLACES))
end
swap('queue', payloads, 'RPUSH')
swap('retry', retries, 'ZADD')
for tenant, number in pairs(tenants) do
  local key = queue .. ':tenant:pending:' .. tenant
  if number > 0 then
    redis.call('SET', key, number)
  else
    redis.call('DEL', key)
  end
end
if #payloads > 0 then
  wake(queue)
end
return #payloads
