-- Removes values of another kind from under the names of the queues in ARGV; answers their keys.

local dropped = {}
for _, queue in ipairs(ARGV) do
  for _, key in ipairs(drop_other_kinds(queue)) do
    dropped[#dropped + 1] = key
  end
end
return dropped
