import fc from 'fast-check';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { ImagePull_Policy, type Order, type ReplicaReport } from '@cloudless/api';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { fromContainerLabels, isForward, type ReplicaPhase } from './index.js';
import {
  aForgetOrder,
  aStartOrder,
  aStopOrder,
  AgentTestBed,
  toPhaseName,
} from './testing/index.js';

type Step =
  | {
      readonly kind: 'start' | 'stop';
      readonly replica: number;
      readonly revision: number;
      readonly epoch: number;
    }
  | { readonly kind: 'exit'; readonly replica: number; readonly code: number }
  | { readonly kind: 'wait'; readonly ms: number }
  | {
      readonly kind:
        | 'dropConnection'
        | 'restartAgent'
        | 'failStore'
        | 'fillStore'
        | 'repairStore'
        | 'failNextStart'
        | 'failProbes'
        | 'failReadiness'
        | 'passProbes';
    }
  | { readonly kind: 'failPulls' | 'slowPulls' | 'fastPulls' };

const replica = fc.integer({ min: 0, max: 2 });
const arbitraryOrder = (kind: 'start' | 'stop'): fc.Arbitrary<Step> =>
  fc.record({
    kind: fc.constant(kind),
    replica,
    revision: fc.integer({ min: 1, max: 12 }),
    epoch: fc.integer({ min: 1, max: 3 }),
  });
const arbitraryStep: fc.Arbitrary<Step> = fc.oneof(
  { arbitrary: arbitraryOrder('start'), weight: 6 },
  { arbitrary: arbitraryOrder('stop'), weight: 3 },
  {
    arbitrary: fc.record({
      kind: fc.constant('exit' as const),
      replica,
      code: fc.integer({ min: 0, max: 2 }),
    }),
    weight: 5,
  },
  {
    arbitrary: fc.record({
      kind: fc.constant('wait' as const),
      ms: fc.constantFrom(0, 5, 100, 3_000, 20_000),
    }),
    weight: 6,
  },
  {
    arbitrary: fc.record({
      kind: fc.constantFrom(
        'dropConnection',
        'restartAgent',
        'failStore',
        'fillStore',
        'repairStore',
        'failNextStart',
      ),
    }),
    weight: 3,
  },
  {
    arbitrary: fc.record({ kind: fc.constantFrom('failProbes', 'failReadiness', 'passProbes') }),
    weight: 3,
  },
  {
    arbitrary: fc.record({ kind: fc.constantFrom('failPulls', 'slowPulls', 'fastPulls') }),
    weight: 3,
  },
);

/** Probe with a failure threshold of 1, so that one failed check changes the result. */
const probe = (path: string) => ({
  check: { case: 'http', value: { path, port: 'http' } } as const,
  ...{ period: durationFromMs(2_000), failureThreshold: 1 },
});
const spec = {
  ports: [{ name: 'http', containerPort: 80 }],
  preStopDelay: durationFromMs(0),
  livenessProbe: probe('/livez'),
  readinessProbe: probe('/ready'),
};

/** Image of the last replica, pulled for each start; the other replicas are processes. */
const IMAGE = 'nginx';
const image = { image: IMAGE, imagePull: { policy: ImagePull_Policy.ALWAYS } };

/** An agent on virtual time, and the newest report of each of its replicas. */
class Run {
  readonly testBed = new AgentTestBed();
  private readonly lastReports = new Map<string, ReplicaReport>();
  /** Replicas with a stop order that the agent has not stored, nor acknowledged. */
  private readonly unstoredStops = new Set<string>();
  /** By replica id and revision. */
  private readonly orders = new Map<string, Order>();
  private checkedReports = 0;

  constructor() {
    const { testBed } = this;
    testBed.runtime = createFakeRuntime({
      clock: testBed.clock,
      capabilities: ['runtime.process', 'runtime.cri'],
    });
    testBed.machine.images.set(IMAGE, { pullMs: 50 });
  }

  /** Applies one random step. */
  async step(step: Step): Promise<void> {
    const { testBed } = this;
    switch (step.kind) {
      case 'start':
      case 'stop': {
        const replicaId = `web-${step.replica}`;
        // A coordinator never starts a replica that was ordered to stop. An agent whose disk has
        // failed relies on that for the stop orders that it has not acknowledged.
        if (step.kind === 'start' && this.unstoredStops.has(replicaId)) return;
        const options = { replicaId, revision: this.revisionOf(step), epoch: BigInt(step.epoch) };
        const order =
          step.kind === 'start'
            ? aStartOrder({ ...options, spec: step.replica === 2 ? { ...spec, ...image } : spec })
            : aStopOrder({ ...options, preStopMs: 50, graceMs: 100 });
        this.orders.set(`${replicaId} ${options.revision}`, order);
        testBed.coordinator.sendOrder(order);
        await settle();
        return;
      }
      case 'exit': {
        for (const status of await testBed.runtime.list()) {
          if (
            fromContainerLabels(status.labels)?.replicaId === `web-${step.replica}` &&
            status.phase === 'running'
          ) {
            testBed.machine.exit(status.containerId, step.code);
          }
        }
        return settle();
      }
      case 'wait':
        return testBed.clock.advance(step.ms);
      case 'dropConnection':
        testBed.coordinator.dropConnections();
        return testBed.clock.advance(100);
      case 'restartAgent':
        await testBed.restart();
        return;
      case 'failStore':
        testBed.store.failure = new Error('disk full');
        return;
      case 'fillStore':
        testBed.store.isFull = true;
        testBed.store.reservedSaves = 1;
        return;
      case 'repairStore':
        return this.repairStore();
      case 'failProbes':
        testBed.http = () => 500;
        return;
      case 'failReadiness':
        testBed.http = (path) => (path === '/ready' ? 503 : 200);
        return;
      case 'passProbes':
        testBed.http = () => 200;
        return;
      case 'failPulls':
        return testBed.machine.images.set(IMAGE, {
          pullMs: 20,
          failure: new CloudlessError('precondition', 'no registry'),
        });
      case 'slowPulls':
        return testBed.machine.images.set(IMAGE, { pullMs: 5_000 });
      case 'fastPulls':
        return testBed.machine.images.set(IMAGE, { pullMs: 50 });
      case 'failNextStart':
        testBed.machine.failNextStart(new CloudlessError('unavailable', 'away'));
        return;
    }
  }

