-- Decides the demands of any number of tenants in one call. It does the same as quota.Rule.Take, on the same bytes; a
-- differential test compares them. Redis runs one script at a time, so each decision is atomic.
--
-- KEYS     one quota record for each demand. On a cluster there is one demand, because a call may use only one slot.
-- ARGV[1]  the rule as uint32: slice in ms, slices in a window, day in ms (a multiple of the slice).
-- ARGV[2]  the demands in KEYS' order, as doubles, which are unpacked fastest: minute limit, day limit, want, known day,
--          the use of that day, the known use of the window. The caller has limited limits and want to [0, LimitMax], and all use to uint32's range.
-- ARGV[3]  the debts from outages in KEYS' order, as doubles: spent in the window, spent day, the use of that day; empty if
--          there are no debts.
-- ARGV[4]  the batch: its number as a double and 8 bytes that name the gateway's process; 16 zero bytes if it has no name. A batch
--          has each key once. A demand that was decided before in the same batch is not decided again: it gets what it was
--          granted then.
-- ARGV[5]  now in Unix ms, only in tests. Otherwise the script uses this server's clock, the same for all gateways.
--
-- Reply    one string: now as uint64; for each demand a summary; remarks on some of the demands, in their order. A remark
--          is the demand's index, from 0, as uint32, and a byte:
--            none     the whole want is granted; the summary is that of the record before its counts grew by the want
--            GRANTED  the whole want is granted, and the minute has more; the summary is that of the record now
--            LIMITED  two numbers follow: what was granted, as uint32; a slice, as uint64, whose release brings the minute's
--                     use below its limit (no meaning if it is below already); the summary is that of the record now
--            others   this record is unusable and stays unchanged; the summary is void
--          GRANTED and LIMITED have LOST added if the record had less use of the day than the gateway knows.
--          Any other failure (a replica, no memory) would affect all tenants: the first write fails the whole call.
--
-- A record is a ring of counts, by slice modulo slices, and a summary: version, the latest slice seen, newest and oldest
-- used slice, count of the newest, the day's use, sum. The ring's slots are valid from the oldest used slice up to the one
-- before the newest. All other slots are stale, so that nothing has to be cleared when slices leave the window.
--
-- Behind the summary are the last batch that charged the record, with what it was granted, and the last 8 batches that charged debts.
-- If a batch is sent again when it is no longer there, its demand is decided again: it may be charged twice, and never less than
-- once. What may follow is ignored.
local unpack, pack, rep, sub, find, call = struct.unpack, struct.pack, string.rep, string.sub, string.find, redis.call

local GRANTED, LIMITED, WRONG_TYPE, WRONG_LENGTH, WRONG_VERSION = 1, 2, 3, 4, 5
local LOST = 16
local VERSION = 0x32677470
local SUMMARY, SUMMARY_BYTES = '<I4I8I8I8I4I4I8', 44
local COUNTS, COUNTS_AT = '<I4I4I8', 28 -- the end of the summary: the counts that grow during a slice
local BATCH_BYTES, NO_BATCH = 16, rep('\0', 16)
local LAST, LAST_BYTES = 'c16I4', 20 -- a batch, and what it was granted
local SUMMARY_AND_NUMBER, COUNTS_AND_LAST = SUMMARY .. 'd', COUNTS .. LAST -- LAST begins with a number
local RECENT_BYTES = SUMMARY_BYTES + LAST_BYTES
local REPORTS_BYTES = 8 * BATCH_BYTES
local DEMAND, DEMAND_BYTES = '<dddddd', 48
local DEBT, DEBT_BYTES = '<ddd', 24
local REMARK, REMARK_LIMITED = '<I4B', '<I4BI4I8'
local VOID = rep('\0', RECENT_BYTES)
local COUNT_MAX = 4294967295
local NEAR = 16 -- how many counts are read first to find the next oldest slice
local AHEAD_MS = 5000 -- a record further in the future than this is moved to now

local slice_ms, slices, day_ms = unpack('<I4I4I4', ARGV[1])
local ring_bytes = slices * 4
local keys, demands, debts, batch, now = KEYS, ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local number = unpack('<d', batch)
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
end
local this_slice = (now - now % slice_ms) / slice_ms

