-- Decides the demands of any number of tenants in one call. It does the same as quota.Rule.Take and
-- TakeBoth, on the same bytes; a differential test compares them. Redis runs one script at a time,
-- so each decision is atomic.
--
-- Before this text, slice_ms, slices and day_ms are set: the rule. A day is a multiple of a slice.
--
-- ARGUMENTS. All numbers are doubles, which are unpacked fastest. A day is given by its end, the
-- first day after it. The caller has limited use to the range of uint32.
--
-- KEYS     One quota record for each demand. On a cluster they are of one tenant, because a call
--          may use only one slot.
-- ARGV[1]  The demands, in the order of KEYS. Each has seven numbers: the use of the minute and
--          that of the day below which one more request fits (COUNT_MAX: the policy is not set);
--          the wanted units; of the use that the gateway knows: its day, the use of that day, the
--          use of the window; the cost of a request. If the cost is negative, the record is a key's
--          own, and the next demand is its tenant's. The two are granted together, as many units as
--          the tenant's demand wants.
-- ARGV[2]  The batch: its number, and 8 bytes that name the gateway's process. 16 zero bytes: it
--          has no name. A batch has each key once. A demand that was decided before in this batch
--          is not decided again: it gets what it was granted then.
-- ARGV[3]  The months, in the order of KEYS. Each has five numbers: the use below which one more
--          request fits; the beginning of a month that is nearest to the gateway's clock; the
--          beginning of the one after it; the end of the known month; its use. All are 0 for a
--          demand without a limit of the month. Absent or empty: no demand has one. So clocks may
--          differ by days, and this script needs no calendar.
-- ARGV[4]  What was admitted in outages and is unreported, in the order of KEYS. Each has five
--          numbers: spent in the window; the end of a day; spent in it; the end of a month; spent
--          in it. Absent or empty: there is none.
-- ARGV[5]  Now, in Unix ms; only in tests. Otherwise the script uses this server's clock, the same
--          for all gateways.
--
-- REPLY. One string: now as uint64; for each demand a slot, which is the record's summary, last
-- batch and month; and remarks on some of the demands, in their order. A remark is the demand's
-- index, from 0, as uint32, and a byte:
--   none     All wanted units are granted. The slot is from before the counts grew by them.
--   GRANTED  All wanted units are granted, and the minute has room for more. The slot is from now.
--            For a key's own record, LIMITED says this too.
--   LIMITED  Two numbers follow: the granted units as uint32, and as uint64 a slice whose release
--            gives the minute room for one more request. It has no meaning if there is room. The
--            slot is from now.
--   others   This record is unusable and stays unchanged. The slot is void.
-- LOST is added to GRANTED and LIMITED if the record had less use of the day or the month than the
-- gateway knows. Any other failure (a replica, no memory) would affect all tenants: the first write
-- fails the whole call.
--
-- A RECORD has these parts:
--   the ring       counts, by slice modulo slices. Valid are the slots from the oldest used slice
--                  to the one before the newest. All others are stale, so nothing has to be cleared
--                  when slices leave the window.
--   the summary    version, the latest slice seen, the newest and the oldest used slice, the count
--                  of the newest, the day's use, the sum of the window.
--   the last batch that charged the record, and what it was granted.
--   the month      its end, or 0 if the record counts none; its use before this day; 8 zero bytes.
--   the reports    the last 7 batches that had unreported use.
-- If a batch is sent again when the record has forgotten it, it is decided again: it may be charged
-- twice, and never less than once.

local unpack, pack, rep, sub, find = struct.unpack, struct.pack, string.rep, string.sub, string.find
local min, concat, call, pcall = math.min, table.concat, redis.call, redis.pcall

local GRANTED, LIMITED, WRONG_TYPE, WRONG_LENGTH, WRONG_VERSION = 1, 2, 3, 4, 5
local LOST = 16
local VERSION = 0x32677470
local SUMMARY, SUMMARY_BYTES = '<I4I8I8I8I4I4I8', 44
local COUNTS, COUNTS_AT = '<I4I4I8', 28 -- the end of the summary: the counts that grow during a slice
local BATCH_BYTES, NO_BATCH = 16, rep('\0', 16)
local LAST, LAST_BYTES = 'c16I4', 20 -- a batch, and what it was granted
local COUNTS_AND_LAST = COUNTS .. LAST
local MONTH, MONTH_AT, MONTH_BYTES = '<I4I4', SUMMARY_BYTES + LAST_BYTES, 16
local MONTH_END = rep('\0', 8)
local RECENT_BYTES = MONTH_AT + MONTH_BYTES
local REPORTS_BYTES = 7 * BATCH_BYTES
local DEMAND_FIRST, DEMAND, DEMAND_BYTES, COST_AT = '<ddddd', '<ddddddd', 56, 48
local UNREPORTED, UNREPORTED_BYTES = '<ddddd', 40
local POLICY, POLICY_BYTES = '<ddddd', 40
local REMARK, REMARK_LIMITED = '<I4B', '<I4BI4I8'
local NO_LAST, NO_MONTH, VOID = rep('\0', LAST_BYTES), rep('\0', 8), rep('\0', RECENT_BYTES)
local COUNT_MAX = 4294967295
local NEAR = 16 -- how many counts are read first to find the next oldest slice
local AHEAD_MS = 5000 -- a record further in the future than this is moved to now

