import type { WorkloadSpec } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';

/**
 * The subject of a plan: the current workload (undefined when the change creates it) and the new
 * spec.
 */
export interface PlanSubject {
  readonly namespace: string;
  readonly name: string;
  readonly current: WorkloadRecord | undefined;
  readonly spec: WorkloadSpec;
}
