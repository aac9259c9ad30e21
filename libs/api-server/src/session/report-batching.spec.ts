import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  ImagePullStatus_Phase as PullPhase,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  createSeededRandom,
  noMeter,
  silentLog,
  type Meter,
} from '@cloudless/base';
import { ManualClock, RecordingMeter, settle } from '@cloudless/base/testing';
import {
  copyReplica,
  openClusterState,
  toReplicaKeyId,
  type ClusterState,
  type Transaction,
} from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ReplicaReportQueue } from './replica-report-queue.js';

interface World {
  readonly clock: ManualClock;
  readonly state: ClusterState;
  readonly reports: ReplicaReportQueue;
  /** The reports that commits have written, by replica id, oldest first. */
  readonly written: Map<string, number[]>;
  /** Number of commits that succeeded, without those of {@link openWorld}. */
  commits: number;
  close(): Promise<void>;
}

const nodeOf = (replica: number, nodes: number): string => `node-${replica % nodes}`;
const keyOf = (id: string): string => `/replica/${toReplicaKeyId('w', BigInt(id.slice(2)))}`;
const writes = (transaction: Transaction, id: string): boolean =>
  transaction.toCompares().some(({ key }) => key === keyOf(id));

/** Opens a queue over running replicas `w-1`, `w-2` and so on, spread over nodes. */
async function openWorld(replicas: number, nodes: number, meter: Meter = noMeter): Promise<World> {
  const clock = new ManualClock();
  const random = createSeededRandom(1);
  const store = createMemoryStateStore({ clock });
  const state = await openClusterState({ store, clock, random, log: silentLog, holder: 'test' });
  for (let from = 1; from <= replicas; from += 90) {
    const transaction = state.transaction();
    for (let number = from; number < from + 90 && number <= replicas; number += 1) {
      const replica = { id: `w-${number}`, uid: 'w', sequence: BigInt(number) };
      transaction.createReplica(
        create(ReplicaRecordSchema, {
          ...replica,
          nodeId: nodeOf(number, nodes),
          desiredRunning: true,
          phase: Phase.ASSIGNED,
        }),
      );
    }
    await state.commit(transaction);
  }
  const reports = new ReplicaReportQueue({
    state,
    clock,
    random,
    meter,
    log: silentLog,
  } as unknown as ConstructorParameters<typeof ReplicaReportQueue>[0]);
  const written = new Map<string, number[]>();
  const world: World = {
    clock,
    state,
    reports,
    written,
    commits: 0,
    close: async () => {
      await reports.close();
      await state.close();
    },
  };
  state.subscribe((changes) => {
    world.commits += 1;
    for (const { kind, after } of changes) {
      if (kind !== 'replica' || after === undefined) continue;
      const { id, reason } = after as ReplicaRecord;
      if (reason !== '') written.set(id, [...(written.get(id) ?? []), Number(reason)]);
    }
  });
  return world;
}

const aReport = (replica: number, number: number) =>
  create(ReplicaReportSchema, {
    replicaId: `w-${replica}`,
    phase: Phase.RUNNING,
    ready: true,
    reason: String(number),
  });

/** Enqueues a report that is recognised by its number. */
function report({ reports }: World, replica: number, nodes: number, number: number): void {
  reports.enqueue(nodeOf(replica, nodes), aReport(replica, number));
}

const range = (count: number): readonly number[] =>
  Array.from({ length: count }, (_, index) => index + 1);

