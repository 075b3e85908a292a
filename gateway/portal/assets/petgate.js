"use strict";

// The key is in this variable and nowhere else: not in a field, a storage, a cookie or a URL.
let key = "";

// blockedUntil is when the API may be called again, in milliseconds of performance.now(). The
// places in waiting say so then.
let blockedUntil = 0;
const waiting = new Set();

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function element(tag, text, attributes = {}) {
  const e = document.createElement(tag);
  e.textContent = text;
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

// ---- The key

const { prefix, root, quota, usage, usageScope } = document.body.dataset;
const secretLength = 38;
const checksumLength = 6;
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// crc32 is the CRC-32 (IEEE) of ASCII text.
function crc32(text) {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) {
    crc ^= text.charCodeAt(i);
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function checksum(text) {
  let rest = crc32(text);
  let out = "";
  for (let i = 0; i < checksumLength; i++) {
    out = digits[rest % digits.length] + out;
    rest = Math.floor(rest / digits.length);
  }
  return out;
}

// problem says what is wrong with a token, or "". It asks nobody.
function problem(token) {
  // A key keeps its prefix when the operator changes that of new keys.
  const start = /^[a-z]{2,10}_(live|test)_/.exec(token)?.[0];
  if (start === undefined) return `A key begins with ${prefix}`;
  if (start.slice(-6) !== prefix.slice(-6)) {
    return `This key is for another environment. Keys of this API begin with ${prefix}`;
  }
  if (/[^0-9A-Za-z]/.test(token.slice(start.length))) {
    return "This key is mistyped: after its prefix, a key has only letters and digits.";
  }
  if (token.length !== start.length + secretLength) {
    const want = start.length + secretLength;
    return `This key is mistyped or cut off: it has ${token.length} characters instead of ${want}.`;
  }
  const body = token.slice(0, -checksumLength);
  if (checksum(body) !== token.slice(-checksumLength)) {
    return "This key is mistyped or cut off: its checksum does not match.";
  }
  return "";
}

const keyForm = $("#key");
const keyField = $("#key-field");
const keyState = $("#key-state");

function say(state, text, isBad = false) {
  state.textContent = text;
  state.classList.toggle("bad", isBad);
}

function sayKey(text, isBad = false) {
  say(keyState, text, isBad);
  keyField.setAttribute("aria-invalid", isBad);
}

function hold(token) {
  const wasFocused = document.activeElement === keyField;
  key = token;
  keyField.value = "";
  $("#key-hint").textContent = `${token.slice(0, token.lastIndexOf("_") + 1)}…${token.slice(-4)}`;
  $("#key-entry").hidden = true;
  $("#key-held").hidden = false;
  sayKey("The checksum is right. The key stays in this page.");
  if (wasFocused) $("#key-hint").focus(); // the field is hidden now
  fill();
  askQuota();
}

// options returns the options of a call with the key.
function options(method) {
  const headers = { Authorization: `Bearer ${key}` };
  return { method, headers, cache: "no-store", credentials: "omit", redirect: "error" };
}

// address returns the URL of a path of the API, relative to the page.
const address = (path) => root + path.slice(1);

// askQuota shows whether the key can be used and what is left of its limits. That costs nothing.
// Without an answer, the page says what it knows by itself.
async function askQuota() {
  if (!quota) return;
  const asked = key;
  try {
    const response = await fetch(address(quota), options("GET"));
    const body = await response.json();
    if (key !== asked) return; // it was forgotten
    if (response.status === 401 || response.status === 403) {
      sayKey(`The key is not accepted: ${body.message}.`, true);
    } else if (response.ok) {
      showStanding(body, response.headers);
      if (usageState && !body.key.scopes.includes(usageScope)) say(usageState, unreadable);
    }
  } catch {
    // The first call says what is wrong.
  }
}

// showStanding says what the key can do now. Meters are shown only for a key that can be used: a
// banned key may have a quota left.
function showStanding(quota, headers) {
  if (quota.suspended) {
    sayKey("The key is valid, but its account is suspended: every call is refused.", true);
  } else if (quota.policies.every((policy) => policy.name.startsWith("key-"))) {
    // A key's own limits are within those of its account.
    sayKey("The key is valid, but its account has no limits yet: every call is refused.", true);
  } else if (quota.ban) {
    // By the gateway's clock, because that of this machine may differ.
    const seconds = (Date.parse(quota.ban.endsAt) - (Date.parse(headers.get("Date")) || Date.now())) / 1000;
    block(keyState, Math.max(1, seconds), `The key is banned. ${quota.ban.notice || ""}`.trim());
  } else {
    showMeters(headers);
    sayKey(`The key is valid, on the plan ${quota.plan}. It stays in this page.`);
  }
}

function forget() {
  key = "";
  keyField.value = "";
  $("#key-hint").textContent = "";
  $("#key-entry").hidden = false;
  $("#key-held").hidden = true;
  blockedUntil = 0; // another key may have another limit
  tick();
  sayKey("Stays in this page. It is never stored.");
  for (const meters of $$(".meters")) meters.replaceChildren();
  $(".meters", keyForm).hidden = true;
  fill();
  if (!usageState) return;
  for (const part of $$(".legend, .picture, tbody", drawing)) part.replaceChildren();
  drawing.hidden = true;
  say(usageState, "");
}

// takeKey holds the key in the field, or says what is wrong with it.
function takeKey() {
  const token = keyField.value.trim();
  if (token === "") return sayKey("Stays in this page. It is never stored.");
  const wrong = problem(token);
  if (wrong) sayKey(wrong, true);
  else hold(token);
}

keyField.addEventListener("input", (event) => {
  const token = keyField.value.trim();
  if (token.length - token.lastIndexOf("_") > secretLength || event.inputType === "insertFromPaste") takeKey();
  else sayKey("");
});
keyField.addEventListener("change", takeKey);
keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  takeKey();
});
$("#key-forget").addEventListener("click", () => {
  forget();
  keyField.focus();
});
addEventListener("pagehide", forget);

