// The handlers, by job type. A handler gets the context (`job` as it was fetched, and `signal`) and the
// arguments. What it returns is the result of the job; what it throws is the failure of this attempt.

import { createHash } from 'node:crypto';

const DAY_MS = 86_400_000;

/** The number under which the carrier collects parcels with these numbers. */
export function collection(numbers) {
  const digest = createHash('sha256').update(numbers.join(' '), 'utf8').digest();
  return `PU${String(digest.readUInt32BE(0) % 100_000_000).padStart(8, '0')}`;
}

export const handlers = {
  // A step of a workflow: `parent_results` has the results of the steps before it, the labels last.
  'order.handover': ({ job }) => {
    const parcels = job.parent_results.at(-1).map((label) => label.tracking);
    return { collection: collection(parcels), parcels, by: 'node' };
  },

  // Durable steps: while it waits, the job takes no slot, and this process may end. A step that is done stays done.
  'parcel.return': async ({ steps }, tracking) => {
    const label = await steps.run('label', (key) => ({ number: collection([tracking]), key }));
    const parcel = await steps.wait('parcel.arrived', tracking, { timeoutMs: 14 * DAY_MS });
    await steps.sleep('objections', DAY_MS);
    return { label: label.number, parcel };
  },
};
