-- The wrk script of a run. It requests PATH_QUERY, each time with a random key of the file KEYS (one token per line), and
-- prints one line of JSON at the end. FIELD is a further header field ("Name: value"). With BODY_BYTES, each request is a POST
-- with a body of that length. Without KEYS it sends no key, and wrk repeats one request without calling the script.
wrk.path = os.getenv("PATH_QUERY") or "/v1/pets?limit=20"
wrk.headers["Host"] = "localhost"
local name, value = (os.getenv("FIELD") or ""):match("^(.-): (.*)$")
if name then wrk.headers[name] = value end
local bytes = tonumber(os.getenv("BODY_BYTES"))
if bytes then
  wrk.method, wrk.body = "POST", string.rep("x", bytes)
  wrk.headers["Content-Type"] = "application/json"
end

-- The text of each request is kept. With bodies, 1,000 of them would take 64 MB, so there are only 100.
local keys, requests, most = os.getenv("KEYS"), {}, bytes and 100 or math.huge
if keys then
  function init(args)
    math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 100000)
    for token in io.lines(keys) do
      wrk.headers["Authorization"] = "Bearer " .. token
      requests[#requests + 1] = wrk.format()
      if #requests >= most then break end
    end
  end

  function request() return requests[math.random(#requests)] end
end

-- The percentiles are those that the plot of latency shows.
function done(summary, latency, _)
  local e, at = summary.errors, {}
  for i, p in ipairs({ 10, 25, 50, 75, 90, 95, 99, 99.9 }) do at[i] = string.format("%d", latency:percentile(p)) end
  io.write(string.format('{"requests":%d,"micros":%d,"percentiles":[%s],"non2xx":%d,"broken":%d}\n',
    summary.requests, summary.duration, table.concat(at, ","), e.status, e.connect + e.read + e.write + e.timeout))
end