// ---- Limits

const windows = {
  minute: "this minute", day: "today", month: "this month",
  "key-minute": "this minute for this key", "key-day": "today for this key",
};

// parseList reads a list of the RateLimit fields: "minute";r=42;t=17, "day";r=817;t=50412
function parseList(text) {
  const items = {};
  for (const [, name, parameters] of (text || "").matchAll(/"([^"]+)"((?:;[a-z]=\d+)*)/g)) {
    items[name] = Object.fromEntries([...parameters.matchAll(/;([a-z])=(\d+)/g)].map(([, k, v]) => [k, Number(v)]));
  }
  return items;
}

function showMeters(headers) {
  const policies = parseList(headers.get("RateLimit-Policy"));
  const states = parseList(headers.get("RateLimit"));
  const known = Object.keys(windows).filter((name) => policies[name] && states[name]);
  if (known.length === 0) return;
  for (const meters of $$(".meters")) {
    meters.replaceChildren(...known.map((name) => meter(name, states[name].r, policies[name].q)));
    meters.hidden = false;
  }
}

function meter(name, remaining, limit) {
  const left = limit > 0 ? remaining / limit : 0;
  const text = `${remaining.toLocaleString("en")} of ${limit.toLocaleString("en")} left ${windows[name]}`;
  const box = element("div", "", { class: "meter" });
  const bar = element("div", "", {
    class: "bar", role: "meter", "aria-label": `Requests left ${windows[name]}`,
    "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": remaining, "aria-valuetext": text,
  });
  const fill = element("span", "");
  fill.style.inlineSize = `${Math.round(left * 100)}%`;
  fill.className = left <= 0.1 ? "low" : left <= 0.3 ? "middle" : "";
  bar.append(fill);
  box.append(element("p", text), bar);
  return box;
}

