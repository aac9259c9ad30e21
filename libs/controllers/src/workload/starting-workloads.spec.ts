import { create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { toReplicaId } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { copyReplica } from '@cloudless/cluster-state';
import {
  decideNextSteps,
  resolveLimits,
  type RolloutObserved,
  type RolloutReplica,
} from '@cloudless/rollout';
import { StartingWorkloads } from './starting-workloads.js';

const WANTED = 100;

const aReplica = (index: number): ReplicaRecord =>
  create(ReplicaRecordSchema, {
    ...{ id: `w-${index}`, uid: 'w', sequence: BigInt(index), version: 1 },
    ...{ nodeId: 'node-1', desiredRunning: true, phase: Phase.STARTING },
  });
const ready = { phase: Phase.RUNNING, ready: true, containerId: 'c' };

/** A workload of which `missing` replicas are not ready. */
function start({
  missing = 3,
  want = WANTED,
  ...facts
}: Partial<RolloutReplica> & { missing?: number; want?: number } = {}) {
  const clock = new ManualClock();
  const starting = new StartingWorkloads(clock);
  const replicas = Array.from({ length: want }, (_, index) =>
    index < missing ? aReplica(index) : copyReplica(aReplica(index), ready),
  );
  const observed: RolloutObserved = {
    ...resolveLimits({ desired: want }),
    version: 1,
    replicas: replicas.map(({ id, ready: available, sequence }, index): RolloutReplica => ({
      ...{ id: toReplicaId(id), version: 1, available, desired: 'running' },
      ...{ lost: false, draining: false, createdSequence: Number(sequence) },
      ...(index === 0 ? facts : {}),
    })),
  };
  const decision = decideNextSteps(observed);
  starting.recordPass('w', { observed, decision }, replicas, 600_000);
  const change = (index: number, changes: Parameters<typeof copyReplica>[1]): boolean => {
    const before = replicas[index] ?? aReplica(index);
    const after = (replicas[index] = copyReplica(before, changes));
    return starting.applyChange('w', before, after);
  };
  return { clock, starting, replicas, change };
}

describe('StartingWorkloads', () => {
  it('puts the next pass off until the last missing replica is ready', () => {
    const { starting, change } = start();
    expect(starting.getWaitMs('w')).toBe(1_000);
    expect(change(0, { phase: Phase.RUNNING })).toBe(false);
    expect([change(0, ready), change(1, ready)]).toEqual([false, false]);
    expect(change(2, ready)).toBe(true);
    expect(starting.getWaitMs('w')).toBe(0);
  });

  it('lets a pass record progress after a second, and none without progress', async () => {
    const { clock, starting, change } = start();
    await clock.advance(1_000);
    expect(starting.getWaitMs('w')).toBe(1_000);
    change(0, ready);
    expect(starting.getWaitMs('w')).toBe(0);
  });

  it('lets the pass run that time requires', async () => {
    const { clock, starting } = start();
    await clock.advance(600_000);
    expect(starting.getWaitMs('w')).toBe(0);
  });

  it.each([
    { name: 'a restart', changes: { restarts: 1 } },
    { name: 'a failed start', changes: { restarts: 1, failedStarts: 1 } },
    { name: 'a failure', changes: { phase: Phase.FAILED } },
    { name: 'a stop order', changes: { desiredRunning: false } },
    { name: 'the loss of the node', changes: { lost: true } },
    { name: 'a confirmed stop time', changes: { stopAfterUnconfirmed: true } },
    { name: 'a lost placement', changes: { nodeId: '' } },
  ])('requires a pass after $name', ({ changes }) => {
    const { starting, change } = start();
    expect(change(0, changes)).toBe(true);
    expect(starting.getWaitMs('w')).toBe(0);
  });

  it('requires a pass after a change of a ready replica, a creation and a deletion', () => {
    expect(start().change(50, { ready: false })).toBe(true);
    const created = start();
    expect(created.starting.applyChange('w', undefined, aReplica(100))).toBe(true);
    const deleted = start();
    expect(deleted.starting.applyChange('w', aReplica(0), undefined)).toBe(true);
  });

  it.each<{ readonly name: string; readonly facts: Parameters<typeof start>[0] }>([
    { name: 'a small workload', facts: { want: 10 } },
    { name: 'a workload whose replicas are ready', facts: { missing: 0 } },
    { name: 'a replica of another version', facts: { version: 2 } },
    { name: 'a replica on a draining node', facts: { draining: true } },
    { name: 'a replica that stops', facts: { desired: 'stopped' } },
    { name: 'a lost replica', facts: { lost: true } },
  ])('puts nothing off with $name', ({ facts }) => {
    const { starting, change } = start(facts);
    expect(starting.getWaitMs('w')).toBe(0);
    expect(change(1, { phase: Phase.RUNNING })).toBe(true);
  });

  it('does not put off the passes of other workloads', () => {
    const { starting } = start();
    expect(starting.applyChange('other', undefined, aReplica(0))).toBe(true);
    expect(starting.getWaitMs('other')).toBe(0);
  });
});
