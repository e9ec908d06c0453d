// One job: call its handler, and send one response: the first outcome counts.

import { config, log } from './config.mjs';
import { Refused, reason, sleep } from './server.mjs';

const DEFAULT_TIMEOUT_MS = 1_800_000;
const UNKNOWN_TYPE_PAUSE_MS = 1_000;
const MOST_REMEMBERED = 10_000;

const unknown = new Set(); // ids of jobs whose type we had to say we do not know

export class Run {
  constructor(job, { server, handlers, stopping, lastWord }) {
    Object.assign(this, { job, server, handlers, stopping, lastWord });
    this.began = performance.now();
    this.controller = new AbortController();
    this.answering = false; // Its answer is under way, or it is no longer ours to answer for.
    this.answered = false;
  }

  /** Return when the handler has ended and the answer is given. Throws Refused for a 401 or 403. */
  async work() {
    const handler = this.handlers[this.job.type];
    if (!handler) return this.giveBackUnknown();
    const limit = this.job.timeout_ms ?? DEFAULT_TIMEOUT_MS;
    const timer = setTimeout(() => this.interrupt('timeout', 'The job ran longer than its timeout.'), limit);
    try {
      const result = await handler({ job: this.job, signal: this.controller.signal }, ...this.job.args);
      await this.answer('ack', { result: result ?? null }, 'completed');
    } catch (error) {
      if (error instanceof Refused && this.answered) throw error;
      await this.answer('nack', { error: described(error) }, 'failed');
    } finally {
      clearTimeout(timer);
    }
    await this.interruption;
  }

  /** Fail the job, or give it back, and ask the handler to end; until it does it keeps its slot. */
  interrupt(type, message, { requeue = false } = {}) {
    const body = { error: { type, message }, ...(requeue && { requeue }) };
    this.interruption = this.answer('nack', body, requeue ? 'returned' : type);
    this.interruption.catch(() => {}); // `work` waits for it, though only when the handler has ended.
    this.controller.abort(new Error(message));
  }

  /** The server no longer counts it among ours: cancelled, or taken over. */
  lose() {
    if (this.answering) return;
    this.answering = this.answered = true;
    log('warn', 'the claim is gone, the handler is asked to end', this.fields());
    this.controller.abort(new Error('the claim is gone'));
  }

  // Perhaps a deployment is under way: the job goes back, unspent, for a worker that knows it. Not at
  // once, or it would come and go all day.
  async giveBackUnknown() {
    log('warn', 'no handler for this type, the job is given back', this.fields());
    await sleep(UNKNOWN_TYPE_PAUSE_MS, this.stopping);
    const told = unknown.has(this.job.id);
    if (unknown.size > MOST_REMEMBERED) unknown.clear();
    unknown.add(this.job.id);
    const error = { type: 'NoHandlerRegistered', message: 'A worker has no handler for this job type.' };
    await this.answer('nack', { requeue: true, ...(!told && { error }) }, 'returned');
  }

  async answer(operation, body, outcome) {
    if (this.answering) return;
    this.answering = true;
    // The claim: a worker that has lost it cannot change the job (§5.6).
    const claim = { job_id: this.job.id, worker_id: config.workerId, attempt: this.job.attempt };
    try {
      await this.server.insist(operation, { ...claim, ...body }, this.lastWord);
      log(outcome === 'completed' ? 'info' : 'warn', `job ${outcome}`, this.fields({ status: outcome }));
    } catch (error) {
      // Where an answer got lost on its way back, the second one is a conflict with the first.
      log('warn', 'the answer was not taken', this.fields({ status: outcome, error: reason(error) }));
      if (error instanceof Refused && error.isAboutUs) throw error;
    } finally {
      this.answered = true;
    }
  }

  fields(more = {}) {
    const { id, type, queue, attempt } = this.job;
    const duration_ms = Math.round(performance.now() - this.began);
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
