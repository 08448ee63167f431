-- One step of a scan of the keys of nodes and tenants: ARGV[1] is the cursor, ARGV[2] the count,
-- then come the queues. Removes a node's key that names no job of that node. Returns the next
-- cursor, how many were removed, how many had another type and were removed, and queue and tenant
-- of the counters found.

local queues = {}
for index = 3, #ARGV do
  queues[ARGV[index]] = true
end

local function is_owned(queue, node, holder)
  local entry = holder and read_entry(queue, holder)
  return entry and entry.node == node
end

local step = redis.call('SCAN', ARGV[1], 'MATCH', '*:pending:*', 'COUNT', ARGV[2])
local stale, wrong_types, counters = 0, 0, {}
for _, key in ipairs(step[2]) do
  local queue, node = string.match(key, '^(%l+):pending:(.*)$')
  local counted, tenant = string.match(key, '^(%l+):tenant:pending:(.*)$')
  if queues[queue or counted] then
    local text = read_text(key)
    if not text then
      wrong_types = wrong_types + redis.call('DEL', key)
    elseif counted then
      counters[#counters + 1] = counted
      counters[#counters + 1] = tenant
    elseif not is_owned(queue, node, text) then
      stale = stale + redis.call('DEL', key)
    end
  end
end
return { step[1], stale, wrong_types, counters }
