// Runs under node --test. The servers are real ones, and so is the time.
import assert from "node:assert/strict";
import http from "node:http";
import { webcrypto } from "node:crypto";
import { test } from "node:test";
import { APIError, Client, ConnectionError } from "./petgate.ts";

globalThis.crypto ??= webcrypto; // Node 18

const pet = { id: 1, name: "Rex", categoryId: 1, status: "available" };
const created = { status: 201, body: JSON.stringify(pet) };
const refusal = (status, code, seconds) => ({
  status,
  headers: seconds === undefined ? {} : { "Retry-After": String(seconds) },
  body: JSON.stringify({ code, message: "Why.", status, details: { policy: "minute" } }),
});

// serve answers requests in order with the replies, and repeats the last one. A reply of "cut" breaks the connection; one with
// cut breaks it within the body.
async function serve(t, replies, options = {}) {
  const arrivals = [];
  const server = http.createServer((request, response) => {
    const arrival = { at: performance.now(), method: request.method, url: request.url, headers: request.headers, body: "" };
    const reply = replies[Math.min(arrivals.push(arrival), replies.length) - 1];
    request.on("data", (chunk) => (arrival.body += chunk));
    request.on("end", () => {
      arrival.answered = performance.now();
      if (reply === "hang") return;
      if (reply === "cut") return request.socket.destroy();
      response.writeHead(reply.status, { "X-Request-Id": "r-1", ...reply.headers });
      if (!reply.cut) return response.end(reply.body);
      response.write(reply.body.slice(0, 5), () => request.socket.destroy());
    });
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { arrivals, client: new Client({ url: `http://127.0.0.1:${server.address().port}`, token: "ptg_test_x", ...options }) };
}

const all = { concurrency: true };

test("a refused request is repeated after Retry-After", all, async (t) => {
  const cases = {
    minute: [refusal(429, "minute_quota_exceeded", 1), created],
    unavailable: [refusal(503, "database_unavailable", 1), created],
    "no header": [refusal(502, "upstream_unreachable"), created],
    timeout: [refusal(504, "upstream_timeout"), created],
    "in progress": [refusal(409, "request_in_progress", 1), created],
    "unknown code": [refusal(429, "quite_new", 1), created],
    "not ours": [{ status: 503, headers: { "Retry-After": "1" }, body: "<html>" }, created],
    broken: ["cut", created],
    "broken in the body": [{ ...created, cut: true }, created],
    "again and again": ["cut", refusal(429, "minute_quota_exceeded", 1), refusal(429, "minute_quota_exceeded", 2), created],
  };
  const run = Object.entries(cases).map(([name, replies]) =>
    t.test(name, async (t) => {
      const { arrivals, client } = await serve(t, replies);
      assert.deepEqual(await client.createPet({ name: "Rex", categoryId: 1 }), pet);
      assert.equal(arrivals.length, replies.length);
      for (const [i, reply] of replies.slice(0, -1).entries()) {
        const seconds = Number(reply.headers?.["Retry-After"] ?? 0);
        const waited = arrivals[i + 1].at - arrivals[i].answered;
        assert.ok(waited >= seconds * 1000, `${seconds} s became ${waited} ms`);
      }
      assert.equal(new Set(arrivals.map((a) => a.headers["idempotency-key"])).size, 1);
      assert.deepEqual([...new Set(arrivals.map((a) => a.body))], ['{"name":"Rex","categoryId":1}']);
      assert.equal(arrivals[0].headers.authorization, "Bearer ptg_test_x");
    }),
  );
  await Promise.all(run);
});

test("a date in Retry-After is obeyed", all, async (t) => {
  const unavailable = { status: 503, headers: { "Retry-After": new Date(Date.now() + 8000).toUTCString() }, body: "" };
  const { arrivals, client } = await serve(t, [unavailable, created]);
  await client.createPet({ name: "Rex", categoryId: 1 });
  assert.ok(arrivals[1].at - arrivals[0].answered >= 2000);
});

test("other errors are thrown at once", all, async (t) => {
  const codes = [
    [400, "invalid_request"], [401, "invalid_api_key"], [403, "insufficient_scope"], [409, "quite_new"],
    [422, "idempotency_key_reused"], [500, "internal"],
  ];
  for (const [status, code] of codes) {
    const { arrivals, client } = await serve(t, [refusal(status, code, 7)]);
    const error = await client.createPet({ name: "Rex", categoryId: 1 }).catch((error) => error);
    assert.ok(error instanceof APIError);
    assert.deepEqual(
      [error.status, error.code, error.message, error.retryAfterMs, error.requestId, error.details.policy],
      [status, code, "Why.", 7000, "r-1", "minute"],
    );
    assert.equal(arrivals.length, 1);
  }
  const { arrivals, client } = await serve(t, [{ status: 201, body: "not JSON" }]);
  await assert.rejects(client.createPet({ name: "Rex", categoryId: 1 }), SyntaxError);
  assert.equal(arrivals.length, 1);
});

test("every call has an Idempotency-Key of its own", all, async (t) => {
  const { arrivals, client } = await serve(t, [created]);
  await client.createPet({ name: "Rex", categoryId: 1 });
  await client.createPet({ name: "Rex", categoryId: 1 });
  await client.createPet({ name: "Rex", categoryId: 1 }, { idempotencyKey: "mine" });
  const keys = arrivals.map((a) => a.headers["idempotency-key"]);
  assert.match(keys[0], /^"[0-9a-f]{32}"$/);
  assert.notEqual(keys[0], keys[1]);
  assert.equal(keys[2], "mine");
});

test("the number of requests has a bound", all, async (t) => {
  const { arrivals, client } = await serve(t, ["cut"], { attemptsMax: 2 });
  await assert.rejects(client.createPet({ name: "Rex", categoryId: 1 }), ConnectionError);
  assert.equal(arrivals.length, 2);
});

test("a request that hangs is given up", all, async (t) => {
  const { arrivals, client } = await serve(t, ["hang", created], { timeoutMs: 200 });
  assert.deepEqual(await client.createPet({ name: "Rex", categoryId: 1 }), pet);
  assert.equal(arrivals.length, 2);
});

test("an option that is undefined has its default", all, async (t) => {
  const unset = { attemptsMax: undefined, waitMaxMs: undefined, timeoutMs: undefined, fetch: undefined };
  const { arrivals, client } = await serve(t, [created, refusal(503, "overloaded", 3600)], unset);
  const signal = AbortSignal.timeout(10_000);
  assert.deepEqual(await client.createPet({ name: "Rex", categoryId: 1 }, { signal }), pet);
  await assert.rejects(client.getPet(1, { signal }), { code: "overloaded" });
  assert.equal(arrivals.length, 2);
});

test("a redirect is not followed", all, async (t) => {
  for (const status of [301, 302, 303, 307, 308]) {
    const { arrivals, client } = await serve(t, [{ status, headers: { Location: "/v1/pets/" }, body: "" }, created]);
    await assert.rejects(client.createPet({ name: "Rex", categoryId: 1 }), { name: "APIError", status });
    assert.equal(arrivals.length, 1);
  }
});

test("a long ban is reported without a request", all, async (t) => {
  const { arrivals, client } = await serve(t, [refusal(429, "key_banned", 3600)]);
  for (let i = 0; i < 3; i++) await assert.rejects(client.getPet(1), { code: "key_banned", retryAfterMs: 3_600_000 });
  assert.equal(arrivals.length, 1);
});

test("calls in parallel wait together", all, async (t) => {
  const { arrivals, client } = await serve(t, [refusal(429, "day_quota_exceeded", 2), refusal(429, "minute_quota_exceeded", 1), created], { attemptsMax: 1 });
  await Promise.all([1, 2].map(() => assert.rejects(client.getPet(1), { status: 429 })));
  await Promise.all(Array.from({ length: 20 }, () => client.getPet(1)));
  assert.equal(arrivals.length, 22);
  for (const { at } of arrivals.slice(2)) assert.ok(at >= arrivals[0].answered + 2000);
});

test("getQuota does not wait for other calls", all, async (t) => {
  const quota = { status: 200, body: JSON.stringify({ plan: "free" }) };
  const banned = await serve(t, [refusal(429, "key_banned", 3600), quota]);
  await assert.rejects(banned.client.getPet(1), { code: "key_banned" });
  assert.deepEqual(await banned.client.getQuota(), { plan: "free" });

  const often = await serve(t, [refusal(429, "quota_polling", 1), created], { attemptsMax: 1 });
  await assert.rejects(often.client.getQuota(), { code: "quota_polling" });
  assert.deepEqual(await often.client.getPet(1), pet);
  assert.ok(often.arrivals[1].at - often.arrivals[0].answered < 1000);
});

test("a signal ends the request, and the wait", all, async (t) => {
  for (const reply of ["hang", refusal(503, "overloaded", 60)]) {
    const { arrivals, client } = await serve(t, [reply]);
    const began = performance.now();
    const control = new AbortController();
    setTimeout(() => control.abort(new Error("the user gave up")), 200);
    await assert.rejects(client.getPet(1, { signal: control.signal }), /the user gave up/);
    assert.ok(performance.now() - began < 10_000);
    await assert.rejects(client.getPet(1, { signal: control.signal }), /the user gave up/);
    assert.equal(arrivals.length, 1);
  }
});

test("getUsage sends its parameters", all, async (t) => {
  const { arrivals, client } = await serve(t, [{ status: 200, body: JSON.stringify({ rows: [] }) }]);
  assert.deepEqual(await client.getUsage({ by: "hour", since: "36h" }), { rows: [] });
  await client.getUsage();
  assert.deepEqual(arrivals.map((a) => a.url), ["/v1/usage?by=hour&since=36h", "/v1/usage"]);
});

test("listPets follows the links", all, async (t) => {
  const page = (link) => ({ status: 200, headers: { Link: link }, body: JSON.stringify([pet, pet]) });
  const { arrivals, client } = await serve(t, [
    page('</v1/pets?limit=2&after=2>; rel="next"'), refusal(429, "minute_quota_exceeded", 1),
    page('</other>; rel="prev", <?limit=2&after=4>; rel="next"'), page('</v1/pets>; rel="successor-version"'),
  ]);
  let pets = 0;
  for await (const { name } of client.listPets({ limit: 2, status: "sold", after: undefined })) {
    assert.equal(name, "Rex");
    pets++;
  }
  assert.equal(pets, 6);
  assert.deepEqual(arrivals.map((a) => a.url), [
    "/v1/pets?limit=2&status=sold", "/v1/pets?limit=2&after=2", "/v1/pets?limit=2&after=2", "/v1/pets?limit=2&after=4",
  ]);

  const elsewhere = await serve(t, [page('<http://elsewhere.example/v1/pets>; rel="next"')]);
  for await (const _ of elsewhere.client.listPets()) break;
  await assert.rejects(async () => {
    for await (const _ of elsewhere.client.listPets());
  }, /another host/);
  assert.deepEqual(elsewhere.arrivals.map((a) => a.url), ["/v1/pets?limit=100", "/v1/pets?limit=100"]);
});
