// The server, as a worker sees it: FETCH, ACK, FAIL and BEAT over HTTP (http-binding §10).

import { setMaxListeners } from 'node:events';

const MEDIA_TYPE = 'application/openjobspec+json';
const REQUEST_MS = 10_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 10_000;

/** A response that is no success. `code`, `details` and `text` are of its `error` object. */
export class ErrorResponse extends Error {
  constructor(status, error, retryAfterMs) {
    super(`${status} ${error?.code ?? ''}`.trim());
    this.status = status;
    this.code = error?.code;
    this.details = error?.details ?? {};
    this.text = error?.message;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same request may succeed later. */
  get isTemporary() {
    return this.status === 429 || this.status >= 500;
  }

  /** Whether the server rejects the API key. */
  get isCredentialError() {
    return this.status === 401 || this.status === 403;
  }
}

export class Server {
  constructor({ url, apiKey }, log) {
    this.base = `${url.replace(/\/+$/, '')}/ojs/v1`;
    this.headers = { 'Content-Type': MEDIA_TYPE, Accept: MEDIA_TYPE, 'OJS-Version': '1.0' };
    if (apiKey) this.headers.Authorization = `Bearer ${apiKey}`;
    this.log = log;
  }

  /** Send one request, a GET if there is no body. Throws ErrorResponse, or what fetch throws when there is no response. */
  async send(operation, body, path = `workers/${operation}`) {
    const response = await fetch(`${this.base}/${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: this.headers,
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(REQUEST_MS),
    });
    const text = await response.text();
    if (response.ok) return JSON.parse(text);
    const after = Number(response.headers.get('Retry-After')) * 1000;
    throw new ErrorResponse(response.status, parsed(text)?.error, after || undefined);
  }

  /** Send a request until it succeeds or fails for good, or until `signal` is aborted. */
  async sendWithRetries(operation, body, signal, path) {
    const backOff = new BackOff();
    for (;;) {
      try {
        return await this.send(operation, body, path);
      } catch (error) {
        if (signal.aborted || (error instanceof ErrorResponse && !error.isTemporary)) throw error;
        const pause = backOff.next(error);
        this.log('warn', 'trying again', { operation, error: reason(error), pause_ms: pause });
        await sleep(pause, signal);
      }
    }
  }
}

/** Pauses that double, with jitter, so that not all workers reconnect to a server at the same time. */
export class BackOff {
  pause = FIRST_PAUSE_MS;

  next(error) {
    const pause = Math.round(this.pause * (0.5 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    return Math.max(pause, Math.min(error?.retryAfterMs ?? 0, 60_000));
  }

  reset() {
    this.pause = FIRST_PAUSE_MS;
  }
}

/** Wait; end early, without an error, when one of the signals is aborted. */
export function sleep(milliseconds, ...signals) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    for (const signal of signals) {
      if (signal.aborted) end();
      else signal.addEventListener('abort', end);
    }
  });
}

/** An AbortController without a limit of listeners. */
export function controller() {
  const made = new AbortController();
  setMaxListeners(0, made.signal);
  return made;
}

/** The reason of an error, for a log line: fetch puts it into `cause`. */
export function reason(error) {
  return error.cause?.code ?? error.cause?.message ?? error.message;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // Such as the error page of a proxy.
  }
}
