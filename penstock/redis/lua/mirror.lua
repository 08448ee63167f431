-- A queue's mirror, and the jobs in it. What the keys hold stands in keys.py.

local TYPES = {
  queue = 'list', retry = 'zset', dlq = 'list', jobs = 'hash', ended = 'zset', reserved = 'zset',
}
local ENTRY = '^(%d+) (%d+) (%d+) (%l+) ([%d.]+) (%S+) ([^\n]*)\n(.*)$'
local JOB_FIELDS = 8
-- Lua cannot hand more than some 8,000 values to a command.
local VALUES_AT_ONCE = 5000

local function read_now()
  local time = redis.call('TIME')
  return string.format('%010d%06d', time[1], time[2])
end

-- A string key of ours; nothing when it holds something else.
local function read_text(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and value or nil
end

local function drop_wrong_types(queue)
  local dropped = {}
  for name, kind in pairs(TYPES) do
    local key = queue .. ':' .. name
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= kind then
      redis.call('DEL', key)
      dropped[#dropped + 1] = key
    end
  end
  return dropped
end

local function read_job(index)
  return {
    queue = ARGV[index], id = ARGV[index + 1], place = ARGV[index + 2], version = ARGV[index + 3],
    run_at = ARGV[index + 4], node = ARGV[index + 5], tenant = ARGV[index + 6],
    payload = ARGV[index + 7],
  }
end

local function is_active(job)
  return job.place == 'queue' or job.place == 'retry' or job.place == 'claimed'
end

-- A field of a queue's jobs, or nothing if it is not one of ours.
local function parse_entry(id, text)
  local version, job, touched, place, run_at, node, payload, tenant = string.match(text, ENTRY)
  if not version or job ~= string.rep('0', #job - #id) .. id then
    return nil
  end
  return {
    version = version, touched = touched, place = place, run_at = run_at, node = node,
    payload = payload, tenant = tenant,
  }
end

local function read_entry(queue, id)
  local text = redis.call('HGET', queue .. ':jobs', id)
  return text and parse_entry(id, text) or nil
end

local function format_entry(id, job, now)
  local order = string.format('%s %019d', job.version, id)
  local where = table.concat({ order, now, job.place, job.run_at, job.node, job.payload }, ' ')
  return where .. '\n' .. job.tenant
end

local function write_entry(job, now)
  redis.call('HSET', job.queue .. ':jobs', job.id, format_entry(job.id, job, now))
end

local function remove_entry(queue, id, version)
  redis.call('HDEL', queue .. ':jobs', id)
  redis.call('ZADD', queue .. ':ended', version, id)
end

-- A node's key names the job that changed last: the others have ended, though Redis may not know.
-- Answers whether anything changed.
local function set_node_job(queue, id, entry)
  local key = queue .. ':pending:' .. entry.node
  local holder = read_text(key)
  if holder == id then
    return false
  end
  local other = holder and read_entry(queue, holder)
  if other and other.node == entry.node and other.version > entry.version then
    return false
  end
  redis.call('SET', key, id)
  return true
end

local function clear_node_job(queue, node, id)
  local key = queue .. ':pending:' .. node
  if read_text(key) == id then
    redis.call('DEL', key)
  end
end

local function push(command, key, values)
  for first = 1, #values, VALUES_AT_ONCE do
    redis.call(command, key, unpack(values, first, math.min(first + VALUES_AT_ONCE - 1, #values)))
  end
end

local function wake(queue)
  redis.call('PUBLISH', 'penstock:wake', queue)
end
