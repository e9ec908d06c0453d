// Handlers for the tests of the Node worker.

import { appendFileSync, readFileSync } from 'node:fs';

import { handlers as examples } from '../../example_project/workers/node/handlers.mjs';

/** Return a function that takes a step, whose effect is a line in a file. */
const effects = (steps, file) => (name, then) =>
  steps.run(name, (key) => {
    appendFileSync(file, `${name} ${key}\n`);
    return then ? then() : name;
  });

export const handlers = {
  'parcel.return': examples['parcel.return'],
  // Durable steps. Its process must be killed while it packs: the second time, it goes on.
  'test.steps': async ({ steps }, file) => {
    const done = effects(steps, file);
    const charge = await done('charge');
    await steps.sleep('rest', 200);
    await done('pack', () => {
      const isFirst = readFileSync(file, 'utf8').match(/^pack /gm).length === 1;
      return isFirst ? new Promise(() => {}) : 'packed';
    });
    const labels = [];
    for (let n = 0; n < 3; n += 1) labels.push(await done('label'));
    const parcel = await steps.wait('sent', file, { timeoutMs: 3_600_000 });
    return { charge, labels, parcel };
  },
  // A step that fails twice, and one that fails for good, after which the handler goes on.
  'test.step-retries': async ({ steps }, file) => {
    const done = effects(steps, file);
    const fails = (times) => () => {
      if (readFileSync(file, 'utf8').match(/^charge /gm).length <= times) throw new TypeError('not yet');
      return 'paid';
    };
    const retry = { attempts: 3, delayMs: 10 };
    const charge = await steps.run('charge', (key) => (appendFileSync(file, `charge ${key}\n`), fails(2)()), retry);
    const refund = await done('refund', () => Promise.reject(new RangeError('closed'))).catch(({ message }) => message);
    const timeout = await steps.wait('never', file, { timeoutMs: 100 }).catch(({ name }) => name);
    return { charge, refund, timeout };
  },
  'test.changed-program': async ({ steps, job }) => {
    await steps.run(`attempt ${job.attempt}`, () => 1);
    throw new Error('try again');
  },
  'test.echo': (context, ...args) => ({ args, attempt: context.job.attempt }),
  'test.results-before': ({ job }) => job.parent_results,
  'test.second': ({ job }) => {
    if (job.attempt < 2) throw new TypeError('not yet');
    return 'at last';
  },
  'test.never': () => {
    throw Object.assign(new Error('no use'), { code: 'NO_USE', retryable: false });
  },
  // Continues after the row of its checkpoint, and fails once.
  'test.rows': async ({ job, checkpoint }, rows) => {
    const first = job.checkpoint?.state.row ?? 0;
    for (let row = first + 1; row <= rows; row += 1) {
      await checkpoint({ row });
      if (job.attempt < 2 && row === 3) throw new Error('half of it is done');
    }
    return { first };
  },
  // Ends when it is asked to.
  'test.sleep': ({ signal }, milliseconds) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => resolve('slept'), milliseconds);
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        reject(signal.reason);
      });
    }),
  // Does not.
  'test.stubborn': (context, milliseconds) =>
    new Promise((resolve) => setTimeout(() => resolve('slept'), milliseconds)),
};