describe('batches of reports', () => {
  it('share commits between nodes: 1,000 first reports of 100 nodes take at most 25', async () => {
    const world = await openWorld(1_000, 100);
    for (const replica of range(1_000)) report(world, replica, 100, 1);
    await Promise.all(range(100).map((node) => world.reports.flushed(nodeOf(node, 100))));
    expect(world.written.size).toBe(1_000);
    expect(world.commits).toBeLessThanOrEqual(25);
    await world.close();
  });

  it('take what arrived while the previous commit was in progress, with no delay for the first', async () => {
    const world = await openWorld(30, 30);
    const sizes: number[] = [];
    const write = world.state.commitObserved.bind(world.state);
    world.state.commitObserved = (transaction) => {
      sizes.push(transaction.toCompares().length - 1);
      return write(transaction);
    };
    for (const replica of range(30)) report(world, replica, 30, 1);
    await settle();
    expect(sizes).toEqual([1, 29]);
    await world.close();
  });

  it('are in progress together, at least 1,300 reports, while the store confirms no commit', async () => {
    const world = await openWorld(3_000, 30);
    const write = world.state.commitObserved.bind(world.state);
    let confirm = (): void => undefined;
    const confirmed = new Promise<void>((resolve) => (confirm = resolve));
    let inProgress = 0;
    world.state.commitObserved = async (transaction) => {
      inProgress += transaction.toCompares().length - 1;
      await confirmed;
      return write(transaction);
    };
    for (const replica of range(3_000)) report(world, replica, 30, 1);
    await world.clock.advance(100);
    expect(inProgress).toBeGreaterThanOrEqual(1_300);
    confirm();
    await world.close();
  });

  it('write every other report although the store refuses one replica each time', async () => {
    const world = await openWorld(40, 4);
    const write = world.state.commitObserved.bind(world.state);
    world.state.commitObserved = (transaction) =>
      writes(transaction, 'w-7')
        ? Promise.reject(new CloudlessError('invalid', 'the record is too large'))
        : write(transaction);
    for (const replica of range(40)) report(world, replica, 4, 1);
    await settle();
    await world.clock.advance(100);
    expect(world.written.size).toBe(39);
    expect(world.written.has('w-7')).toBe(false);
    world.state.commitObserved = write;
    report(world, 7, 4, 2);
    await settle();
    expect(world.written.get('w-7')).toEqual([2]);
    await world.close();
  });

  it('write every other report although one cannot be encoded', async () => {
    const world = await openWorld(40, 4);
    const broken = create(ReplicaReportSchema, { replicaId: 'w-7', phase: Phase.RUNNING });
    Object.defineProperty(broken, 'endpoints', {
      get: () => {
        throw new Error('a broken report');
      },
    });
    for (const replica of range(6)) report(world, replica, 4, 1);
    world.reports.enqueue(nodeOf(7, 4), broken);
    for (const replica of range(40).slice(7)) report(world, replica, 4, 1);
    await settle();
    await world.clock.advance(100);
    expect(world.written.size).toBe(39);
    report(world, 7, 4, 2);
    await world.clock.advance(2_000);
    expect(world.written.get('w-7')).toEqual([2]);
    await world.close();
  });

  it('write the others together when another writer keeps changing one replica', async () => {
    const world = await openWorld(40, 4);
    const write = world.state.commitObserved.bind(world.state);
    let conflicts = 0;
    world.state.commitObserved = async (transaction) => {
      if (writes(transaction, 'w-7') && (conflicts += 1) <= 5) {
        const stored = world.state.view().replica('w-7');
        if (stored === undefined) throw new Error('w-7 is not stored');
        const changed = copyReplica(stored.value, { restarts: conflicts });
        await write(world.state.transaction().updateReplica(stored, changed));
      }
      return write(transaction);
    };
    for (const replica of range(40)) report(world, replica, 4, 1);
    await settle();
    expect(world.written.size).toBe(40);
    // Five of the other writer, the first report, the other 38 reports, and the one of w-7.
    expect(world.commits).toBe(5 + 3);
    await world.close();
  });

  it('flush a node exactly when its reports so far are written, whatever other nodes do', async () => {
    const world = await openWorld(2, 2);
    const gates: (() => void)[] = [];
    const write = world.state.commitObserved.bind(world.state);
    world.state.commitObserved = async (transaction) => {
      await new Promise<void>((resolve) => gates.push(resolve));
      return write(transaction);
    };
    const flushed: string[] = [];
    const watch = (node: string, name: string): void =>
      void world.reports.flushed(node).then(() => flushed.push(name));
    watch('node-1', 'without a report');
    report(world, 1, 2, 1);
    watch('node-1', 'first');
    report(world, 1, 2, 2);
    watch('node-1', 'second');
    watch('node-0', 'other node');
    await settle();
    expect(flushed).toEqual(['without a report', 'other node']);
    gates.shift()?.();
    await settle();
    expect(flushed).toEqual(['without a report', 'other node', 'first']);
    report(world, 1, 2, 3);
    gates.shift()?.();
    await settle();
    expect(flushed).toEqual(['without a report', 'other node', 'first', 'second']);
    gates.shift()?.();
    await settle();
    expect(world.written.get('w-1')).toEqual([1, 2, 3]);
    await world.close();
  });
});

