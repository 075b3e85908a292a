-- Decides any number of tenants' demands in one call: the twin of quota.Rule.Take, on the same bytes, held to it by a
-- differential test. Redis runs a script to its end before anything else, so each decision is atomic.
--
-- KEYS     one quota record for each demand; on a cluster all of one tenant.
-- ARGV[1]  the rule: slice in ms, slices in a window, day in ms (a multiple of the slice).
-- ARGV[2]  the demands in KEYS' order: minute limit, day limit, want, known day, its use, spent in the window, spent day,
--          its use. All numbers here are uint32: struct.pack wraps silently, so the caller has brought them into range.
-- ARGV[3]  now in Unix ms, for tests only. Everyone else gets this server's clock: the one clock of all gateways.
--
-- Reply    one string: now as uint64, then for each demand a status byte; granted as uint32; as uint64 the slice whose
--          release brings the minute's use under its limit, where it is not under it already; the record's summary.
--          A status other than OK concerns that record alone, which is left as it was, and what follows it is void.
--          Any other failure (a replica, no memory) would meet every tenant alike: it fails the call at its first write.
--
-- A record is a ring of counts, by slice modulo slices, and a summary: version, count of the newest used slice, the day's
-- use, the latest slice seen, newest and oldest used slice, sum. Only the ring's slots from the oldest used slice up to
-- before the newest are true, the others are stale: so nothing has to be cleared when slices leave the window.
local unpack, pack, rep, call = struct.unpack, struct.pack, string.rep, redis.call

local OK, WRONG_TYPE, WRONG_LENGTH, WRONG_VERSION = 0, 1, 2, 3
local VERSION = 0x31677470
local SUMMARY, SUMMARY_BYTES = '<I4I4I4I8I8I8I8', 44
local DEMAND_BYTES = 32
local VOID = rep('\0', 4 + 8 + SUMMARY_BYTES)
local COUNT_MAX = 4294967295
local NEAR = 16 -- counts that are read first in search of the next oldest slice
local AHEAD_MS = 5000 -- a record further in the future than this is dated anew

local slice_ms, slices, day_ms = unpack('<I4I4I4', ARGV[1])
local ring_bytes = slices * 4
-- Offsets that every decision needs, as text: redis.call takes a third longer with numbers, which it has to format.
local RING_END, SUMMARY_START, PAST_END =
  tostring(ring_bytes - 1), tostring(ring_bytes), tostring(ring_bytes + SUMMARY_BYTES)
local demands = ARGV[2]
local now = tonumber(ARGV[3])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
end
local this_slice = (now - now % slice_ms) / slice_ms

local function day_of(slice)
  local ms = slice * slice_ms
  return (ms - ms % day_ms) / day_ms
end
local today = day_of(this_slice)

-- The first slice from the given one on, and before newest, that has use; newest where none has.
local function used_from(ring, slice, newest)
  while slice < newest do
    local slot = slice % slices
    local found = string.find(ring, '[^%z]', slot * 4 + 1)
    if found then
      slice = slice - slot + (found - 1 - (found - 1) % 4) / 4
      break
    end
    slice = slice - slot + slices
  end
  return slice < newest and slice or newest
end

