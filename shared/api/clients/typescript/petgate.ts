// A client of the pet adoption API for browsers and for Node 20 or newer. It waits as the API asks,
// and needs no other package. schema.d.ts is generated from the OpenAPI document; this file is
// written by hand.

import type { components, operations } from "./schema.js";

export type Pet = components["schemas"]["Pet"];
export type NewPet = components["schemas"]["NewPet"];
export type Quota = components["schemas"]["Quota"];
export type Usage = components["schemas"]["Usage"];
export type Details = components["schemas"]["Details"];

/** For programs. New codes may come, so this is every string: treat an unknown code by its status. */
export type Code = components["schemas"]["ErrorCode"] | (string & {});

type Query<Operation extends keyof operations> = NonNullable<operations[Operation]["parameters"]["query"]>;

/** A response with an error status. */
export class APIError extends Error {
  override readonly name = "APIError";
  readonly status: number;
  /** Empty if the body is not the API's. */
  readonly code: Code;
  readonly details: Details;
  /** 0 if the response has no Retry-After. */
  readonly retryAfterMs: number;
  /** The request's id in the service's logs. */
  readonly requestId: string | null;

  constructor(response: Response, text: string) {
    const body = parse(text);
    super(typeof body.message === "string" ? body.message : `status ${response.status}`);
    this.status = response.status;
    this.code = typeof body.code === "string" ? body.code : "";
    this.details = body.details ?? {};
    this.retryAfterMs = retryAfterMs(response.headers.get("Retry-After"));
    this.requestId = response.headers.get("X-Request-Id");
  }
}

/** There is no complete response: the connection broke, or nothing came in time. `cause` says why. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

export interface Options {
  /** Scheme and host of the gateway, such as https://pets.example. */
  url: string;
  /** The API key. */
  token: string;
  /** Default: the platform's. */
  fetch?: typeof fetch;
  /** Requests of one call. Default: 8. */
  attemptsMax?: number;
  /** The longest wait before one request. Default: 2 minutes. */
  waitMaxMs?: number;
  /** A request that takes longer is given up. Default: 30 s; the gateway gives its upstream 10 s. */
  timeoutMs?: number;
}

/**
 * Calls the API with one key.
 *
 * A call is repeated after 429, 502, 503, 504, after 409 request_in_progress, and if the connection
 * breaks. Before each repetition it waits for Retry-After plus a random time, which grows with
 * every repetition. After a 429, all calls of the client but getQuota wait until that Retry-After
 * has passed: requests that do not wait can lead to a ban of the key.
 *
 * If its signal is aborted, a call rejects with the reason of the signal. After attemptsMax
 * requests, or if the next wait is longer than waitMaxMs, it rejects with the last error: an
 * APIError or a ConnectionError. A redirect is not followed: it is an APIError, with status 0 in
 * browsers.
 */
export class Client implements Record<keyof operations, unknown> {
  readonly #options: Required<Options>;
  #refused?: APIError; // the 429 whose Retry-After ends last
  #until = 0; // when that is, by performance.now()

  constructor(options: Options) {
    const { url, token, attemptsMax = 8, waitMaxMs = 120_000, timeoutMs = 30_000 } = options;
    const send = options.fetch ?? ((input, init) => fetch(input, init));
    this.#options = { url, token, attemptsMax, waitMaxMs, timeoutMs, fetch: send };
  }

  /**
   * The pets in the order of their ids. The next page (Link: rel="next") is requested when the loop
   * has consumed the last one. A page has 100 pets by default, the most, because each page costs a
   * request of the quota.
   */
  async *listPets(
    query: Query<"listPets"> = {},
    call: { signal?: AbortSignal } = {},
  ): AsyncGenerator<Pet, void, undefined> {
    let page: URL | undefined = this.#url("/v1/pets", { ...query, limit: query.limit ?? 100 });
    while (page) {
      const { result, headers }: Answer<Pet[]> = await this.#call({ method: "GET", url: page, ...call });
      yield* result;
      page = nextPage(page, headers.get("Link"));
    }
  }