// ---- Calls

const limitHeaders = [
  "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
  "X-Request-Cost", "Retry-After",
];

// target returns the URL of a call, relative to the page.
function target(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const field of $$("[data-in]", form)) {
    const value = field.value.trim();
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (field.dataset.in === "query" && value !== "") query.set(field.name, value);
  }
  return address(path) + (query.size > 0 ? `?${query}` : "");
}

// hasKey reports whether there is a key, or asks for it.
function hasKey(state) {
  if (key) return true;
  say(state, "Paste your API key first.", true);
  if (keyField.value) takeKey();
  keyField.focus();
  return false;
}

async function send(form) {
  const state = $(".state", form);
  if (performance.now() < blockedUntil && !("free" in form.dataset)) return;
  if (!("public" in form.dataset) && !hasKey(state)) return;
  const used = key;
  const call = options(form.dataset.method);
  if (!key) delete call.headers.Authorization;
  for (const field of $$("[data-in=header]", form)) {
    if (field.value.trim() !== "") call.headers[field.name] = field.value.trim();
  }
  try {
    call.headers = new Headers(call.headers);
  } catch {
    return say(state, "A header has characters that cannot be sent.", true);
  }
  const body = $("textarea", form);
  if (body) {
    call.headers.set("Content-Type", body.dataset.type);
    call.body = body.value;
  }
  say(state, "Sending…");
  try {
    const began = performance.now();
    const response = await fetch(target(form), call);
    const text = await response.text();
    const body = parse(text);
    const took = Math.round(performance.now() - began);
    show(form, response, isExact(body, text) ? JSON.stringify(body, null, 2) : text, took);
    say(state, "");
    if (key !== used) return; // it was forgotten
    if (response.ok && "free" in form.dataset) showStanding(body, response.headers);
    else showLimits(state, response, body?.code);
  } catch {
    say(state, "No response: the API could not be reached.", true);
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// isExact reports whether the JSON can be written again without a change. A number of 64 bits
// cannot: it is shown as it came.
function isExact(body, text) {
  return JSON.stringify(body) === text;
}

const reasons = {
  key_banned: "The key is banned.",
  request_in_progress: "A request with the same Idempotency-Key is in progress.",
  too_many_failed_attempts: "Too many unknown keys came from your address.",
};

// showLimits shows the meters, and makes the page wait if the response says that calls must wait. A
// 403 shows them only for a missing scope: the other reasons refuse every call.
function showLimits(state, response, code) {
  if (response.status !== 403 || code === "insufficient_scope") showMeters(response.headers);
  if (code === "quota_polling") { // other calls may go on
    return say(state, "Ask for the quota at most once a second.", true);
  }
  const wait = Number(response.headers.get("Retry-After"));
  const other = response.status === 429 ? "A limit is used up." : "The service is busy.";
  if (wait > 0) block(state, wait, reasons[code] || other);
}

function show(form, response, readable, millis) {
  $(".answer", form).hidden = false; // before its status changes, or that would not be read aloud
  const line = $(".line", form);
  line.replaceChildren(
    element("span", response.status, { class: `status s${String(response.status)[0]}` }),
    ` ${response.statusText} · ${millis} ms`,
  );
  const shown = $(".body", form);
  shown.textContent = readable;
  paint(shown);
  // The page has one scroll bar: a long body is cut until the reader wants all of it.
  shown.classList.toggle("long", readable.split("\n").length > 20 || readable.length > 2000);
  $(".more", form).hidden = !shown.classList.contains("long");
  const rank = ([name]) => {
    const at = limitHeaders.findIndex((one) => one.toLowerCase() === name);
    return at < 0 ? limitHeaders.length : at;
  };
  const fields = [...response.headers].sort((a, b) => rank(a) - rank(b));
  $(".fields", form).replaceChildren(...fields.flatMap(([name, value]) => {
    const known = limitHeaders[rank([name])];
    return [element("dt", known || name, known ? { class: "limit" } : {}), element("dd", value)];
  }));
}

// block lets all buttons count down, except those of operations that are free. A shorter wait does
// not end a longer one. Only the beginning and the end are announced, because a count read aloud
// every second would hide everything else.
function block(state, seconds, why) {
  blockedUntil = Math.max(blockedUntil, performance.now() + seconds * 1000);
  const left = blockedUntil - performance.now();
  const end = new Date(Date.now() + left);
  const at = left < 12 * 3600e3 ? end.toLocaleTimeString("en-GB") : end.toLocaleString("en-GB");
  say(state, `${why} You can send again at ${at}.`, true);
  waiting.add(state);
  clearInterval(tick.timer);
  tick.timer = setInterval(tick, 200);
  tick();
}

function tick() {
  const left = Math.ceil((blockedUntil - performance.now()) / 1000);
  for (const button of $$(".try:not([data-free]) .send, #usage .send")) {
    button.textContent = left > 0 ? `Wait ${left} s` : button.dataset.label || "Send";
    button.setAttribute("aria-disabled", left > 0);
  }
  if (left > 0) return;
  clearInterval(tick.timer);
  for (const state of waiting) say(state, "You can send again.");
  waiting.clear();
}

for (const form of $$(".try")) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
  $(".more", form).addEventListener("click", (event) => {
    event.target.hidden = true;
    $(".body", form).classList.remove("long");
    $(".body", form).focus();
  });
}

// ---- Usage

const usageState = $("#usage .state");
const drawing = $("#usage-drawing");
const unreadable = `This key cannot read usage: it does not have the scope ${usageScope}. ` +
  "Ask who gave you the key for one that has it.";
const series = ["served", "refused", "failed"];
// failures are the codes of what the service has caused, and not the caller.
const failures = new Set($$("[id^=status-5] dt code").map((code) => code.textContent));

let asking = ""; // the key whose usage is awaited: a gateway reads that of an account once at a time

// askUsage draws the usage of an account. That costs one request.
async function askUsage(query) {
  if (performance.now() < blockedUntil || !hasKey(usageState) || asking === key) return;
  const used = (asking = key);
  say(usageState, "Asking…");
  try {
    const response = await fetch(`${address(usage)}?${query}`, options("GET"));
    const body = await response.json();
    if (key !== used) return; // it was forgotten
    if (response.ok) drawUsage(body, Date.parse(response.headers.get("Date")) || Date.now());
    else say(usageState, body.code === "insufficient_scope" ? unreadable : `Refused: ${body.message}.`, true);
    showLimits(usageState, response, body.code);
  } catch {
    say(usageState, "No response: the API could not be reached.", true);
  } finally {
    if (asking === used) asking = "";
  }
}

function drawUsage(usage, now) {
  const byHour = usage.by === "hour";
  const step = byHour ? 3600e3 : 86400e3;
  const complete = Date.parse(usage.completeThrough);
  const bars = [];
  for (let at = Date.parse(usage.since); at <= now; at += step) {
    const day = new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
    const mark = byHour ? new Date(at).toISOString().slice(11, 16) : day;
    const name = (byHour ? `${day}, ${mark}` : day) + (at + step > complete ? " (so far)" : "");
    bars.push({ name, mark, counts: [0, 0, 0], charged: 0 });
  }
  const sums = [0, 0, 0];
  for (const { start, outcome, requests, charged } of usage.rows) {
    const bar = bars[(Date.parse(start) - Date.parse(usage.since)) / step];
    if (!bar || outcome === "report") continue; // a report asks for the quota, and costs nothing
    const which = outcome === "ok" ? 0 : failures.has(outcome) ? 2 : 1;
    bar.counts[which] += requests;
    bar.charged += charged;
    sums[which] += requests;
  }
  const text = (n) => n.toLocaleString("en");
  const parts = series.map((name, n) => `${text(sums[n])} ${name}`);
  const legend = parts.map((part, n) => {
    const item = element("li", "");
    item.append(svg("svg", { width: 14, height: 14, "aria-hidden": true }, segment(n, 1, 1, 12, 12)), part);
    return item;
  });
  const most = Math.max(...bars.map((bar) => bar.counts.reduce((a, b) => a + b)));
  const period = byHour ? "an hour" : "a day";
  const summary = `Requests by ${usage.by}, in UTC: ${parts.join(", ")}; at most ${text(most)} in ${period}.`;
  drawing.hidden = false; // first, because the picture is as wide as its place
  $(".legend").replaceChildren(...legend);
  $(".picture").replaceChildren(chart(bars, most, text, summary));
  $("tbody", drawing).replaceChildren(...bars.map((bar) => {
    const row = element("tr", "");
    const cells = [...bar.counts, bar.charged].map((n) => element("td", text(n), { class: "number" }));
    row.append(element("th", bar.name, { scope: "row" }), ...cells);
    return row;
  }));
  say(usageState, summary);
}

function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// segment is a part of a bar. The series differ without colour too: full, striped, empty.
function segment(n, x, y, width, height) {
  const area = svg("g", { class: series[n] }, svg("rect", { x, y, width, height }));
  if (n !== 1) return area;
  let stripes = "";
  for (let at = 3; at < height; at += 4) stripes += `M${x} ${y + at}h${width}`;
  area.append(svg("path", { d: stripes }));
  return area;
}

function chart(bars, most, text, summary) {
  const [width, height, top] = [Math.max(240, Math.min(drawing.clientWidth, 720)), 120, 16];
  const whole = top + height + 20;
  const picture = svg("svg", {
    role: "img", "aria-label": summary, viewBox: `0 0 ${width} ${whole}`, width, height: whole,
  });
  const step = width / bars.length;
  const words = (x, y, anchor, content) => picture.append(svg("text", { x, y, "text-anchor": anchor }, content));
  for (const [n, bar] of bars.entries()) {
    let y = top + height;
    for (const [which, count] of bar.counts.entries()) {
      if (count === 0) continue;
      const tall = Math.max(1, (count / most) * height);
      y -= tall;
      picture.append(segment(which, n * step + 1.5, y, step - 3, tall));
    }
    if (n % Math.ceil((bars.length * 56) / width) === 0) words((n + 0.5) * step, top + height + 15, "middle", bar.mark);
  }
  picture.append(svg("path", { class: "base", d: `M0 ${top + height + 0.5}h${width}` }));
  words(0, 10, "start", `at most ${text(most)}`);
  return picture;
}

if (usageState) {
  $("#usage").hidden = $('nav [href="#usage"]').parentElement.hidden = false;
  $("#usage form").addEventListener("submit", (event) => {
    event.preventDefault();
    askUsage(event.submitter.value);
  });
}

// ---- The examples

const syntax = new RegExp([
  /("(?:[^"\\\n]|\\.)*"(?=\s*:))/, // a name
  /("(?:[^"\\\n]|\\.)*"|'[^']*'|`[^`]*`)/, // a text
  /((?<=^|\s)(?:\/\/|#) .*)/, // a note
  /\b(\d[\d.]*|true|false|null|nil|True|False|None)\b/, // a value
  /\b(async|await|const|curl|defer|err|export|for|if|import|let|new|of|range|return|var)\b/, // a word
].map((part) => part.source).join("|"), "gm");
const colours = ["name", "text", "note", "value", "word"].map((name) => {
  const colour = globalThis.Highlight && new Highlight();
  if (colour) CSS.highlights.set(name, colour);
  return colour;
});
const painted = new WeakMap();

// paint colours the text of an element. The browser keeps the colours apart from the text, so that
// the text stays one piece.
function paint(code) {
  const text = code.firstChild;
  if (!colours[0] || text?.nodeType !== Node.TEXT_NODE) return;
  for (const [colour, range] of painted.get(code) || []) colour.delete(range);
  painted.set(code, [...text.data.slice(0, 100_000).matchAll(syntax)].map((found) => {
    const range = new StaticRange({
      startContainer: text, startOffset: found.index,
      endContainer: text, endOffset: found.index + found[0].length,
    });
    const colour = colours[found.findIndex((part, n) => n > 0 && part !== undefined) - 1];
    colour.add(range);
    return [colour, range];
  }));
}

const base = new URL(root || ".", location.href).href.replace(/\/$/, "");
// variable matches how a language reads a variable: inside a string, in a shell, or by a call.
const variable = new RegExp([
  /\$\{process\.env\.PETGATE_(URL|TOKEN)\}/,
  /\$PETGATE_(URL|TOKEN)/,
  /(?:os\.Getenv\("|os\.environ\["|process\.env\.)PETGATE_(URL|TOKEN)(?:"\)|"\]|!)?/,
].map((one) => one.source).join("|"), "g");
const examples = new Map($$("#start code, .tabs code, #clients code").map(
  (code) => [code, code.textContent.replace("https://…", base)]));

// fill writes the examples: with the address and the key if the reader wants that, and else with
// the variables.
function fill() {
  const isShown = key && $("#key-shown").checked;
  for (const [code, text] of examples) {
    const withKey = text.replace(`${prefix}…`, key);
    code.textContent = !isShown ? text : withKey.replace(variable, (_, inside, shell, quoted) => {
      const value = (inside || shell || quoted) === "URL" ? base : key;
      return quoted ? JSON.stringify(value) : value;
    });
    paint(code);
  }
}
$("#key-shown").addEventListener("change", fill);
fill();
for (const code of $$(".code code")) if (!examples.has(code)) paint(code);

// One choice of the language is for all examples.
for (const radio of $$(".tabs input")) {
  radio.addEventListener("change", () => {
    for (const other of $$(`.tabs input[value="${radio.value}"]`)) other.checked = true;
  });
}

for (const block of $$(".code")) {
  if (!navigator.clipboard) break;
  const button = element("button", "Copy", { type: "button", class: "quiet copy" });
  block.append(button);
  button.addEventListener("click", async () => {
    const code = $$("code", block).find((one) => one.checkVisibility());
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// ---- The page

keyForm.hidden = false;
if ($("#sending")) $("#sending").hidden = false;

for (const time of $$(".notice time")) {
  const days = Math.ceil((new Date(time.dateTime) - Date.now()) / 86400000);
  const unit = days === 1 ? "day" : "days";
  if (days > 0) time.parentElement.querySelector(".left").textContent = `, in ${days.toLocaleString("en")} ${unit}`;
}

// The contents are beside the page if there is room, and else above it, folded.
const contents = $("#contents");
const isWide = matchMedia("(min-width: 62rem)");
const fold = () => (contents.open = isWide.matches);
isWide.addEventListener("change", fold);
fold();
contents.addEventListener("click", (event) => {
  if (event.target.closest("a")) fold();
});

const search = $("#search");
if (search) {
  search.hidden = false;
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const group of $$(".group")) {
      for (const item of $$("li", group)) {
        const text = `${item.textContent} ${item.firstChild.title}`.toLowerCase();
        item.hidden = !words.every((word) => text.includes(word));
      }
      group.hidden = !$("li:not([hidden])", group);
      if (words.length > 0) group.firstChild.open = true;
    }
  });
}

// The contents mark what is on the screen.
const here = $$("nav a").filter((link) => link.pathname === location.pathname);
const links = new Map(here.map((link) => [link.hash.slice(1), link]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-20% 0px -70% 0px" });
for (const id of links.keys()) if (document.getElementById(id)) watcher.observe(document.getElementById(id));
