// The configuration from the environment, and the log.

import { randomUUID } from 'node:crypto';

// A new id for each process: the server must not take a restarted worker for the old one (§3.1).
const workerId = `node-${randomUUID()}`;

const text = (name, fallback) => process.env[name] || fallback;

function number(name, fallback) {
  const value = Number(text(name, fallback));
  if (!(value > 0)) refuseToStart(`${name} must be a number above 0`);
  return value;
}

export const config = {
  workerId,
  url: text('OJS_URL', 'http://127.0.0.1:8000'),
  apiKey: text('OJS_API_KEY'),
  queues: text('OJS_QUEUES', 'default').split(',').map((name) => name.trim()),
  handlers: text('OJS_HANDLERS', new URL('./handlers.mjs', import.meta.url).pathname),
  concurrency: number('OJS_CONCURRENCY', 10),
  beatMs: number('OJS_BEAT_MS', 5_000),
  pollMs: number('OJS_POLL_MS', 500),
  graceMs: number('OJS_GRACE_MS', 25_000),
  visibilityMs: number('OJS_VISIBILITY_MS', 60_000),
};

/** Write one JSON object per line. It never contains arguments, results or the API key. */
export function log(level, message, fields = {}) {
  const line = { ts: new Date().toISOString(), level, message, worker_id: workerId, ...fields };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** End with an exit code that the supervisor sees: the configuration is wrong. */
export function refuseToStart(message, fields = {}) {
  log('error', message, fields);
  process.exit(1);
}
