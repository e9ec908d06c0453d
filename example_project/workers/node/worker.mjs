#!/usr/bin/env node
// A worker for any Open Job Spec server: Node 18 or newer, nothing to install. See README.md.
// Paragraphs are those of the worker protocol.

import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { config, log } from './config.mjs';
import { Run } from './run.mjs';
import { BackOff, Refused, Server, controller, reason, sleep } from './server.mjs';

/** While jobs end one by one, FETCH waits this long for more free slots. */
const GATHER_MS = 50;
/** After the grace period: the time for the answers that give the rest back. */
const LAST_WORD_MS = 5_000;

const server = new Server(config, log);
const runs = new Map(); // id of the job -> its run
const startedAt = new Date().toISOString();
const stopping = controller(); // no more FETCH
const gracePassed = controller(); // no more waiting for handlers
const lastWord = controller(); // no more waiting for the server
const ended = controller(); // no more BEAT
let wake = controller(); // a slot is free, or the state has changed
let state = 'running';
let quietedByServer = false;
let exitCode = 0;

function stir() {
  wake.abort();
  wake = controller();
}

// States (§2.3)

function quiet(byServer) {
  if (state !== 'running') return;
  [state, quietedByServer] = ['quiet', byServer];
  log('info', 'quiet: claiming nothing more', { by: byServer ? 'server' : 'signal' });
  stir();
}

function resume(byServer) {
  // A server that says "running" does not know of the signal that said otherwise.
  if (state !== 'quiet' || (byServer && !quietedByServer)) return;
  state = 'running';
  log('info', 'running again');
  stir();
}

function terminate(why) {
  if (state === 'terminate') return;
  state = 'terminate';
  log('info', 'terminating', { why, in_hand: runs.size });
  stopping.abort();
  stir();
  setTimeout(giveUp, config.graceMs).unref();
}

function giveUp() {
  if (gracePassed.signal.aborted) return;
  gracePassed.abort();
  for (const run of runs.values()) run.interrupt('shutdown', 'The worker shut down.', { requeue: true });
  setTimeout(() => lastWord.abort(), LAST_WORD_MS).unref();
  stir();
}

/** A wrong key stays wrong: end with an exit code that the supervisor sees. */
function endIfRefused(error) {
  if (!(error instanceof Refused && error.isAboutUs)) return;
  exitCode = 1;
  log('error', 'the server refuses these credentials, see OJS_API_KEY', { status: error.status });
  terminate('refused');
}

// BEAT (§4)

async function beat() {
  const named = [...runs.values()];
  const answer = await server.send('heartbeat', {
    worker_id: config.workerId,
    state,
    active_jobs: named.length,
    active_job_ids: named.map((run) => run.job.id),
    visibility_timeout_ms: config.visibilityMs,
    heartbeat_interval_ms: config.beatMs,
    hostname: hostname(),
    pid: process.pid,
    queues: config.queues,
    concurrency: config.concurrency,
    started_at: startedAt,
  });
  if (Array.isArray(answer.jobs_extended)) {
    for (const run of named) if (!answer.jobs_extended.includes(run.job.id)) run.lose();
  }
  if (answer.state === 'terminate') terminate('server');
  else if (answer.state === 'quiet') quiet(true);
  else resume(true);
}

async function keepBeating() {
  while (!ended.signal.aborted) {
    try {
      await beat();
    } catch (error) {
      // A worker goes on as it was (§4.6); the next beat comes in time.
      log('warn', 'a beat failed', { error: reason(error) });
      endIfRefused(error);
    }
    await sleep(config.beatMs, ended.signal);
  }
}

// FETCH (§6)

async function keepFetching() {
  const backOff = new BackOff();
  while (!stopping.signal.aborted) {
    if (state !== 'running' || runs.size >= config.concurrency) {
      await sleep(config.pollMs, wake.signal);
      continue;
    }
    const gathered = performance.now() + GATHER_MS;
    while (runs.size > config.concurrency / 2 && performance.now() < gathered) {
      await sleep(GATHER_MS, wake.signal);
    }
    try {
      const count = config.concurrency - runs.size;
      const fetched = await fetchJobs(count);
      backOff.reset();
      if (fetched < count) await sleep(config.pollMs, stopping.signal);
    } catch (error) {
      endIfRefused(error);
      const pause = backOff.next(error);
      log('warn', 'trying again', { operation: 'fetch', error: reason(error), pause_ms: pause });
      await sleep(pause, stopping.signal);
    }
  }
}

async function fetchJobs(count) {
  const { jobs } = await server.send('fetch', {
    queues: config.queues,
    count,
    worker_id: config.workerId,
    // Short, and extended with each beat: when this answer gets lost, its jobs are back in a minute.
    visibility_timeout_ms: config.visibilityMs,
  });
  for (const job of jobs) {
    const run = new Run(job, { server, handlers, stopping: stopping.signal, lastWord: lastWord.signal });
    runs.set(job.id, run);
    run.work().catch(endIfRefused).finally(() => {
      // It may have come again meanwhile, as another run.
      if (runs.get(job.id) === run) runs.delete(job.id);
      stir();
    });
  }
  return jobs.length;
}

// From start to end (§7)

for (const name of ['SIGTERM', 'SIGINT']) {
  process.on(name, () => (state === 'terminate' ? giveUp() : terminate(name)));
}
process.on('SIGTSTP', () => quiet(false));
process.on('SIGCONT', () => resume(false));

const { handlers } = await import(pathToFileURL(resolve(config.handlers)).href);
log('info', 'started', { url: config.url, queues: config.queues, types: Object.keys(handlers) });
// It registers first: the server recovers the jobs of known workers only.
await beat().catch((error) => {
  log('warn', 'the first beat failed', { error: reason(error) });
  endIfRefused(error);
});
const beating = keepBeating();
await keepFetching();
while (!lastWord.signal.aborted && [...runs.values()].some(isAwaited)) {
  await sleep(config.pollMs, wake.signal, lastWord.signal);
}
ended.abort();
await beating;
log('info', 'ended', { exit_code: exitCode });
process.exit(exitCode);

/** A handler that does not end when it is asked to is waited for no longer than the grace period. */
function isAwaited(run) {
  return !(gracePassed.signal.aborted && run.answered);
}
