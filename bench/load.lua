-- The wrk script of a run. It requests PATH_QUERY, each time with a random key of the file KEYS
-- (one token per line), and prints one line of JSON at the end. Without KEYS it sends no key, and
-- wrk repeats one request without calling the script.
wrk.path = os.getenv("PATH_QUERY") or "/v1/pets?limit=20"
wrk.headers["Host"] = "localhost"

local keys, requests = os.getenv("KEYS"), {}
if keys then
  function init(args)
    math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 100000)
    for token in io.lines(keys) do
      wrk.headers["Authorization"] = "Bearer " .. token
      requests[#requests + 1] = wrk.format()
    end
  end

  function request() return requests[math.random(#requests)] end
end

-- The percentiles are those of the tables.
function done(summary, latency, _)
  local e, at = summary.errors, {}
  for i, p in ipairs({ 10, 25, 50, 75, 90, 95, 99, 99.9 }) do at[i] = string.format("%d", latency:percentile(p)) end
  io.write(string.format('{"requests":%d,"micros":%d,"percentiles":[%s],"non2xx":%d,"broken":%d}\n',
    summary.requests, summary.duration, table.concat(at, ","), e.status, e.connect + e.read + e.write + e.timeout))
end
