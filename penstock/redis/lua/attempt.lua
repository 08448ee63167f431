-- May a call of ARGV[2] tokens go out? Answers the seconds to wait, and for 0 the grant.

local TOLERANCE_SECONDS = 0.000001

local tokens = tonumber(ARGV[2])
local seconds = math.max(
  state.next_at - now,
  wait_seconds('requests', 1),
  wait_seconds('tokens', tokens)
)
if seconds > TOLERANCE_SECONDS then
  return { write(seconds), '0', '0', '0' }
end
take_slot()
take('requests', 1)
take('tokens', tokens)
state.starts = state.starts + 1
state.spent = state.spent + tokens
save()
return { '0', write(now), write(state.starts), write(state.spent) }
