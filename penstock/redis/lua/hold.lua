-- A call was refused: ARGV[2..5] its grant (at, tokens, starts, spent) or empty, ARGV[6] the
-- seconds without calls.

refuse(tonumber(ARGV[2]) or now, tonumber(ARGV[6]))
local tokens = tonumber(ARGV[3])
if tokens then
  state.starts = state.starts - 1
  state.spent = state.spent - tokens
  take('requests', -1)
  take('tokens', -tokens)
end
save()
return {}
