import { create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { toReplicaId } from '@cloudless/base';
import { Transaction, type Stored } from '@cloudless/cluster-state';
import { resolveLimits, type RolloutReplica, type RolloutStep } from '@cloudless/rollout';
import { retireEndedReplicas } from './retire-ended-replicas.js';
import { SlotBackoffs } from './slot-backoff.js';
import { requireReadinessGuard, StepQueue } from './apply-steps.js';
import type { WorkloadPass } from './workload-pass.js';

const NOW = { wallTimeMs: 0, revision: 9n };
/** Most writes of a store transaction. */
const MAX_WRITES = 100;

/** A pass over a workload with `count` wanted replicas, whose fields may be changed. */
function aPass(
  count: number,
  fields: Partial<Pick<ReplicaRecord, 'phase' | 'ready'>>,
): WorkloadPass {
  const replicas = Array.from({ length: count }, (_, index): Stored<ReplicaRecord> => {
    const place = {
      id: `w-${index}`,
      uid: 'w',
      sequence: BigInt(index),
      slot: index,
      nodeId: 'node-1',
      version: 1,
    };
    return {
      value: create(ReplicaRecordSchema, { ...place, desiredRunning: true, ...fields }),
      revision: BigInt(index + 1),
    };
  });
  const control = create(ControlRecordSchema, { uid: 'w', nextSequence: BigInt(count) });
  return {
    decisionId: 'rollout/w@9',
    view: {
      revision: 9n,
      lastEvent: () => undefined,
      lastEventOfReplica: () => undefined,
      node: () => undefined,
      version: () => undefined,
      versions: () => [],
      config: () => undefined,
      secret: () => undefined,
      filesGuard: () => undefined,
      filesUse: () => undefined,
    },
    workload: { value: create(WorkloadRecordSchema, { uid: 'w', version: 1 }), revision: 1n },
    control: { value: control, revision: 1n },
    readinessGuard: 'absent',
    versions: [],
    replicas,
    transaction: new Transaction({ nextId: () => '1', nowMs: () => 0 }),
    nextControl: control,
    deleting: false,
  };
}

describe('WorkloadPass', () => {
  it('fits into one transaction when 500 replicas failed at once', () => {
    const pass = aPass(500, { phase: Phase.FAILED });
    retireEndedReplicas(pass, new SlotBackoffs(pass.nextControl, 0), () => 0);
    expect(pass.transaction.size).toBeGreaterThan(50);
    // One write is left for the control record.
    expect(pass.transaction.size).toBeLessThan(MAX_WRITES - 1);
  });

  it('fits into one transaction when 500 replicas are wanted', () => {
    const pass = aPass(0, {});
    const steps = Array.from(
      { length: 500 },
      () => ({ kind: 'createReplica', version: 1 }) as const,
    );
    const queue = new StepQueue(pass, steps, new SlotBackoffs(pass.nextControl, 0), NOW);
    expect(queue.apply(pass).created.length).toBe(pass.transaction.size);
    expect(pass.transaction.size).toBeLessThanOrEqual(MAX_WRITES - 10);
  });

  const anObserved = (pass: WorkloadPass, facts: Partial<RolloutReplica>) => ({
    ...resolveLimits({ desired: 2 }),
    version: 1,
    replicas: pass.replicas.map(({ value }): RolloutReplica => ({
      id: toReplicaId(value.id),
      version: 1,
      desired: 'running',
      available: false,
      lost: false,
      draining: false,
      createdSequence: Number(value.sequence),
      ...facts,
    })),
  });
  const stop: readonly RolloutStep[] = [{ kind: 'stopReplica', replicaId: toReplicaId('w-0') }];

  it.each<{
    readonly name: string;
    readonly facts: Partial<RolloutReplica>;
    readonly steps: readonly RolloutStep[];
    readonly isRequired: boolean;
  }>([
    {
      name: 'requires the readiness guard for the stop of an available replica',
      facts: { available: true },
      steps: stop,
      isRequired: true,
    },
    {
      name: 'requires the readiness guard for the stop of a replica that may serve',
      facts: { available: false, notYetAvailable: true },
      steps: stop,
      isRequired: true,
    },
    {
      name: 'does not require the readiness guard for the stop of an unready replica',
      facts: { available: false },
      steps: stop,
      isRequired: false,
    },
    {
      name: 'requires the readiness guard for a version switch',
      facts: { available: true },
      steps: [{ kind: 'switchVersion', version: 2 }],
      isRequired: true,
    },
    {
      name: 'does not require the readiness guard for a creation',
      facts: { available: true },
      steps: [{ kind: 'createReplica', version: 1 }],
      isRequired: false,
    },
  ])('$name', ({ facts, steps, isRequired }) => {
    const pass = aPass(3, { phase: Phase.RUNNING, ready: facts.available ?? false });
    requireReadinessGuard(pass, anObserved(pass, facts), steps);
    expect(pass.transaction.toCompares()).toEqual(
      isRequired ? [{ key: '/evidence/w', is: 'absent' }] : [],
    );
  });
});