-- Returns an offset as text: with numbers, which redis.call must format, a call takes 1.5 times as long. Most demands use
-- the same offsets.
local texts = {}
local function text(offset)
  local known = texts[offset]
  if not known then
    known = tostring(offset)
    texts[offset] = known
  end
  return known
end
local SUMMARY_START, COUNTS_START, LAST_END =
  text(ring_bytes), text(ring_bytes + COUNTS_AT), text(ring_bytes + RECENT_BYTES - 1)

local function day_of(slice)
  local ms = slice * slice_ms
  return (ms - ms % day_ms) / day_ms
end
local today = day_of(this_slice)

local function read_ring(key) return call('GETRANGE', key, '0', text(ring_bytes - 1)) end

-- Returns the first slice with use, from the given one on and before newest, or newest if there is none.
local function used_from(ring, slice, newest)
  while slice < newest do
    local slot = slice % slices
    local found = find(ring, '[^%z]', slot * 4 + 1)
    if found then
      slice = slice - slot + (found - 1 - (found - 1) % 4) / 4
      break
    end
    slice = slice - slot + slices
  end
  return slice < newest and slice or newest
end

-- Decides the demand with this index. stored is the record's summary and last batch as they were read, or what was read
-- instead of them. Returns both and a remark for the reply.
local function decide(index, key, stored)
  local version, at, newest, oldest, count, day_used, sum, stored_day
  local last, before -- the last batch, if any; what this batch was granted before, if it is the same
  if #stored >= SUMMARY_BYTES then
    version, at, newest, oldest, count, day_used, sum = unpack(SUMMARY, stored)
    if version ~= VERSION or newest > at or oldest > newest or oldest < newest - slices
      or sum > 0 and newest < at - slices then
      return VOID, pack(REMARK, index, WRONG_VERSION)
    end
    stored_day = at == this_slice and today or day_of(at)
    if #stored == RECENT_BYTES then
      last = sub(stored, SUMMARY_BYTES + 1)
      if batch ~= NO_BATCH and sub(last, 1, BATCH_BYTES) == batch then before = unpack('<I4', last, BATCH_BYTES + 1) end
    end
  elseif type(stored) == 'table' then
    if find(stored.err, 'WRONGTYPE', 1, true) then return VOID, pack(REMARK, index, WRONG_TYPE) end
    call('GETRANGE', key, '0', '0') -- fails again, now for the whole call
  elseif stored == '' and call('EXISTS', key) == 0 then
    at, newest, oldest, count, day_used, sum = 0, 0, 0, 0, 0, 0
  else
    return VOID, pack(REMARK, index, WRONG_LENGTH)
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
      -- Usually few slices leave, and the next slice with use is near. Otherwise the whole ring is read.
      local slot, leaving = oldest % slices, first - oldest
      local near = call('GETRANGE', key, text(slot * 4), text((slot < slices - NEAR and slot + NEAR or slices) * 4 - 1))
      local found = find(near, '[^%z]', leaving * 4 + 1)
      local next_used = found and oldest + (found - 1 - (found - 1) % 4) / 4
      if found and next_used < newest then
        for byte = 1, leaving * 4, 4 do sum = sum - unpack('<I4', near, byte) end
        oldest = next_used
      else
        ring = read_ring(key)
        repeat
          sum = sum - unpack('<I4', ring, oldest % slices * 4 + 1)
          oldest = used_from(ring, oldest + 1, newest)
        until oldest >= first
      end
    end
  end
  local day = at == this_slice and today or stored_day

  -- Add the use that the gateway knows and this record has lost, and the debts.
  local minute_limit, day_limit, want, known_day, known_used, known_minute = unpack(DEMAND, demands, index * DEMAND_BYTES + 1)
  local spent, lost = 0, 0
  if known_day == day and known_used > day_used then
    lost = LOST
    spent = known_used - day_used
    if spent > known_minute then spent = known_minute end
    day_used = known_used
  end
  local reports
  if debts ~= '' and not before then
    local spent_in_window, spent_day, spent_day_used = unpack(DEBT, debts, index * DEBT_BYTES + 1)
    if spent_in_window + spent_day_used > 0 then
      local from = ring_bytes + RECENT_BYTES
      reports = call('GETRANGE', key, text(from), text(from + REPORTS_BYTES - 1))
      if batch ~= NO_BATCH and find(reports, batch, 1, true) then
        spent_in_window, spent_day_used, reports = 0, 0, nil
      else
        reports = batch .. sub(reports, 1, REPORTS_BYTES - BATCH_BYTES)
      end
    end
    if spent_day == day then
      day_used = day_used + spent_day_used
      if day_used > COUNT_MAX then day_used = COUNT_MAX end
    end
    spent = spent + spent_in_window
  end
  if spent > 0 then
    local room = COUNT_MAX - ((sum > 0 and newest == at) and count or 0)
    if spent > room then spent = room end
  end

  -- A request is granted by both policies or by neither.
  if before then want = 0 end
  local granted = want
  if granted > minute_limit - sum - spent then granted = minute_limit - sum - spent end
  if granted > day_limit - day_used then granted = day_limit - day_used end
  if granted < 0 then granted = 0 end

  -- Charge the current slice. If it is new, the count of the newest slice so far goes into the ring, and then a zero for
  -- each slice between the two.
  local charge = spent + granted
  if charge > 0 then
    if sum == 0 then
      newest, oldest, count = at, at, 0
    elseif newest < at then
      local slot, counts = newest % slices, pack('<I4', count)
      if newest < at - 1 then counts = counts .. rep('\0', (at - newest - 1) * 4) end
      local room = (slices - slot) * 4
      if #counts > room then
        call('SETRANGE', key, '0', sub(counts, room + 1))
        counts = sub(counts, 1, room)
      end
      call('SETRANGE', key, text(slot * 4), counts)
      newest, count, ring = at, 0, nil
    end
    count, sum, day_used = count + charge, sum + charge, day_used + granted
  end

  local summary = pack(SUMMARY, VERSION, at, newest, oldest, count, day_used, sum)
  if not before and (granted > 0 or reports) then last = batch .. pack('<I4', granted) end
  local written = summary .. (last or rep('\0', LAST_BYTES))
  if written ~= stored and (stored_day or sum > 0 or day_used > 0) then
    if not stored_day or reports then -- a new record gets its whole length at once: Redis would double what it has to extend
      reports = reports or ''
      call('SETRANGE', key, SUMMARY_START, written .. reports .. rep('\0', REPORTS_BYTES - #reports))
    else
      call('SETRANGE', key, SUMMARY_START, written)
    end
    if day ~= stored_day then
      -- Keep the record until its day and its window are over, even by a clock that lags by AHEAD_MS.
      call('PEXPIRE', key, (day + 1) * day_ms + (slices + 1) * slice_ms + AHEAD_MS - now)
    end
  end

  if granted == want and sum < minute_limit and not before then return written, pack(REMARK, index, GRANTED + lost) end

  -- A search is needed only if the use is above the limit: at the limit, the release of the oldest slice is enough.
  local retry = oldest
  if sum > minute_limit and oldest < newest then
    ring = ring or read_ring(key)
    local left = sum
    while retry < newest do
      left = left - unpack('<I4', ring, retry % slices * 4 + 1)
      if left < minute_limit then break end
      retry = used_from(ring, retry + 1, newest)
    end
  end
  return written, pack(REMARK_LIMITED, index, LIMITED + lost, before or granted, retry)
end

local slots, remarks = {}, {}
for i = 1, #keys do
  local key, slot = keys[i], nil
  local stored = redis.pcall('GETRANGE', key, SUMMARY_START, LAST_END)
  if #stored == RECENT_BYTES and debts == '' then
    local version, at, newest, oldest, count, day_used, sum, last = unpack(SUMMARY_AND_NUMBER, stored)
    local minute_limit, day_limit, want, known_day, known_used = unpack(DEMAND, demands, (i - 1) * DEMAND_BYTES + 1)
    -- Usually the current slice already has use, and everything is granted: then only the counts grow. decide() would do the
    -- same at twice the cost.
    if version == VERSION and at == this_slice and newest == at and oldest <= at and oldest >= at - slices and sum > 0
      and want > 0 and want <= minute_limit - sum and want <= day_limit - day_used
      and (known_used <= day_used or known_day ~= today) and last ~= number then
      call('SETRANGE', key, COUNTS_START, pack(COUNTS_AND_LAST, count + want, day_used + want, sum + want, batch, want))
      slot = stored
    end
  end
  if not slot then slot, remarks[#remarks + 1] = decide(i - 1, key, stored) end
  slots[i] = slot
end
return pack('<I8', now) .. table.concat(slots) .. table.concat(remarks)
