import { withDefaults, type WorkloadSpec } from '@cloudless/api';

/** Copies with defaults of the specs in use. A stored spec does not change. */
const copies = new WeakMap<WorkloadSpec, WorkloadSpec>();

/**
 * Returns a spec with its defaults filled in. All callers with the same spec share the copy, which
 * must not be changed: passes over a workload need the copy again and again, and filling it costs
 * more than the rest of a short pass.
 */
export function getSpecWithDefaults(spec: WorkloadSpec): WorkloadSpec {
  const known = copies.get(spec);
  if (known !== undefined) return known;
  const copy = withDefaults(spec);
  copies.set(spec, copy);
  return copy;
}