describe('events of replicas that become ready in one commit', () => {
  const enqueue = (world: World, replica: number, fields: object): void =>
    world.reports.enqueue(
      nodeOf(replica, 1),
      create(ReplicaReportSchema, {
        replicaId: `w-${replica}`,
        phase: Phase.RUNNING,
        ready: true,
        ...fields,
      }),
    );
  const listEvents = ({ state }: World) =>
    state
      .view()
      .events()
      .map(({ reason, replicaId, replicaIds, count }) => ({
        reason,
        replica: replicaId,
        others: replicaIds.length,
        count,
      }));

  it('are merged, but for that of a replica whose image was pulled, which the pull has caused', async () => {
    const world = await openWorld(30, 1);
    const imagePull = { image: 'web', phase: PullPhase.PULLED };
    for (const replica of range(30)) enqueue(world, replica, replica === 7 ? { imagePull } : {});
    await settle();
    expect(listEvents(world)).toEqual([
      { reason: 'ReplicaReady', replica: 'w-1', others: 0, count: 0 },
      { reason: 'ImagePulled', replica: 'w-7', others: 0, count: 0 },
      { reason: 'ReplicaReady', replica: 'w-7', others: 0, count: 0 },
      { reason: 'ReplicaReady', replica: '', others: 28, count: 0 },
    ]);
    const [, pulled, ready] = world.state.view().events();
    expect(ready?.causeId).toBe(pulled?.id);
    await world.close();
  });

  it('are merged, but for that of a replica which stands for suppressed events', async () => {
    const world = await openWorld(30, 1);
    // Before the timer of the suppressed events, which are due at the same time.
    world.clock.setTimer(60_000, () => {
      for (const replica of range(30)) enqueue(world, replica, {});
    });
    for (const ready of [true, false, true, false, true, false, true, false]) {
      enqueue(world, 7, { ready });
      await settle();
    }
    const before = listEvents(world).length;
    expect(before).toBe(6);
    await world.clock.advance(60_000);
    expect(listEvents(world).slice(before)).toEqual([
      { reason: 'ReplicaReady', replica: 'w-1', others: 0, count: 0 },
      { reason: 'ReplicaReady', replica: 'w-7', others: 0, count: 3 },
      { reason: 'ReplicaReady', replica: '', others: 28, count: 0 },
    ]);
    await world.close();
  });
});

describe('a report of an inventory', () => {
  it('takes no pass when the record says the same', async () => {
    const meter = new RecordingMeter();
    const world = await openWorld(1, 1, meter);
    report(world, 1, 1, 1);
    await settle();
    const passes = { loop: 'reports', result: 'done' };
    const before = await meter.read('cloudless_loop_passes_total', passes);
    world.reports.enqueueFromInventory('node-0', aReport(1, 1));
    await settle();
    expect(await meter.read('cloudless_loop_passes_total', passes)).toBe(before);
    world.reports.enqueueFromInventory('node-0', aReport(1, 2));
    await settle();
    expect(world.written.get('w-1')).toEqual([1, 2]);
    expect(await meter.read('cloudless_replica_reports_total')).toBe(3);
    await world.close();
  });

  it('is not written after the queue was closed, also when the record says the same', async () => {
    const world = await openWorld(1, 1);
    await world.reports.close();
    world.reports.enqueueFromInventory('node-0', aReport(1, 1));
    await expect(world.reports.flushed('node-0')).rejects.toThrow('this coordinator is stopping');
    await world.close();
  });

  it.each([
    { name: 'waits', reports: [2, 3] },
    { name: 'is being written', reports: [2] },
  ])('is written although the record says the same, while an older report $name', async (row) => {
    const world = await openWorld(1, 1);
    report(world, 1, 1, 1);
    await settle();
    const gates: (() => void)[] = [];
    const write = world.state.commitObserved.bind(world.state);
    world.state.commitObserved = async (transaction) => {
      await new Promise<void>((resolve) => gates.push(resolve));
      return write(transaction);
    };
    for (const number of row.reports) report(world, 1, 1, number);
    await settle();
    world.reports.enqueueFromInventory('node-0', aReport(1, 1));
    for (const _ of [1, 2]) {
      gates.shift()?.();
      await settle();
    }
    expect(world.written.get('w-1')).toEqual([1, 2, 1]);
    await world.close();
  });
});

