import type { Counter, Meter } from '@cloudless/base';

/** Creates the counter of decisions about replicas, which all parts that place replicas share. */
export function createPlacementCounter(meter: Meter): Counter {
  return meter.counter({
    name: 'cloudless_placements_total',
    help: 'Replicas that the scheduler decided about, by result: placed, or unplaced when no node fits.',
    labels: ['result'],
  });
}
