// One job: call its handler, and report one outcome, the first.

import { config, log } from './config.mjs';
import { ErrorResponse, reason, sleep } from './server.mjs';
import { Steps } from './steps.mjs';

const DEFAULT_TIMEOUT_MS = 1_800_000;
const UNKNOWN_TYPE_PAUSE_MS = 1_000;
const MAX_REMEMBERED = 10_000;

const unknown = new Set(); // ids of jobs that were returned with the error of an unknown type

export class Run {
  constructor(job, { server, handlers, stopping, reportingEnded }) {
    Object.assign(this, { job, server, handlers, stopping, reportingEnded });
    this.startedAt = performance.now();
    this.controller = new AbortController();
    this.steps = new Steps(job, (path, body) => this.ask(path, body));
    this.reporting = false; // The outcome is being reported, or the claim is lost.
    this.reported = false;
  }

  /** Return when the handler has ended and the outcome is reported. Throws ErrorResponse for a 401 or 403. */
  async work() {
    if (this.interruption) return this.interruption; // Before it started.
    const handler = this.handlers[this.job.type];
    if (!handler) return this.giveBackUnknown();
    const limit = this.job.timeout_ms ?? DEFAULT_TIMEOUT_MS;
    const timer = setTimeout(() => this.interrupt('timeout', 'The job ran longer than its timeout.'), limit);
    try {
      const result = await handler(this.context(), ...this.job.args);
      this.steps.finish();
      await this.report('ack', { result: result ?? null }, 'completed');
    } catch (error) {
      if (this.steps.areSuspended) return this.endSuspended();
      if (error instanceof ErrorResponse && this.reported) throw error;
      await this.report('nack', { error: described(error) }, 'failed');
    } finally {
      clearTimeout(timer);
    }
    await this.interruption;
  }

  /** What the handler gets. The job of a later attempt has the `checkpoint` that was saved last. */
  context() {
    const checkpoint = (state) => this.ask('checkpoint', { state });
    return { job: this.job, signal: this.controller.signal, checkpoint, steps: this.steps };
  }

  /** Send a request about the job, until there is a response or the claim is lost; without a body, a GET. */
  ask(path, body) {
    const { id, attempt, run } = this.job;
    const claimed = body && { ...body, worker_id: config.workerId, attempt, run };
    return this.server.sendWithRetries(path, claimed, this.controller.signal, `jobs/${id}/${path}`);
  }

  /** Fail the job, or return it, and abort `signal`; the slot is taken until the handler ends. */
  interrupt(type, message, { requeue = false } = {}) {
    const body = { error: { type, message }, ...(requeue && { requeue }) };
    this.interruption = this.report('nack', body, requeue ? 'returned' : type);
    this.interruption.catch(() => {}); // `work` awaits it after the handler has ended.
    this.controller.abort(new Error(message));
  }

  /** The job sleeps or waits: the server has it, and there is no outcome to report. */
  endSuspended() {
    this.reporting = this.reported = true;
    log('info', 'job suspended', this.fields({ status: 'scheduled' }));
  }

  /** The job was cancelled, or another worker has claimed it. */
  loseClaim() {
    if (this.reporting) return;
    this.reporting = this.reported = true;
    log('warn', 'the claim is lost, the signal of the handler is aborted', this.fields());
    this.controller.abort(new Error('the claim is lost'));
  }

  // A deployment may be under way: the job is returned, without spending an attempt, for a worker that
  // has the handler. After a pause, or this worker would claim it again at once.
  async giveBackUnknown() {
    log('warn', 'no handler for this type, the job is given back', this.fields());
    await sleep(UNKNOWN_TYPE_PAUSE_MS, this.stopping);
    const errorSent = unknown.has(this.job.id);
    if (unknown.size > MAX_REMEMBERED) unknown.clear();
    unknown.add(this.job.id);
    const error = { type: 'NoHandlerRegistered', message: 'A worker has no handler for this job type.' };
    await this.report('nack', { requeue: true, ...(!errorSent && { error }) }, 'returned');
  }

  async report(operation, body, outcome) {
    if (this.reporting) return;
    this.reporting = true;
    // The claim: a worker that has lost it cannot change the job (§5.6).
    const { id, attempt, run } = this.job;
    const claim = { job_id: id, worker_id: config.workerId, attempt, run };
    try {
      await this.server.sendWithRetries(operation, { ...claim, ...body }, this.reportingEnded);
      log(outcome === 'completed' ? 'info' : 'warn', `job ${outcome}`, this.fields({ status: outcome }));
    } catch (error) {
      // If a response was lost, the repeated request conflicts with the first.
      log('warn', 'the outcome was not accepted', this.fields({ status: outcome, error: reason(error) }));
      if (error instanceof ErrorResponse && error.isCredentialError) throw error;
    } finally {
      this.reported = true;
    }
  }

  fields(more = {}) {
    const { id, type, queue, attempt } = this.job;
    const duration_ms = Math.round(performance.now() - this.startedAt);
    return { job_id: id, job_type: type, queue, attempt, duration_ms, ...more };
  }
}

/** An Error as FAIL wants it (ojs-errors). A handler sets `retryable` to false to end all attempts. */
function described(error) {
  const { name = 'Error', message = String(error), code, retryable } = error ?? {};
  return {
    type: String(name),
    message: String(message),
    ...(typeof code === 'string' && { code }),
    ...(typeof retryable === 'boolean' && { retryable }),
  };
}
