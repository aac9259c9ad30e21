import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Severity as Severity,
  ImagePullStatusSchema,
  ImagePullStatus_Phase as Pull,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ReplicaReportQueue } from './replica-report-queue.js';

type Report = MessageInitShape<typeof ReplicaReportSchema>;
const IMAGE = 'nginx:alpine';

class World {
  readonly errors: string[] = [];
  private constructor(
    readonly clock: ManualClock,
    readonly state: ClusterState,
    private reports: ReplicaReportQueue,
  ) {}

  static async open(replicas = 1): Promise<World> {
    const clock = new ManualClock();
    const random = createSeededRandom(1);
    const state = await openClusterState({
      store: createMemoryStateStore({ clock }),
      clock,
      random,
      log: silentLog,
      holder: 'test',
    });
    const transaction = state.transaction();
    for (let number = 0; number < replicas; number += 1) {
      const [uid, id] = [`w${number}`, `w-${number}`];
      transaction.put(
        'workload',
        uid,
        create(WorkloadRecordSchema, { uid, namespace: 'default', name: `web-${number}` }),
      );
      const replica = {
        id,
        uid,
        sequence: 1n,
        nodeId: 'node-1',
        desiredRunning: true,
        phase: Phase.ASSIGNED,
      };
      transaction.createReplica(create(ReplicaRecordSchema, replica));
    }
    await state.commit(transaction);
    const world = new World(clock, state, undefined as unknown as ReplicaReportQueue);
    world.restart();
    return world;
  }

  /** Simulates a restart of the coordinator, which keeps only the state in the store. */
  restart(): void {
    const log: Log = {
      ...silentLog,
      error: (message) => this.errors.push(message),
      warn: (message) => this.errors.push(message),
    };
    const deps = { state: this.state, clock: this.clock, random: createSeededRandom(1), log };
    this.reports = new ReplicaReportQueue(
      deps as unknown as ConstructorParameters<typeof ReplicaReportQueue>[0],
    );
  }

  async report(report: Report): Promise<void> {
    this.enqueue(report);
    await this.reports.flushed('node-1');
  }

  enqueue(report: Report): void {
    this.reports.enqueue(
      'node-1',
      create(ReplicaReportSchema, { replicaId: 'w-0', phase: Phase.STARTING, ...report }),
    );
  }

  flushed(): Promise<void> {
    return this.reports.flushed('node-1');
  }

  /** Reasons of the events, oldest first. */
  listReasons(): readonly string[] {
    return this.listEvents().map(({ reason }) => reason);
  }

  listEvents() {
    return [...this.state.view().events()].sort(
      (a, b) => Number(a.id.split('-')[1]) - Number(b.id.split('-')[1]),
    );
  }

  record() {
    const record = this.state.view().replica('w-0');
    if (record === undefined) throw new Error('no replica');
    return record.value;
  }

  async close(): Promise<void> {
    expect(this.errors).toEqual([]);
    await this.reports.close();
    await this.state.close();
  }
}

const aPull = (
  phase: Pull,
  startedAtMs: number,
  more: MessageInitShape<typeof ImagePullStatusSchema> = {},
): Report => ({
  imagePull: create(ImagePullStatusSchema, {
    image: IMAGE,
    phase,
    startedAt: timestampFromMs(startedAtMs),
    ...more,
  }),
});
const aRunningPull = (startedAtMs = 1): Report => aPull(Pull.PULLING, startedAtMs);
const aCompletedPull = (startedAtMs = 1): Report =>
  aPull(Pull.PULLED, startedAtMs, { took: durationFromMs(2_345), sizeBytes: 24_117_248n });
const aFailedPull = (startedAtMs = 1, reason = 'not found'): Report =>
  aPull(Pull.FAILED, startedAtMs, { took: durationFromMs(10), reason });

