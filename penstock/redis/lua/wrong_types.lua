-- Removes keys of the queues in ARGV that have another type; returns them.

local dropped = {}
for _, queue in ipairs(ARGV) do
  for _, key in ipairs(drop_wrong_types(queue)) do
    dropped[#dropped + 1] = key
  end
end
return dropped
