-- Applies changed jobs. ARGV[1] is a number of groups: jobs that changed alike, of which Redis knows
-- the rest. Each has its queue, the new place (claimed or ended), the version, a number of ids, and
-- these. Then come jobs with eight fields each. Returns the keys that had another type, and the ids
-- in groups that are not known.

local MOST_DEAD = 10000
local MOST_ENDED = 100000
-- Up to so many are removed from a list one by one, more of them in one pass through it.
local FEW = 8
local FIRST_JOB = 2
local LONGEST_WALK = 1000

local now = read_now()
local dropped = {}
-- Per queue, what goes out of its list and comes into it, done at the end and together.
local changes = {}

local function change(queue)
  if not changes[queue] then
    for _, key in ipairs(drop_wrong_types(queue)) do
      dropped[#dropped + 1] = key
    end
    changes[queue] = { leaving = {}, joining = {}, joined = {} }
  end
  return changes[queue]
end

local function is_newer(job, known)
  if known then
    local same = job.version == known.version
    return job.version > known.version
      or same and (job.place ~= known.place or job.payload ~= known.payload
        or job.run_at ~= known.run_at)
  end
  local ended = redis.call('ZSCORE', job.queue .. ':ended', job.id)
  return not ended or tonumber(job.version) > tonumber(ended)
end

local function count(queue, tenant, difference)
  local key = queue .. ':tenant:pending:' .. tenant
  local number = (tonumber(read_text(key)) or 0) + difference
  if number > 0 then
    redis.call('SET', key, string.format('%d', number))
  else
    redis.call('DEL', key)
  end
end

local function remove_known(job, known)
  local lists = change(job.queue)
  if known.place == 'retry' then
    redis.call('ZREM', job.queue .. ':retry', known.payload)
  elseif lists.joined[job.id] then
    lists.joined[job.id] = nil
  elseif known.place == 'queue' then
    lists.leaving[#lists.leaving + 1] = known.payload
  end
end

local function add_to_lists(job)
  if job.place == 'retry' then
    redis.call('ZADD', job.queue .. ':retry', job.run_at, job.payload)
  elseif job.place == 'queue' then
    local lists = change(job.queue)
    lists.joining[#lists.joining + 1] = job
    lists.joined[job.id] = #lists.joining
  end
end

local function enter(job, known)
  write_entry(job, now)
  set_node_job(job.queue, job.id, job)
  if not known then
    count(job.queue, job.tenant, 1)
  end
  add_to_lists(job)
end

local function finish(job, known)
  remove_entry(job.queue, job.id, job.version)
  clear_node_job(job.queue, job.node, job.id)
  if known then
    count(job.queue, known.tenant, -1)
  end
  if job.place == 'dead' then
    redis.call('LPUSH', job.queue .. ':dlq', job.payload)
    redis.call('LTRIM', job.queue .. ':dlq', 0, MOST_DEAD - 1)
  end
end

-- The oldest are at the right and are taken first, so the walk begins there and mostly ends after
-- its first step.
local function remove_many(list, payloads)
  local leaving, missing, kept, walk = {}, #payloads, {}, #payloads
  for _, payload in ipairs(payloads) do
    leaving[payload] = true
  end
  repeat
    local tail = redis.call('RPOP', list, walk) or {}
    local at_end = #tail < walk
    walk = math.min(2 * walk, LONGEST_WALK)
    for _, payload in ipairs(tail) do
      if leaving[payload] then
        leaving[payload] = nil
        missing = missing - 1
      else
        kept[#kept + 1] = payload
      end
    end
  until missing == 0 or at_end
  local back = {}
  for index = #kept, 1, -1 do
    back[#back + 1] = kept[index]
  end
  push('RPUSH', list, back)
end

local function remove(list, payloads)
  if #payloads > FEW then
    return remove_many(list, payloads)
  end
  for _, payload in ipairs(payloads) do
    redis.call('LREM', list, -1, payload)
  end
end

local function write_lists(queue, lists)
  remove(queue .. ':queue', lists.leaving)
  local coming = {}
  for index, job in ipairs(lists.joining) do
    if lists.joined[job.id] == index then
      coming[#coming + 1] = job.payload
    end
  end
  push('LPUSH', queue .. ':queue', coming)
  redis.call('ZREMRANGEBYRANK', queue .. ':ended', 0, -MOST_ENDED - 1)
  if #coming > 0 then
    wake(queue)
  end
end

-- Keys of these jobs' nodes, and which jobs they name: read in one command.
local function read_node_jobs(queue, ids, found)
  local keys = {}
  for index, id in ipairs(ids) do
    keys[index] = queue .. ':pending:' .. found[id].node
  end
  return keys, redis.call('MGET', unpack(keys))
end

local function claim_known(queue, ids, found)
  local values = {}
  local _, named = read_node_jobs(queue, ids, found)
  for index, id in ipairs(ids) do
    if named[index] ~= id then
      set_node_job(queue, id, found[id])
    end
    values[#values + 1] = id
    values[#values + 1] = format_entry(id, found[id], now)
  end
  redis.call('HSET', queue .. ':jobs', unpack(values))
end

local function end_known(queue, ids, found)
  local ended, fewer, own = {}, {}, {}
  local keys, named = read_node_jobs(queue, ids, found)
  for index, id in ipairs(ids) do
    local job = found[id]
    if named[index] == id then
      own[#own + 1] = keys[index]
    end
    fewer[job.tenant] = (fewer[job.tenant] or 0) + 1
    ended[#ended + 1] = job.version
    ended[#ended + 1] = id
  end
  redis.call('HDEL', queue .. ':jobs', unpack(ids))
  redis.call('ZADD', queue .. ':ended', unpack(ended))
  if #own > 0 then
    redis.call('DEL', unpack(own))
  end
  for tenant, number in pairs(fewer) do
    count(queue, tenant, -number)
  end
end

local unknown = {}

local function apply_group(queue, place, version, ids)
  change(queue)
  local found, newer = {}, {}
  for index, text in ipairs(redis.call('HMGET', queue .. ':jobs', unpack(ids))) do
    local id = ids[index]
    local known = text and parse_entry(id, text)
    if not known then
      unknown[#unknown + 1] = id
    elseif version > known.version or version == known.version and place ~= known.place then
      remove_known({ queue = queue, id = id }, known)
      known.version, known.place, known.run_at = version, place, '0'
      found[id] = known
      newer[#newer + 1] = id
    end
  end
  if #newer > 0 then
    (place == 'claimed' and claim_known or end_known)(queue, newer, found)
  end
end

local first = FIRST_JOB
for _ = 1, tonumber(ARGV[1]) do
  local queue, place, version, size = unpack(ARGV, first, first + 3)
  first = first + 4 + size
  apply_group(queue, place, version, { unpack(ARGV, first - size, first - 1) })
end
for index = first, #ARGV, JOB_FIELDS do
  local job = read_job(index)
  change(job.queue)
  local known = read_entry(job.queue, job.id)
  if is_newer(job, known) then
    if known then
      remove_known(job, known)
    end
    if is_active(job) then
      enter(job, known)
    else
      finish(job, known)
    end
  end
end
for queue, lists in pairs(changes) do
  write_lists(queue, lists)
end
return { dropped, unknown }
