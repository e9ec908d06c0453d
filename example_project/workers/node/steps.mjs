// Durable steps: each is done once, and a later run of the job gets its stored result. They are an extension of
// django_ojs (urn:ojs:ext:x:django-ojs:steps), not part of the specification.

import { ErrorResponse } from './server.mjs';

/** Thrown through a handler whose job sleeps or waits. The handler does not catch it: it will run again. */
export class Suspended extends Error {
  name = 'Suspended';
}

/** The steps of one run, in the order in which its handler takes them. */
export class Steps {
  #job;
  #ask;
  #history; // What earlier runs have stored; undefined until it is read.
  #position = 0;
  #names = new Map();
  #taking; // The name of the step that is going on.
  #over; // Why this run takes no further step.
  #failed; // A step that has failed. It is stored if the handler goes on after all.

  /** `ask(path, body)` sends a request about the job until there is a response; without a body it is a GET. */
  constructor(job, ask) {
    this.#job = job;
    this.#ask = ask;
    if (job.run === 1) this.#history = [];
  }

  /** Whether the job was given back. */
  get areSuspended() {
    return this.#over instanceof Suspended;
  }

  /**
   * Do something once, and return its result, which is JSON. `action` gets an idempotency key, the same in each run.
   * With `attempts` above 1 the job waits for `delayMs` after each failure, and then tries this step again.
   */
  run(name, action, { attempts = 1, delayMs = 1_000 } = {}) {
    return this.#next('run', name, undefined, async (step) => {
      let result;
      try {
        result = (await action(`${this.#job.id}:${step.name}`)) ?? null;
      } catch (error) {
        const described = { type: String(error?.name), message: String(error?.message) };
        if (attempts > (step.known?.attempts ?? 0) + 1 && error?.retryable !== false) {
          await this.#suspend(step, 'run', { delay_ms: delayMs, error: described });
        }
        this.#failed = { number: step.number, name: step.name, error: described };
        throw attempts > 1 ? failure(error) : error;
      }
      await this.#store({ number: step.number, name: step.name, result });
      return result;
    });
  }

  /** Go on after some time. Meanwhile the job is scheduled, and takes no slot of a worker. */
  async sleep(name, delayMs) {
    await this.#next('sleep', name, undefined, (step) => this.#suspend(step, 'sleep', { delay_ms: delayMs }));
  }

  /** Return the payload of a signal when it comes. Without `timeoutMs`, the server has a limit. */
  wait(signal, key, { timeoutMs } = {}) {
    return this.#next('wait', signal, key, (step) => this.#suspend(step, 'wait', { key, delay_ms: timeoutMs }));
  }

  /** See that the handler, which has returned, came to the end of the history. */
  finish() {
    if (this.#over) throw this.#over;
    const left = this.#history?.[this.#position];
    if (left) throw changed(`The handler has returned, and its history says that ${left.name} comes next.`);
  }

  async #next(kind, name, key, take) {
    if (this.#over) throw this.#over;
    if (this.#taking !== undefined) throw failure(`The step ${name} begins while ${this.#taking} is not done.`);
    this.#taking = name;
    try {
      this.#history ??= (await this.#ask(`steps?run=${this.#job.run}`)).steps;
      if (this.#failed) await this.#store(this.#failed);
      this.#failed = undefined;
      const count = (this.#names.get(name) ?? 0) + 1;
      this.#names.set(name, count);
      const step = { number: this.#position, name: count === 1 ? name : `${name}#${count}` };
      step.known = this.#history[step.number];
      const { known } = step;
      if (known && (known.name !== step.name || known.kind !== kind || known.key !== key)) {
        throw changed(`The handler takes the step ${step.name} (${kind}), its history says ${known.name}.`);
      }
      return known && known.outcome !== 'waiting' ? this.#ended(known) : await take(step);
    } finally {
      this.#taking = undefined;
    }
  }

  async #store(step) {
    await this.#ask('steps', step);
    this.#position += 1;
  }

  /** Give the job back. Where there is nothing to wait for, the server has ended the step. */
  async #suspend({ number, name }, kind, more) {
    let answer;
    try {
      answer = await this.#ask('steps/suspend', { number, name, kind, ...more });
    } catch (error) {
      // The response to the first request may have been lost.
      const { current_run: run, current_state: state } = error.details ?? {};
      const isGivenBack = run === this.#job.run && (state === 'scheduled' || state === 'available');
      if (!(error instanceof ErrorResponse && isGivenBack)) throw error;
      answer = { suspended: true };
    }
    if (!answer.suspended) return this.#ended(answer.step);
    this.#over = new Suspended(`The job waits at its step ${name}.`);
    throw this.#over;
  }

  /** Return the result of a stored step, or throw what it ended with. */
  #ended(step) {
    this.#position += 1;
    if (step.outcome === 'failed') throw failure(step.error);
    if (step.outcome === 'timed_out') throw failure(`The signal ${step.signal} did not come in time.`, 'WaitTimedOut');
    return step.result;
  }
}

const changed = (why) => failure(`${why} Its program was changed.`, 'ProgramChanged');

/** An error that ends all attempts of the job: to run it again would end in the same way. */
function failure(why, name = 'StepFailed') {
  const message = typeof why === 'string' ? why : String(why?.message);
  return Object.assign(new Error(message), { name, retryable: false });
}
