// Handlers for the tests of the Node worker.

export const handlers = {
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