-- The call that is under way: take sets these. All else is made only once, before the first call.
local keys, demands, unreported, batch, months, now, this_slice, today, tomorrow

-- Returns an offset as text. With numbers, which redis.call must format, a call takes 1.5 times as
-- long. Most demands use the same offsets.
local texts = {}
local function text(offset)
  local known = texts[offset]
  if not known then
    known = tostring(offset)
    texts[offset] = known
  end
  return known
end

local ring_bytes = slices * 4
local SUMMARY_START, COUNTS_START = text(ring_bytes), text(ring_bytes + COUNTS_AT)
local RECENT_END = text(ring_bytes + RECENT_BYTES - 1)

local function day_of(slice)
  local ms = slice * slice_ms
  return (ms - ms % day_ms) / day_ms
end

local function read_ring(key) return call('GETRANGE', key, '0', text(ring_bytes - 1)) end

-- Returns the first slot whose count is not 0, from this slot on; nil: there is none. The text
-- begins with the slot begin.
local function used_slot(counts, slot, begin)
  local byte = find(counts, '[^%z]', (slot - begin) * 4 + 1)
  return byte and begin + (byte - 1 - (byte - 1) % 4) / 4
end

-- Returns the first slice with use, from the given one on and before newest, or newest if there is
-- none.
local function used_from(ring, slice, newest)
  while slice < newest do
    local slot = slice % slices
    local used = used_slot(ring, slot, 0)
    if used then
      slice = slice - slot + used
      break
    end
    slice = slice - slot + slices
  end
  return slice < newest and slice or newest
end

