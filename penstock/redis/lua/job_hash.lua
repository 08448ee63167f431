-- One step of a scan of the jobs of the queue ARGV[3]: ARGV[1] is the cursor, ARGV[2] the count.
-- Removes fields that are no jobs, and sets the key of each job's node. Returns the next cursor,
-- how many fields were removed, and how many node keys did not name their job.

local queue = ARGV[3]
local step = redis.call('HSCAN', queue .. ':jobs', ARGV[1], 'COUNT', ARGV[2])
local foreign, unnamed = 0, 0
for index = 1, #step[2], 2 do
  local id, text = step[2][index], step[2][index + 1]
  local entry = parse_entry(id, text)
  if not entry then
    foreign = foreign + redis.call('HDEL', queue .. ':jobs', id)
  elseif set_node_job(queue, id, entry) then
    unnamed = unnamed + 1
  end
end
return { step[1], foreign, unnamed }
