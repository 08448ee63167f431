-- Room for ARGV[2] jobs of tenant ARGV[3] in every queue named from ARGV[7] on: at most ARGV[4]
-- may wait in each, and the tenant may have ARGV[5]. Granted to the token ARGV[1] for ARGV[6]
-- seconds. Returns nothing, or the refusal: queue, limit, figure.

local token, count, tenant = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_depth, tenant_max, seconds = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local FIRST_QUEUE = 7
local now = tonumber(read_now())

local function size(command, key)
  local number = redis.pcall(command, key)
  return type(number) == 'number' and number or 0
end

local function read_reserved(queue)
  local key = queue .. ':reserved'
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  local all, own = 0, 0
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local number, of_tenant = string.match(member, '^%S+ (%d+) (.*)$')
    if number then
      all = all + number
      own = own + (of_tenant == tenant and number or 0)
    end
  end
  return all, own
end

local function refuse(queue)
  local all, own = read_reserved(queue)
  local depth = size('LLEN', queue .. ':queue') + size('ZCARD', queue .. ':retry') + all
  if depth + count > max_depth then
    return { queue, 'total depth', depth }
  end
  local active = (tonumber(read_text(queue .. ':tenant:pending:' .. tenant)) or 0) + own
  if active + count > tenant_max then
    return { queue, 'tenant pending', active }
  end
  return nil
end

for index = FIRST_QUEUE, #ARGV do
  local refusal = refuse(ARGV[index])
  if refusal then
    return refusal
  end
end
for index = FIRST_QUEUE, #ARGV do
  local key = ARGV[index] .. ':reserved'
  redis.call('ZADD', key, string.format('%d', now + seconds * 1000000),
    table.concat({ token, count, tenant }, ' '))
  redis.call('EXPIRE', key, math.ceil(seconds) + 1)
end
return {}
