-- An answer came: ARGV[2..5] the grant (at, tokens, starts, spent) or empty, ARGV[6] the tokens
-- used, ARGV[7..9] limit, remaining and reset of requests, ARGV[10..12] of tokens.

local used = tonumber(ARGV[6])
local age_seconds = now - (tonumber(ARGV[2]) or now)
take('tokens', used - (tonumber(ARGV[3]) or used))
correct('requests', tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]),
  age_seconds, state.starts - (tonumber(ARGV[4]) or state.starts))
correct('tokens', tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]),
  age_seconds, state.spent - (tonumber(ARGV[5]) or state.spent))
save()
return {}
