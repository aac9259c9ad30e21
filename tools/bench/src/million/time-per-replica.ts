/** A moment of a phase: what had been done, and what it had cost. */
export interface Progress {
  readonly started: number;
  readonly seconds: number;
  readonly coordinatorCpuSeconds: number;
}

/** Cost of the replicas between the part before and `upTo`. */
export interface PartCost {
  readonly upTo: number;
  /** Wall time for each replica, microseconds. */
  readonly wallUs: number;
  /** CPU time of the coordinator for each replica, microseconds. */
  readonly cpuUs: number;
}

/**
 * Splits a phase into parts of equally many replicas, and computes what a replica of each part has
 * cost: flat when the cost does not depend on what is there already.
 * @param samples - In the order of time; `started` never falls.
 * @returns Fewer parts when the samples end before `replicas`.
 */
export function splitCosts(
  samples: readonly Progress[],
  replicas: number,
  parts: number,
): readonly PartCost[] {
  const costs: PartCost[] = [];
  let before: Progress = { started: 0, seconds: 0, coordinatorCpuSeconds: 0 };
  for (let part = 1; part <= parts; part += 1) {
    const upTo = Math.round((replicas * part) / parts);
    const at = interpolate(samples, upTo);
    if (at === undefined) break;
    const count = Math.max(1, upTo - before.started);
    costs.push({
      upTo,
      wallUs: Math.round(((at.seconds - before.seconds) / count) * 1e6),
      cpuUs: Math.round(((at.coordinatorCpuSeconds - before.coordinatorCpuSeconds) / count) * 1e6),
    });
    before = at;
  }
  return costs;
}

/** The moment at which `started` was reached, between the samples around it. */
function interpolate(samples: readonly Progress[], started: number): Progress | undefined {
  const index = samples.findIndex((sample) => sample.started >= started);
  const after = samples[index];
  if (after === undefined) return undefined;
  const before = samples[index - 1] ?? { started: 0, seconds: 0, coordinatorCpuSeconds: 0 };
  const span = after.started - before.started;
  const share = span === 0 ? 1 : (started - before.started) / span;
  return {
    started,
    seconds: before.seconds + share * (after.seconds - before.seconds),
    coordinatorCpuSeconds:
      before.coordinatorCpuSeconds +
      share * (after.coordinatorCpuSeconds - before.coordinatorCpuSeconds),
  };
}
