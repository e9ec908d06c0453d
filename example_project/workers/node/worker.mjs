#!/usr/bin/env node
// A worker for any Open Job Spec server: Node 18 or newer, nothing to install. See README.md.
// Section numbers are those of the worker protocol.

import { existsSync } from 'node:fs';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { config, log, refuseToStart } from './config.mjs';
import { Run } from './run.mjs';
import { BackOff, ErrorResponse, Server, controller, reason, sleep } from './server.mjs';

/** While jobs end one by one, FETCH waits this long for more free slots. */
const GATHER_MS = 50;
/** How long after the grace period the worker tries to return its remaining jobs. */
const FINAL_REPORT_MS = 5_000;

const server = new Server(config, log);
const runs = new Map(); // id of the job -> its run
const startedAt = new Date().toISOString();
const stopping = controller(); // aborted: no further FETCH
const graceEnded = controller(); // aborted: handlers are no longer waited for
const reportingEnded = controller(); // aborted: the server is no longer waited for
const ended = controller(); // aborted: no further BEAT
let wake = controller(); // aborted when a slot is free or the state has changed
let state = 'running';
let quietedByServer = false;
let exitCode = 0;

function wakeUp() {
  wake.abort();
  wake = controller();
}

// States (§2.3)

function quiet(byServer) {
  if (state !== 'running') return;
  [state, quietedByServer] = ['quiet', byServer];
  log('info', 'quiet: no more jobs are claimed', { by: byServer ? 'server' : 'signal' });
  wakeUp();
}

function resume(byServer) {
  // A "running" from the server does not resume a worker that a signal made quiet.
  if (state !== 'quiet' || (byServer && !quietedByServer)) return;
  state = 'running';
  log('info', 'running again');
  wakeUp();
}

function terminate(why) {
  if (state === 'terminate') return;
  state = 'terminate';
  log('info', 'terminating', { why, in_flight: runs.size });
  stopping.abort();
  wakeUp();
  setTimeout(endGracePeriod, config.graceMs).unref();
}

function shutDown(run) {
  run.interrupt('shutdown', 'The worker shut down.', { requeue: true });
}
function endGracePeriod() {
  if (graceEnded.signal.aborted) return;
  graceEnded.abort();
  log('info', 'the grace period has ended', { active_jobs: runs.size });
  for (const run of runs.values()) shutDown(run);
  setTimeout(() => reportingEnded.abort(), FINAL_REPORT_MS).unref();
  wakeUp();
}

/** Another try with the same key would fail too: end with an exit code that the supervisor sees. */
function endOnCredentialError(error) {
  if (!(error instanceof ErrorResponse && error.isCredentialError)) return;
  exitCode = 1;
  log('error', 'the server rejects these credentials, see OJS_API_KEY and OJS_QUEUES', {
    status: error.status,
    error: error.text,
  });
  terminate('rejected');
}

// BEAT (§4)

async function beat() {
  const held = [...runs.values()];
  const response = await server.send('heartbeat', {
    worker_id: config.workerId,
    state,
    active_jobs: held.length,
    active_job_ids: held.map((run) => run.job.id),
    visibility_timeout_ms: config.visibilityMs,
    heartbeat_interval_ms: config.beatMs,
    hostname: hostname(),
    pid: process.pid,
    queues: config.queues,
    concurrency: config.concurrency,
    started_at: startedAt,
  });
  const { jobs_extended: extended, jobs_lost: lost } = response;
  for (const run of held) {
    // A job whose row is locked, as while its checkpoint is stored, is not extended, and not lost. A server that does
    // not tell them apart sends only what it has extended.
    const isLost = lost ? lost.includes(run.job.id) : extended && !extended.includes(run.job.id);
    if (isLost) run.loseClaim();
  }
  if (response.state === 'terminate') terminate('server');
  else if (response.state === 'quiet') quiet(true);
  else resume(true);
}

async function keepBeating() {
  while (!ended.signal.aborted) {
    try {
      await beat();
    } catch (error) {
      // A failed beat changes nothing (§4.6); the next one follows after the interval.
      log('warn', 'a beat failed', { error: reason(error) });
      endOnCredentialError(error);
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
    const gatherUntil = performance.now() + GATHER_MS;
    while (runs.size > config.concurrency / 2 && performance.now() < gatherUntil) {
      await sleep(GATHER_MS, wake.signal);
    }
    try {
      const count = config.concurrency - runs.size;
      const fetched = await fetchJobs(count);
      backOff.reset();
      if (fetched < count) await sleep(config.pollMs, stopping.signal);
    } catch (error) {
      endOnCredentialError(error);
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
    // Short, and extended by each beat: if this response is lost, its jobs are available again in a minute.
    visibility_timeout_ms: config.visibilityMs,
  });
  for (const job of jobs) {
    const run = new Run(job, { server, handlers, stopping: stopping.signal, reportingEnded: reportingEnded.signal });
    runs.set(job.id, run);
    // The response was on its way when the grace period ended: the job goes back and does not start.
    if (graceEnded.signal.aborted) shutDown(run);
    run.work().catch(endOnCredentialError).finally(() => {
      // The job may have been claimed again meanwhile, as another run.
      if (runs.get(job.id) === run) runs.delete(job.id);
      wakeUp();
    });
  }
  return jobs.length;
}

// From start to end (§7)

for (const name of ['SIGTERM', 'SIGINT']) {
  process.on(name, () => (state === 'terminate' ? endGracePeriod() : terminate(name)));
}
process.on('SIGTSTP', () => quiet(false));
process.on('SIGCONT', () => resume(false));

const file = resolve(config.handlers);
if (!existsSync(file)) refuseToStart('there is no file at OJS_HANDLERS', { file });
const { handlers } = await import(pathToFileURL(file).href);
if (!handlers) refuseToStart('the module at OJS_HANDLERS has no export "handlers"', { file });
log('info', 'started', { url: config.url, queues: config.queues, types: Object.keys(handlers) });
// The first beat registers the worker: the server recovers the jobs of known workers only.
await beat().catch((error) => {
  const hint = error.status === 404 ? { hint: 'OJS_URL is the server without /ojs' } : {};
  log('warn', 'the first beat failed', { error: reason(error), ...hint });
  endOnCredentialError(error);
});
const beating = keepBeating();
await keepFetching();
while (!reportingEnded.signal.aborted && [...runs.values()].some(isAwaited)) {
  await sleep(config.pollMs, wake.signal, reportingEnded.signal);
}
ended.abort();
await beating;
log('info', 'ended', { exit_code: exitCode });
process.exit(exitCode);

/** Whether to wait for a run: after the grace period, only until its outcome is reported. */
function isAwaited(run) {
  return !(graceEnded.signal.aborted && run.reported);
}
