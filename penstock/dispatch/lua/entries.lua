-- One step through the jobs of the queue ARGV[1]: ARGV[2] is the cursor, ARGV[3] how many to look
-- at. Fields that are not ours go; nodes name their jobs. Answers the next cursor, how many fields
-- went, and how many nodes did not name theirs.

local queue = ARGV[1]
local step = redis.call('HSCAN', queue .. ':jobs', ARGV[2], 'COUNT', ARGV[3])
local foreign, unnamed = 0, 0
for index = 1, #step[2], 2 do
  local id, text = step[2][index], step[2][index + 1]
  local entry = parse_entry(id, text)
  if not entry then
    foreign = foreign + redis.call('HDEL', queue .. ':jobs', id)
  elseif hold_node(queue, id, entry) then
    unnamed = unnamed + 1
  end
end
return { step[1], foreign, unnamed }