describe('ReplicaReportQueue', () => {
  let world: World;
  beforeEach(async () => {
    world = await World.open();
  });
  afterEach(() => world.close());

  it('emits an event at the start and at the end of an image pull', async () => {
    await world.report(aRunningPull());
    await world.report(aCompletedPull());
    const subject = { namespace: 'default', workload: 'web-0', replicaId: 'w-0', nodeId: 'node-1' };
    const [first, second] = world.listEvents();
    expect(first).toMatchObject({
      ...subject,
      reason: 'ImagePulling',
      severity: Severity.INFO,
      message: `image ${IMAGE} is being pulled`,
    });
    expect(second).toMatchObject({
      ...subject,
      reason: 'ImagePulled',
      severity: Severity.INFO,
      message: `image ${IMAGE} was pulled in 2.3 s (23.0 MiB)`,
      causeId: first?.id,
    });
    expect(world.record().imagePull).toMatchObject({ image: IMAGE, phase: Pull.PULLED });
  });

  it('emits no second event when the same pull is reported again, also after a restart of the coordinator', async () => {
    await world.report(aRunningPull());
    await world.report(aRunningPull());
    world.restart();
    await world.report(aRunningPull());
    await world.report(aCompletedPull());
    world.restart();
    await world.report(aCompletedPull());
    expect(world.listReasons()).toEqual(['ImagePulling', 'ImagePulled']);
    await world.report(aCompletedPull(2));
    expect(world.listReasons()).toHaveLength(3);
  });

  it('emits the event of a pull before the other event of the same report, as its cause', async () => {
    await world.report({ ...aCompletedPull(), phase: Phase.RUNNING, ready: true });
    const [first, second] = world.listEvents();
    expect([first?.reason, second?.reason]).toEqual(['ImagePulled', 'ReplicaReady']);
    expect(second?.causeId).toBe(first?.id);
  });

  it('emits the error of the registry instead of an event about a failed start', async () => {
    await world.report(aRunningPull());
    await world.report({
      ...aFailedPull(),
      restarts: 1,
      reason: 'not found, restarting in 100 ms',
    });
    expect(world.listReasons()).toEqual(['ImagePulling', 'ImagePullFailed']);
    expect(world.listEvents()[1]).toMatchObject({
      severity: Severity.WARNING,
      message: `image ${IMAGE} could not be pulled: not found`,
    });
    await world.report(aFailedPull(2, `image ${IMAGE} cannot be pulled: not found`));
    expect(world.listEvents().at(-1)?.message).toBe(`image ${IMAGE} cannot be pulled: not found`);
    await world.report({
      ...aFailedPull(2),
      restarts: 2,
      lastExitCode: 3,
      lastEndReason: 'exit code 3',
    });
    expect(world.listReasons().at(-1)).toBe('ReplicaRestarted'); // The container ended for another reason.
  });

  it('merges the events of pulls that fail repeatedly into one with their number', async () => {
    for (let turn = 1; turn <= 40; turn += 1) {
      await world.report({ ...aRunningPull(turn), restarts: turn - 1 });
      await world.report({ ...aFailedPull(turn, `not found, ${turn}`), restarts: turn });
    }
    expect(world.listReasons()).toEqual([
      'ImagePulling',
      ...Array.from({ length: 5 }, () => 'ImagePullFailed'),
    ]);
    await world.clock.advance(60_000);
    await settle();
    expect(world.listEvents().at(-1)).toMatchObject({
      reason: 'ImagePullFailed',
      count: 35,
      message: expect.stringContaining('not found, 40'),
    });
  });

  it('removes a running pull from the record when the agent no longer reports the pull, and keeps an ended one', async () => {
    await world.report(aRunningPull());
    await world.report({});
    expect(world.record().imagePull).toBeUndefined();
    await world.report(aCompletedPull());
    await world.report({ phase: Phase.RUNNING, ready: true });
    expect(world.record().imagePull).toMatchObject({ phase: Pull.PULLED });
  });

  it('truncates the reason of a failed pull to 1000 characters', async () => {
    await world.report(aFailedPull(1, 'x'.repeat(5_000)));
    expect(world.record().imagePull?.reason).toBe(`${'x'.repeat(1_000)}…`);
  });
});

it('ReplicaReportQueue stays within the transaction limit when 45 replicas report pulls at once', async () => {
  const world = await World.open(45);
  for (const [phase, ready] of [
    [Phase.RUNNING, true],
    [Phase.RUNNING, false], // Each report also writes the readiness guard of its workload.
  ] as const) {
    for (let number = 0; number < 45; number += 1)
      world.enqueue({
        ...aCompletedPull(Number(ready) + 1),
        replicaId: `w-${number}`,
        phase,
        ready,
      });
    await world.flushed();
  }
  expect(world.listReasons()).toHaveLength(4 * 45);
  await world.close();
});