type Step =
  | { readonly kind: 'report'; readonly replica: number }
  | { readonly kind: 'flush'; readonly node: number }
  | { readonly kind: 'settle' };
type Failure = 'none' | 'conflict' | 'unattributed' | 'unavailable' | 'invalid';

const REPLICAS = 12;
const NODES = 3;
const arbStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ kind: fc.constant('report'), replica: fc.integer({ min: 1, max: 12 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('flush'), node: fc.integer({ min: 0, max: 2 }) }),
  },
  { weight: 2, arbitrary: fc.constant({ kind: 'settle' }) },
);
const arbFailures = fc.array(
  fc.constantFrom<Failure>('none', 'conflict', 'unattributed', 'unavailable', 'invalid'),
  { maxLength: 15 },
);

/** Lets the commits fail, one after the other, in the given ways. */
function injectFailures(world: World, failures: readonly Failure[]): void {
  const waiting = [...failures];
  const write = world.state.commitObserved.bind(world.state);
  world.state.commitObserved = async (transaction) => {
    const failure = waiting.shift() ?? 'none';
    if (failure === 'unavailable') throw new CloudlessError('unavailable', 'no store');
    if (failure === 'invalid') throw new CloudlessError('invalid', 'too large');
    if (failure === 'unattributed') throw new CloudlessError('conflict', 'another was faster');
    if (failure === 'conflict') {
      const victim = [...world.state.view().replicas()].find(({ value }) =>
        writes(transaction, value.id),
      );
      const { restarts = 0 } = victim?.value ?? {};
      if (victim !== undefined)
        await write(
          world.state
            .transaction()
            .updateReplica(victim, copyReplica(victim.value, { restarts: restarts + 1 })),
        );
    }
    return write(transaction);
  };
}

it('no report is lost, replicas keep the order of their reports, and a flush waits for its own', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(arbStep, { minLength: 1, maxLength: 60 }),
      arbFailures,
      async (steps, failures) => {
        const world = await openWorld(REPLICAS, NODES);
        injectFailures(world, failures);
        const newest = new Map<string, number>();
        const flushes: Promise<void>[] = [];
        let number = 0;
        for (const step of steps) {
          if (step.kind === 'settle') await settle();
          else if (step.kind === 'report') {
            report(world, step.replica, NODES, (number += 1));
            newest.set(`w-${step.replica}`, number);
          } else {
            const expected = [...newest].filter(
              ([id]) => nodeOf(Number(id.slice(2)), NODES) === `node-${step.node}`,
            );
            flushes.push(
              world.reports.flushed(`node-${step.node}`).then(() => {
                for (const [id, reported] of expected)
                  expect(
                    Number(world.state.view().replica(id)?.value.reason),
                  ).toBeGreaterThanOrEqual(reported);
              }),
            );
          }
        }
        await world.clock.advance(60_000);
        await Promise.all(flushes);
        for (const [id, reported] of newest) {
          expect(world.state.view().replica(id)?.value.reason).toBe(String(reported));
          const order = world.written.get(id) ?? [];
          expect(order).toEqual([...order].sort((a, b) => a - b));
        }
        await world.close();
      },
    ),
    { numRuns: 60 },
  );
});
