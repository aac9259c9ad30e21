import { create } from '@bufbuild/protobuf';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { CloudlessError, createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { LeadershipLostError, openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ReplicaReportQueue } from './replica-report-queue.js';

/** Replicas on one node: more than the events of one transaction. */
const REPLICAS = 150;

interface World {
  readonly clock: ManualClock;
  readonly state: ClusterState;
  readonly reports: ReplicaReportQueue;
  readonly errors: string[];
}

async function createWorld(replicas: number): Promise<World> {
  const clock = new ManualClock();
  const random = createSeededRandom(1);
  const store = createMemoryStateStore({ clock });
  const state = await openClusterState({ store, clock, random, log: silentLog, holder: 'test' });
  for (let from = 0; from < replicas; from += 50) {
    const transaction = state.transaction();
    for (let number = from; number < Math.min(replicas, from + 50); number += 1) {
      // Each replica has its own workload, so that each report also writes a readiness guard.
      const uid = `w${number}`;
      const replica = { id: `w-${number}`, uid, sequence: 1n, nodeId: 'node-1' };
      transaction.put(
        'workload',
        uid,
        create(WorkloadRecordSchema, { uid, name: `web-${number}` }),
      );
      transaction.createReplica(
        create(ReplicaRecordSchema, { ...replica, desiredRunning: true, phase: Phase.RUNNING }),
      );
    }
    await state.commit(transaction);
  }
  const errors: string[] = [];
  const log: Log = {
    ...silentLog,
    error: (message) => errors.push(message),
    warn: (message) => errors.push(message),
  };
  const reports = new ReplicaReportQueue({
    state,
    clock,
    random,
    log,
  } as unknown as ConstructorParameters<typeof ReplicaReportQueue>[0]);
  return { clock, state, reports, errors };
}

/** Enqueues a report with this readiness for the replicas from `from` to before `end`. */
function enqueueReadiness({ reports }: World, ready: boolean, from: number, end: number): void {
  for (let number = from; number < end; number += 1) {
    reports.enqueue(
      'node-1',
      create(ReplicaReportSchema, { replicaId: `w-${number}`, phase: Phase.RUNNING, ready }),
    );
  }
}

async function reportReadiness(world: World, replicas: number, ready: boolean): Promise<void> {
  enqueueReadiness(world, ready, 0, replicas);
  await world.reports.flushed('node-1');
}

/** Changes the readiness of each replica nine times. The last three events are suppressed. */
async function changeReadinessRepeatedly(world: World, replicas: number): Promise<void> {
  for (let turn = 0; turn < 9; turn += 1) await reportReadiness(world, replicas, turn % 2 === 0);
}

/** Number of events that stand for several suppressed events. */
const countMergedEvents = ({ state }: World): number =>
  state
    .view()
    .events()
    .filter(({ count }) => count > 1).length;

describe('suppressed readiness events of replicas', () => {
  it('are committed after 60 s as one event per replica, also for more replicas of a node than one transaction can hold', async () => {
    const world = await createWorld(REPLICAS);
    await changeReadinessRepeatedly(world, REPLICAS);
    expect(countMergedEvents(world)).toBe(0);
    await world.clock.advance(60_000);
    await settle();
    expect(world.errors).toEqual([]);
    expect(countMergedEvents(world)).toBe(REPLICAS);
    await world.reports.close();
    await world.state.close();
  });

  it('stay within the transaction limit when replicas of many workloads lose readiness at the moment of their commit', async () => {
    const world = await createWorld(2 * REPLICAS);
    const { state, clock } = world;
    await changeReadinessRepeatedly(world, REPLICAS);
    enqueueReadiness(world, true, REPLICAS, 2 * REPLICAS);
    await world.reports.flushed('node-1');
    const sizes: number[] = [];
    const write = state.commitObserved.bind(state);
    state.commitObserved = (transaction) => {
      sizes.push(transaction.size);
      return write(transaction);
    };
    // At the moment when the suppressed events are due.
    clock.setTimer(60_000, () => enqueueReadiness(world, false, REPLICAS, 2 * REPLICAS));
    await clock.advance(60_000);
    await settle();
    expect(Math.max(...sizes)).toBe(99); // The store allows 100 writes.
    expect([world.errors, countMergedEvents(world)]).toEqual([[], REPLICAS]);
    expect([...state.view().replicasOn('node-1')].filter(({ value }) => value.ready)).toHaveLength(
      REPLICAS,
    );
    await world.reports.close();
    await state.close();
  });

  it('are committed again when their first commit meets a conflict', async () => {
    const world = await createWorld(2);
    await changeReadinessRepeatedly(world, 2);
    const { state } = world;
    const write = state.commitObserved.bind(state);
    let conflicts = 0;
    state.commitObserved = async (transaction) => {
      if (conflicts++ === 0) throw new CloudlessError('conflict', 'another writer was faster');
      return write(transaction);
    };
    await world.clock.advance(60_000);
    await settle();
    expect(conflicts).toBeGreaterThan(1);
    expect(countMergedEvents(world)).toBe(2);
    await world.reports.close();
    await state.close();
  });
});

describe('ReplicaReportQueue.flushed', () => {
  it('rejects, also later calls, when the leadership is lost before the reports are written', async () => {
    const world = await createWorld(1);
    const lost = new LeadershipLostError(1n);
    world.state.commitObserved = () => Promise.reject(lost);
    enqueueReadiness(world, true, 0, 1);
    await expect(world.reports.flushed('node-1')).rejects.toBe(lost);
    await expect(world.reports.flushed('node-1')).rejects.toBe(lost);
    await world.reports.close();
    await world.state.close();
  });

  it('rejects when the queue is closed before the reports are written', async () => {
    const world = await createWorld(1);
    world.state.commitObserved = () =>
      Promise.reject(new CloudlessError('unavailable', 'the disk is full'));
    enqueueReadiness(world, true, 0, 1);
    const flushed = expect(world.reports.flushed('node-1')).rejects.toThrow(
      'this coordinator is stopping',
    );
    await settle();
    await world.reports.close();
    await flushed;
    await world.state.close();
  });
});
