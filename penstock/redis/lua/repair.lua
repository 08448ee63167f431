-- Jobs as the database has them: ARGV[1] is when it was read, then come eight fields of each.
-- Entries written since are newer and stay. Returns how many were repaired; the lists and
-- counters are rebuilt from them afterwards.

local since = ARGV[1]
local now = read_now()

local function repair_ended(job, known)
  if not known then
    return 0
  end
  -- Its own version, not a newer one: its failure may still arrive, for the DLQ.
  remove_entry(job.queue, job.id, known.version)
  clear_node_job(job.queue, known.node, job.id)
  return 1
end

local function repair_active(job, known)
  local ended = redis.call('ZSCORE', job.queue .. ':ended', job.id)
  if not known and ended and tonumber(ended) >= tonumber(job.version) then
    return 0
  end
  write_entry(job, now)
  set_node_job(job.queue, job.id, job)
  return 1
end

local repaired = 0
for index = 2, #ARGV, JOB_FIELDS do
  local job = read_job(index)
  local known = read_entry(job.queue, job.id)
  if not known or known.touched < since then
    repaired = repaired + (is_active(job) and repair_active or repair_ended)(job, known)
  end
end
return repaired
