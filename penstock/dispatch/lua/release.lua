-- Lets go of the lock ARGV[1] if it is still held with the token ARGV[2].

if read_text(ARGV[1]) == ARGV[2] then
  return redis.call('DEL', ARGV[1])
end
return 0