-- Decides the demand with this index. stored is the record's summary, last batch and month as they
-- were read, or what was read instead of them. agree is asked how much of what this record admits
-- is granted; nil: all of it. Returns the three parts, a remark for the reply, and what was
-- granted.
local function decide(index, key, stored, want, agree)
  local version, at, newest, oldest, count, day_used, sum, stored_day
  local last, decided -- the last batch, if any; what this batch was granted before, if it is the same
  local ends, before, stored_ends = 0, 0, 0 -- the month
  if #stored >= SUMMARY_BYTES then
    version, at, newest, oldest, count, day_used, sum = unpack(SUMMARY, stored)
    if version ~= VERSION or newest > at or oldest > newest or oldest < newest - slices
      or sum > 0 and newest < at - slices then
      return VOID, pack(REMARK, index, WRONG_VERSION)
    end
    stored_day = at == this_slice and today or day_of(at)
    if #stored == RECENT_BYTES then
      last = sub(stored, SUMMARY_BYTES + 1, MONTH_AT)
      if batch ~= NO_BATCH and sub(last, 1, BATCH_BYTES) == batch then
        decided = unpack('<I4', last, BATCH_BYTES + 1)
      end
      stored_ends, before = unpack(MONTH, stored, MONTH_AT + 1)
      ends = stored_ends
    end
  elseif type(stored) == 'table' then
    if find(stored.err, 'WRONGTYPE', 1, true) then
      return VOID, pack(REMARK, index, WRONG_TYPE)
    end
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
    if today ~= stored_day then before, day_used = before + day_used, 0 end
    local first = at - slices
    if newest < first then
      sum, oldest = 0, newest
    elseif oldest < first and sum > 0 then
      -- Usually few slices leave, and the next slice with use is near. Otherwise the whole ring is
      -- read.
      local slot, leaving = oldest % slices, first - oldest
      local near_end = slot < slices - NEAR and slot + NEAR or slices
      local near = call('GETRANGE', key, text(slot * 4), text(near_end * 4 - 1))
      local next_used = used_slot(near, first, oldest)
      if next_used and next_used < newest then
        for byte = 1, leaving * 4, 4 do
          sum = sum - unpack('<I4', near, byte)
        end
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

  if day >= ends then ends, before = 0, 0 end
  if before > COUNT_MAX then before = COUNT_MAX end

  -- Add the use that the gateway knows and this record has lost, and what is unreported.
  local minute_below, day_below, wanted, known_day, known_used, known_minute, cost =
    unpack(DEMAND, demands, index * DEMAND_BYTES + 1)
  want = want or wanted
  local is_own = cost < 0
  if is_own then cost = -cost end
  local spent, lost = 0, 0
  if known_day == day + 1 and known_used > day_used then
    lost = LOST
    spent = known_used - day_used
    if spent > known_minute then spent = known_minute end
    day_used = known_used
  end
  local month_below = COUNT_MAX
  if months ~= '' then
    local below, begins, next_begins, known_ends, known_month =
      unpack(POLICY, months, index * POLICY_BYTES + 1)
    if begins > 0 then
      month_below, ends = below, day < begins and begins or next_begins
      if known_ends == ends and known_month > before + day_used then
        lost, before = LOST, known_month - day_used
      end
    end
  end
  local reports
  if unreported ~= '' and not decided then
    -- earlier is the use of the month, and then without that of the day.
    local spent_in_window, spent_day, spent_day_used, spent_month, earlier =
      unpack(UNREPORTED, unreported, index * UNREPORTED_BYTES + 1)
    if spent_in_window + spent_day_used + earlier > 0 then
      local from = ring_bytes + RECENT_BYTES
      reports = call('GETRANGE', key, text(from), text(from + REPORTS_BYTES - 1))
      if batch ~= NO_BATCH and find(reports, batch, 1, true) then
        spent_in_window, spent_day_used, earlier, reports = 0, 0, 0, nil
      else
        reports = batch .. sub(reports, 1, REPORTS_BYTES - BATCH_BYTES)
      end
    end
    if spent_day == day + 1 then
      day_used, earlier = day_used + spent_day_used, earlier - spent_day_used
    end
    if spent_month > day and spent_month <= COUNT_MAX then
      if ends == 0 then ends = spent_month end -- so the day counts in the month when it is over
      if ends == spent_month and earlier > 0 then
        before = before + earlier
        if before > COUNT_MAX then before = COUNT_MAX end
      end
    end
    spent = spent + spent_in_window
  end
  local room = COUNT_MAX - ((sum > 0 and newest == at) and count or 0)
  if spent > room then spent = room end

  -- A request is granted by all policies or by none.
  if decided then want = 0 end
  local granted = want
  local spare = minute_below + cost - 1 - sum - spent
  if minute_below < COUNT_MAX and granted > spare then granted = spare end
  spare = day_below + cost - 1 - day_used
  if day_below < COUNT_MAX and granted > spare then granted = spare end
  spare = month_below + cost - 1 - before - day_used
  if month_below < COUNT_MAX and granted > spare then granted = spare end
  granted = granted > 0 and granted - granted % cost or 0
  if agree then granted = agree(granted) end

  -- Charge the current slice. If it is new, the count of the newest slice so far goes into the
  -- ring, and then a zero for each slice between the two.
  local charge = spent + granted
  if charge > room then charge = room end
  day_used = day_used + granted
  if day_used > COUNT_MAX then day_used = COUNT_MAX end
  if charge > 0 then
    if sum == 0 then
      newest, oldest, count = at, at, 0
    elseif newest < at then
      local slot, counts = newest % slices, pack('<I4', count)
      if newest < at - 1 then counts = counts .. rep('\0', (at - newest - 1) * 4) end
      local to_end = (slices - slot) * 4
      if #counts > to_end then
        call('SETRANGE', key, '0', sub(counts, to_end + 1))
        counts = sub(counts, 1, to_end)
      end
      call('SETRANGE', key, text(slot * 4), counts)
      newest, count, ring = at, 0, nil
    end
    count, sum = count + charge, sum + charge
  end

  if not decided and (granted > 0 or reports) then
    last = batch .. pack('<I4', granted)
  end
  local written = pack(SUMMARY, VERSION, at, newest, oldest, count, day_used, sum) .. (last or NO_LAST)
    .. (ends > 0 and pack(MONTH, ends, before) or NO_MONTH) .. MONTH_END
  if written ~= stored and (stored_day or sum > 0 or day_used > 0 or before > 0) then
    if not stored_day or reports then
      -- A new record gets its whole length at once: Redis would double what it has to extend.
      reports = reports or ''
      call('SETRANGE', key, SUMMARY_START, written .. reports .. rep('\0', REPORTS_BYTES - #reports))
    else
      call('SETRANGE', key, SUMMARY_START, written)
    end
    if day ~= stored_day or ends ~= stored_ends then
      -- Keep the record until its day, its month and its window are over, even by a clock that lags
      -- by AHEAD_MS.
      local last_end = ends > day and ends or day + 1
      call('PEXPIRE', key, last_end * day_ms + (slices + 1) * slice_ms + AHEAD_MS - now)
    end
  end

  if granted == want and sum < minute_below and not decided and not is_own then
    return written, pack(REMARK, index, GRANTED + lost), granted
  end

  -- A search is needed only if one more request lacks more than one unit. Otherwise the release of
  -- the oldest slice is enough.
  local retry = oldest
  if sum > minute_below and oldest < newest then
    ring = ring or read_ring(key)
    local left = sum
    while retry < newest do
      left = left - unpack('<I4', ring, retry % slices * 4 + 1)
      if left < minute_below then break end
      retry = used_from(ring, retry + 1, newest)
    end
  end
  granted = decided or granted
  return written, pack(REMARK_LIMITED, index, LIMITED + lost, granted, retry), granted
end

-- Reports whether the month, too, grants a demand all it wants in the current slice. used is the
-- day's use with that.
local function is_within_month(index, stored, used, want)
  local below, begins, next_begins, known_ends, known_used =
    unpack(POLICY, months, index * POLICY_BYTES + 1)
  if begins == 0 then return true end
  local ends, before = unpack(MONTH, stored, MONTH_AT + 1)
  used = used + before
  return ends == (today < begins and begins or next_begins) and used <= below
    and (known_ends ~= ends or known_used <= used - want)
end

-- TIME answers in text. To make numbers of it, Lua would need as long as TIME itself. So the last
-- second is kept, and milliseconds are looked up, by the text of the microseconds without its last
-- three digits.
local second, second_ms
local millis = { [''] = 0 }
for ms = 1, 999 do millis[tostring(ms)] = ms end

-- The parts of the reply: now, the slots, the remarks. What is behind them is of earlier calls.
local parts = {}

-- Decides all demands of a call, and returns its reply.
local function take(KEYS, ARGV)
  keys, demands, batch = KEYS, ARGV[1], ARGV[2]
  months, unreported = ARGV[3] or '', ARGV[4] or ''
  now = ARGV[5]
  if now then
    now = tonumber(now)
  else
    local time = call('TIME')
    if time[1] ~= second then
      second, second_ms = time[1], time[1] * 1000
    end
    now = second_ms + millis[sub(time[2], 1, -4)]
  end
  this_slice = (now - now % slice_ms) / slice_ms
  today = day_of(this_slice)
  tomorrow = today + 1
  local count = #keys
  local last_part = count + 1
  local own, own_stored -- the index of a key's demand, which waits for its tenant's, and its record
  parts[1] = pack('<I8', now)
  for i = 1, count do
    local key, slot = keys[i], nil
    local stored = pcall('GETRANGE', key, SUMMARY_START, RECENT_END)
    if #stored == RECENT_BYTES and unreported == '' and not own then
      local version, at, newest, oldest, count, day_used, sum = unpack(SUMMARY, stored)
      local minute_below, day_below, want, known_day, known_used =
        unpack(DEMAND_FIRST, demands, (i - 1) * DEMAND_BYTES + 1)
      -- Usually the current slice already has use, and everything is granted: then only the counts
      -- grow. decide() would do the same at twice the cost.
      if version == VERSION and at == this_slice and newest == at
        and oldest <= at and oldest >= at - slices and sum > 0
        and want > 0 and want <= minute_below - sum and want <= day_below - day_used
        and (known_used <= day_used or known_day ~= tomorrow)
        and sub(stored, SUMMARY_BYTES + 1, SUMMARY_BYTES + BATCH_BYTES) ~= batch
        and (months == '' or is_within_month(i - 1, stored, day_used + want, want)) then
        local grown = pack(COUNTS_AND_LAST, count + want, day_used + want, sum + want, batch, want)
        call('SETRANGE', key, COUNTS_START, grown)
        slot = stored
      end
    end
    -- A key's own demand waits for its tenant's.
    if not slot and not own and unpack('<d', demands, (i - 1) * DEMAND_BYTES + COST_AT + 1) < 0 then
      own, own_stored = i - 1, stored
      slot = VOID
    end
    if not slot then
      local granted
      local agree = own and function(admitted)
        last_part = last_part + 1
        parts[own + 2], parts[last_part], granted = decide(own, keys[own + 1], own_stored, admitted)
        return min(granted or 0, admitted) -- the key's record may be unusable
      end
      local remark
      slot, remark, granted = decide(i - 1, key, stored, nil, agree)
      if own and not granted then agree(0) end -- the tenant's record is unusable
      own = nil
      last_part = last_part + 1
      parts[last_part] = remark
    end
    parts[i + 1] = slot
  end
  return concat(parts, '', 1, last_part)
end