  /**
   * Stores a pet once, even if several requests are needed. All of them have one Idempotency-Key:
   * the given one or a random one.
   *
   * After an error, the pet may be stored, whatever the code of the error says: the code is that of
   * the last request. Another call with the same key and pet stores it, unless it is stored
   * already, and returns it.
   */
  async createPet(pet: NewPet, call: { signal?: AbortSignal; idempotencyKey?: string } = {}): Promise<Pet> {
    const { idempotencyKey = randomKey(), signal } = call;
    const url = this.#url("/v1/pets");
    return (await this.#call<Pet>({ method: "POST", url, signal, idempotencyKey, body: JSON.stringify(pet) })).result;
  }

  /** @deprecated The API removes this operation on 5 December 2030. Use listPets. */
  async getPet(id: number, call: { signal?: AbortSignal } = {}): Promise<Pet> {
    return (await this.#call<Pet>({ method: "GET", url: this.#url(`/v1/pets/${id}`), ...call })).result;
  }

  /**
   * How much of the quota is left. This costs no quota, and does not wait for the Retry-After of
   * other calls: the API answers it also while the quota is used up and while the key is banned.
   */
  async getQuota(call: { signal?: AbortSignal } = {}): Promise<Quota> {
    return (await this.#call<Quota>({ method: "GET", url: this.#url("/v1/quota"), free: true, ...call })).result;
  }

  /** What the account has used, beginning with the hour or day of `since`. The key needs the scope usage:read. */
  async getUsage(query: Query<"getUsage"> = {}, call: { signal?: AbortSignal } = {}): Promise<Usage> {
    return (await this.#call<Usage>({ method: "GET", url: this.#url("/v1/usage", query), ...call })).result;
  }

  #url(path: string, query: Record<string, unknown> = {}): URL {
    const url = new URL(path, this.#options.url);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    return url;
  }

  /** All operations of the API are safe to repeat: GET, and POST with an Idempotency-Key. */
  async #call<T>(request: Request): Promise<Answer<T>> {
    for (let attempt = 1; ; attempt++) {
      for (let left; !request.free && (left = this.#until - performance.now()) > 0; ) {
        await this.#wait(left + backoffMs(1), this.#refused, request.signal);
      }
      try {
        return await this.#send<T>(request);
      } catch (error) {
        const waitMs = error instanceof APIError ? error.retryAfterMs : 0;
        const until = performance.now() + waitMs;
        if (!request.free && error instanceof APIError && error.status === 429 && until > this.#until) {
          this.#refused = error;
          this.#until = until;
        }
        if (attempt >= this.#options.attemptsMax || !repeatable(error)) throw error;
        await this.#wait(waitMs + backoffMs(attempt), error, request.signal);
      }
    }
  }

  async #send<T>({ method, url, signal, idempotencyKey, body }: Request): Promise<Answer<T>> {
    signal?.throwIfAborted();
    const headers = new Headers({ Accept: "application/json", Authorization: `Bearer ${this.#options.token}` });
    if (body !== undefined) headers.set("Content-Type", "application/json");
    if (idempotencyKey !== undefined) headers.set("Idempotency-Key", idempotencyKey);

    const { timeoutMs } = this.#options;
    const control = new AbortController();
    const stop = () => control.abort();
    const timer = setTimeout(() => control.abort(new Error(`no response within ${timeoutMs} ms`)), timeoutMs);
    signal?.addEventListener("abort", stop);
    let response: Response, text: string;
    try {
      // The API has no redirects. After one, fetch would send a POST as a GET, and its response
      // would look like success.
      response = await this.#options.fetch(url, { method, headers, body, redirect: "manual", signal: control.signal });
      text = await response.text();
    } catch (cause) {
      signal?.throwIfAborted();
      throw new ConnectionError(`${method} ${url}: ${cause instanceof Error ? cause.message : cause}`, { cause });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
    if (!response.ok) throw new APIError(response, text);
    return { result: JSON.parse(text) as T, headers: response.headers };
  }

  /** Waits, or throws the cause of the wait at once if it is too long. */
  async #wait(ms: number, cause: unknown, signal?: AbortSignal): Promise<void> {
    if (ms > this.#options.waitMaxMs) throw cause;
    const end = performance.now() + ms;
    // A timer may fire a little too early, and takes at most 2^31 - 1 ms.
    for (let left; (left = end - performance.now()) > 0; ) {
      await sleep(Math.min(Math.ceil(left), 2 ** 31 - 1), signal);
    }
  }
}

interface Request {
  method: string;
  url: URL;
  signal?: AbortSignal;
  idempotencyKey?: string;
  body?: string;
  /** The quota and bans do not apply. */
  free?: boolean;
}

interface Answer<T> {
  result: T;
  headers: Headers;
}

function repeatable(error: unknown): boolean {
  if (error instanceof APIError) {
    return [429, 502, 503, 504].includes(error.status) || error.code === "request_in_progress";
  }
  return error instanceof ConnectionError;
}

/**
 * A random time: at most 1 s before the first repetition, doubled for each further one, up to a
 * minute ("full jitter").
 */
function backoffMs(attempt: number): number {
  return Math.random() * Math.min(60_000, 1000 * 2 ** (attempt - 1));
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/** The API sends seconds. A proxy between may send a date (RFC 9110, section 10.2.3). */
function retryAfterMs(field: string | null): number {
  if (field === null) return 0;
  const ms = /^\d+$/.test(field) ? Number(field) * 1000 : Date.parse(field) - Date.now();
  return Math.max(0, ms || 0);
}

/** The next page, undefined after the last one. The key is sent to no other host. */
function nextPage(page: URL, link: string | null): URL | undefined {
  const target = /<([^>]*)>\s*;[^<]*\brel="?next\b/.exec(link ?? "")?.[1];
  if (target === undefined) return undefined;
  const next = new URL(target, page);
  if (next.origin !== page.origin) throw new Error(`the next page is on another host: ${next}`);
  return next;
}

function parse(text: string): { message?: unknown; code?: unknown; details?: Details } {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `"${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}"`;
}