local function decide(key, demand_at)
  local minute_limit, day_limit, want, known_day, known_used, spent, spent_day, spent_day_used =
    unpack('<I4I4I4I4I4I4I4I4', demands, demand_at)

  -- A byte more than the summary has is asked for, so that its length proves the record's.
  local stored = redis.pcall('GETRANGE', key, SUMMARY_START, PAST_END)
  local version, count, day_used, at, newest, oldest, sum, stored_day
  if type(stored) == 'table' then
    if string.find(stored.err, 'WRONGTYPE', 1, true) then return WRONG_TYPE end
    call('GETRANGE', key, '0', '0') -- fails again, now for the whole call
  elseif #stored == SUMMARY_BYTES then
    version, count, day_used, at, newest, oldest, sum = unpack(SUMMARY, stored)
    if version ~= VERSION or newest > at or oldest > newest or oldest < newest - slices
      or sum > 0 and newest < at - slices then
      return WRONG_VERSION
    end
    stored_day = at == this_slice and today or day_of(at)
  elseif stored == '' and call('EXISTS', key) == 0 then
    count, day_used, at, newest, oldest, sum = 0, 0, 0, 0, 0, 0
  else
    return WRONG_LENGTH
  end

  -- Bring the record to now.
  local ring
  if at * slice_ms > now + AHEAD_MS then
    count = sum < COUNT_MAX and sum or COUNT_MAX
    sum, at, newest, oldest = count, this_slice, this_slice, this_slice
  elseif this_slice > at then
    at = this_slice
    if today ~= stored_day then day_used = 0 end
    local first = at - slices
    if newest < first then
      sum, oldest = 0, newest
    elseif oldest < first and sum > 0 then
      -- Mostly few slices leave, and the next with use is near. Else the whole ring is read.
      local slot, leaving = oldest % slices, first - oldest
      local near = call('GETRANGE', key, slot * 4, (slot < slices - NEAR and slot + NEAR or slices) * 4 - 1)
      local found = string.find(near, '[^%z]', leaving * 4 + 1)
      local next_used = found and oldest + (found - 1 - (found - 1) % 4) / 4
      if found and next_used < newest then
        for byte = 1, leaving * 4, 4 do sum = sum - unpack('<I4', near, byte) end
        oldest = next_used
      else
        ring = call('GETRANGE', key, '0', RING_END)
        repeat
          sum = sum - unpack('<I4', ring, oldest % slices * 4 + 1)
          oldest = used_from(ring, oldest + 1, newest)
        until oldest >= first
      end
    end
  end
  local day = at == this_slice and today or stored_day

  -- Add what the asker knows and this record does not.
  if known_day == day and known_used > day_used then day_used = known_used end
  if spent_day == day then
    day_used = day_used + spent_day_used
    if day_used > COUNT_MAX then day_used = COUNT_MAX end
  end
  local counted = (sum > 0 and newest == at) and count or 0
  if spent > COUNT_MAX - counted then spent = COUNT_MAX - counted end

  -- Both or neither.
  local granted = want
  if granted > minute_limit - sum - spent then granted = minute_limit - sum - spent end
  if granted > day_limit - day_used then granted = day_limit - day_used end
  if granted < 0 then granted = 0 end

  -- Charge the current slice. If it is a new one, the last one's count goes into the ring, before a zero for each between.
  local charge = spent + granted
  if charge > 0 then
    if sum == 0 then
      newest, oldest, count = at, at, 0
    elseif newest < at then
      local slot, counts = newest % slices, pack('<I4', count) .. rep('\0', (at - newest - 1) * 4)
      local room = (slices - slot) * 4
      call('SETRANGE', key, slot * 4, string.sub(counts, 1, room))
      if #counts > room then call('SETRANGE', key, '0', string.sub(counts, room + 1)) end
      newest, count, ring = at, 0, nil
    end
    count, sum, day_used = count + charge, sum + charge, day_used + granted
  end

  local summary = pack(SUMMARY, VERSION, count, day_used, at, newest, oldest, sum)
  if summary ~= stored and (stored_day or sum > 0 or day_used > 0) then
    call('SETRANGE', key, SUMMARY_START, summary)
    if day ~= stored_day then
      -- Kept until its day and its window are past, even by a clock that lags by what is tolerated.
      call('PEXPIRE', key, (day + 1) * day_ms + (slices + 1) * slice_ms + AHEAD_MS - now)
    end
  end

  -- Only use above the limit takes a search: at the limit, the oldest slice's release will do.
  local retry = oldest
  if sum > minute_limit and oldest < newest then
    ring = ring or call('GETRANGE', key, '0', RING_END)
    local left = sum
    while retry < newest do
      left = left - unpack('<I4', ring, retry % slices * 4 + 1)
      if left < minute_limit then break end
      retry = used_from(ring, retry + 1, newest)
    end
  end
  return OK, granted, retry, summary
end

local replies = { pack('<I8', now) }
for i = 1, #KEYS do
  local status, granted, retry, summary = decide(KEYS[i], (i - 1) * DEMAND_BYTES + 1)
  if status == OK then
    replies[i + 1] = pack('<BI4I8c0', OK, granted, retry, summary)
  else
    replies[i + 1] = pack('<B', status) .. VOID
  end
end
return table.concat(replies)
