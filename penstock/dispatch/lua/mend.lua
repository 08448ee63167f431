-- Jobs as the database has them: ARGV[1] is when that was asked, then come eight fields of each.
-- Whatever was touched since is newer and stays. Answers how many were mended; the lists and
-- counters are rebuilt from them afterwards.

local since = ARGV[1]
local now = read_now()

local function mend_ended(job, known)
  if not known then
    return 0
  end
  -- Its own version, not a newer one: word of its death may still come, for the DLQ.
  remove_entry(job.queue, job.id, known.version)
  free_node(job.queue, known.node, job.id)
  return 1
end

local function mend_active(job, known)
  local ended = redis.call('ZSCORE', job.queue .. ':ended', job.id)
  if not known and ended and tonumber(ended) >= tonumber(job.version) then
    return 0
  end
  write_entry(job, now)
  hold_node(job.queue, job.id, job)
  return 1
end

local mended = 0
for index = 2, #ARGV, JOB_FIELDS do
  local job = read_job(index)
  local known = read_entry(job.queue, job.id)
  if not known or known.touched < since then
    mended = mended + (is_active(job) and mend_active or mend_ended)(job, known)
  end
end
return mended