  repairStore(): void {
    this.testBed.store.failure = undefined;
    this.testBed.store.isFull = false;
  }

  /** Repeats the orders that the agent has not acknowledged, as a coordinator does. */
  repeatUnstored(): void {
    for (const { current } of this.testBed.agent.replicas.listRunners()) {
      const order = this.orders.get(`${current.replicaId} ${current.heldRevision}`);
      if (current.unstored !== undefined && order !== undefined)
        this.testBed.coordinator.sendOrder({ ...order, epoch: 9n });
    }
  }

  /**
   * Odd revisions are start orders and even revisions stop orders, so that one revision always
   * means the same order.
   */
  private revisionOf({
    kind,
    revision,
  }: {
    readonly kind: 'start' | 'stop';
    readonly revision: number;
  }): bigint {
    return BigInt(revision * 2 + (kind === 'start' ? 1 : 0));
  }

  /**
   * Expects at most one running container for each replica, and reports whose phase, order revision
   * and restart count never decrease.
   */
  async check(): Promise<void> {
    const { testBed } = this;
    for (const { current } of testBed.agent.replicas.listRunners())
      if (current.unstored !== undefined) this.unstoredStops.add(current.replicaId);
    const running = new Map<string, number>();
    for (const status of await testBed.runtime.list()) {
      const id = fromContainerLabels(status.labels)?.replicaId ?? '';
      if (status.phase === 'running') running.set(id, (running.get(id) ?? 0) + 1);
    }
    for (const count of running.values()) expect(count).toBe(1);
    for (const report of testBed.coordinator.reportHistory.slice(this.checkedReports)) {
      const before = this.lastReports.get(report.replicaId);
      if (before !== undefined) {
        expect(isForward(toReplicaPhase(before), toReplicaPhase(report))).toBe(true);
        expect(report.orderRevision >= before.orderRevision).toBe(true);
        expect(report.restarts >= before.restarts).toBe(true);
        expect(report.failedStarts >= before.failedStarts).toBe(true);
        expect(report.restarts >= report.failedStarts).toBe(true);
      }
      this.lastReports.set(report.replicaId, report);
    }
    this.checkedReports = testBed.coordinator.reportHistory.length;
  }
}

const toReplicaPhase = (report: ReplicaReport): ReplicaPhase =>
  toPhaseName(report).toLowerCase() as ReplicaPhase;

describe('Agent under random orders, exits, failures and restarts', () => {
  it('keeps phases and revisions monotonic, runs at most one container per replica, and applies the newest order in the end', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbitraryStep, { minLength: 5, maxLength: 40 }), async (steps) => {
        const run = new Run();
        const { testBed } = run;
        await testBed.start();
        for (const step of steps) {
          await run.step(step);
          await run.check();
        }
        run.repairStore();
        testBed.http = () => 200;
        testBed.machine.images.set(IMAGE);
        await testBed.clock.advance(1_000); // a session is open
        run.repeatUnstored();
        await testBed.clock.advance(400_000); // longer than any back-off
        await run.check();
        for (const runner of testBed.agent.replicas.listRunners()) {
          const { replicaId, heldRevision, phase, reason, unstored } = runner.current;
          expect(unstored).toBeUndefined();
          if (heldRevision === 0n) {
            expect(reason).toMatch(/^cannot start: /); // its only order could not be stored
            continue;
          }
          const stored = testBed.store.replicas.get(replicaId);
          expect(stored?.heldRevision).toBe(heldRevision);
          const containers = (await testBed.runtime.list()).filter(
            ({ labels }) => fromContainerLabels(labels)?.replicaId === replicaId,
          );
          const runs = containers.some(({ phase: state }) => state === 'running');
          const stopped = stored?.end !== undefined || stored?.stopped === true;
          expect({ replicaId, runs, phase }).toEqual({
            replicaId,
            runs: !stopped,
            phase: stopped ? 'stopped' : 'running',
          });
          expect(runner.current.ready).toBe(!stopped);
          expect(containers.length).toBeLessThanOrEqual(3);
        }
      }),
      { numRuns: 60 },
    );
  }, 60_000);

  it('removes the containers, runners and stored data of forgotten replicas', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbitraryStep, { maxLength: 15 }), async (steps) => {
        const run = new Run();
        const { testBed } = run;
        await testBed.start();
        for (const step of steps) await run.step(step);
        run.repairStore();
        for (let index = 0; index < 3; index += 1)
          testBed.coordinator.sendOrder(
            aForgetOrder({ replicaId: `web-${index}`, revision: 1_000n, epoch: 9n }),
          );
        await testBed.clock.advance(400_000);
        expect(await testBed.runtime.list()).toEqual([]);
        expect(testBed.store.replicas.size).toBe(0);
        expect(testBed.agent.replicas.listRunners()).toEqual([]);
        for (const [, report] of testBed.coordinator.reports) expect(report.containerId).toBe('');
      }),
      { numRuns: 20 },
    );
  }, 60_000);
});
