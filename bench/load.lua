-- wrk's side of a run: a request with a random one of the keys in KEYS (a file, a token a line; without it no key is
-- sent) for PATH_QUERY, and one line of JSON at the end.
local requests = {}

function init(args)
  math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 100000)
  local path = os.getenv("PATH_QUERY") or "/v1/pets?limit=20"
  local keys = os.getenv("KEYS")
  if keys then
    for token in io.lines(keys) do
      requests[#requests + 1] = wrk.format("GET", path, { ["Host"] = "localhost", ["Authorization"] = "Bearer " .. token })
    end
  else
    requests[1] = wrk.format("GET", path, { ["Host"] = "localhost" })
  end
end

function request() return requests[math.random(#requests)] end

-- The percentiles are those that the plot of latency shows.
function done(summary, latency, _)
  local e, at = summary.errors, {}
  for i, p in ipairs({ 10, 25, 50, 75, 90, 95, 99, 99.9 }) do at[i] = string.format("%d", latency:percentile(p)) end
  io.write(string.format('{"requests":%d,"micros":%d,"percentiles":[%s],"non2xx":%d,"broken":%d}\n',
    summary.requests, summary.duration, table.concat(at, ","), e.status, e.connect + e.read + e.write + e.timeout))
end
