import { CloudlessError, sleep, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { HEALTHY } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { fromContainerLabels } from '../index.js';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const START_MS = 1_000;

/** Test bed in which each start takes `startMs` and at most two starts run at the same time. */
class StartTestBed {
  readonly testBed = new AgentTestBed();
  /** Replicas in the order of their start calls. */
  readonly startCalls: string[] = [];
  /** Duration of a start, milliseconds. */
  startMs = START_MS;
  /** Highest number of starts that ran at the same time. */
  maxConcurrentStarts = 0;
  private concurrentStarts = 0;

  static async create(): Promise<StartTestBed> {
    const bed = new StartTestBed();
    const { testBed } = bed;
    testBed.startConcurrency = 2;
    testBed.runtime = createFakeRuntime({
      clock: testBed.clock,
      capabilities: ['runtime.process', 'runtime.cri', 'exec.tty'],
    });
    bed.delayStarts();
    await bed.testBed.start();
    return bed;
  }

  /** Delays each start by `startMs`. Call again for the runtime of each further agent. */
  delayStarts(): void {
    const { testBed } = this;
    const start = testBed.runtime.start.bind(testBed.runtime);
    testBed.runtime.start = async (request) => {
      this.startCalls.push(fromContainerLabels(request.labels)?.replicaId ?? '');
      this.maxConcurrentStarts = Math.max(this.maxConcurrentStarts, (this.concurrentStarts += 1));
      try {
        await sleep(testBed.clock, this.startMs);
        return await start(request);
      } finally {
        this.concurrentStarts -= 1;
      }
    };
  }

  async order(...replicaIds: string[]): Promise<void> {
    for (const replicaId of replicaIds)
      this.testBed.coordinator.sendOrder(aStartOrder({ replicaId }));
    await settle();
  }

  phaseOf(replicaId: string): string | undefined {
    return this.testBed.summarizeReport(replicaId)?.phase;
  }
}

const many = Array.from({ length: 20 }, (_, index) => `web-${index}`);

describe('start queue of an agent', () => {
  it('limits concurrent starts, keeps their order and acknowledges orders at once', async () => {
    const bed = await StartTestBed.create();
    await bed.order(...many);
    for (const replicaId of many)
      expect(bed.testBed.requireReport(replicaId)).toMatchObject({ orderRevision: 10n });
    expect(bed.testBed.summarizeReport('web-1')).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 0,
      reason: '',
    });
    expect(bed.testBed.summarizeReport('web-2')?.reason).toBe(
      'waits in the start queue of this node',
    );
    expect(bed.testBed.agent.replicas.waitingStartCount).toBe(18);
    await bed.testBed.clock.advance((many.length / 2) * START_MS);
    expect([bed.maxConcurrentStarts, bed.startCalls]).toEqual([2, many]);
    for (const replicaId of many)
      expect(bed.testBed.summarizeReport(replicaId)).toMatchObject({
        phase: 'RUNNING',
        ready: true,
        reason: '',
      });
  });

  it('alternates first starts and restarts when both wait', async () => {
    const bed = await StartTestBed.create();
    const crashing = many.slice(0, 6);
    bed.startMs = 0;
    await bed.order(...crashing);
    await bed.testBed.clock.advance(0);
    bed.startMs = START_MS;
    await bed.order('new-1', 'new-2'); // occupy both slots
    for (const replicaId of crashing)
      bed.testBed.machine.exit(toContainerId(bed.testBed.requireReport(replicaId).containerId), 1);
    await bed.testBed.clock.advance(500); // the restart delay of the crashed replicas has passed
    await bed.order('new-3', 'new-4', 'new-5');
    expect(bed.testBed.summarizeReport('web-0')?.reason).toBe('exit code 1, restarting in 100 ms');
    bed.startCalls.length = 0;
    await bed.testBed.clock.advance(10_000);
    expect(bed.startCalls).toEqual([
      'web-0',
      'new-3',
      'web-1',
      'new-4',
      'web-2',
      'new-5',
      'web-3',
      'web-4',
      'web-5',
    ]);
    expect(bed.maxConcurrentStarts).toBe(2);
  });

  it('stops running replicas at once when starts wait, and never starts replicas stopped while they wait', async () => {
    const bed = await StartTestBed.create();
    await bed.order('old-1');
    await bed.testBed.clock.advance(START_MS);
    await bed.order(...many);
    for (const replicaId of ['old-1', 'web-2', 'web-19'])
      bed.testBed.coordinator.sendOrder(aStopOrder({ replicaId, preStopMs: 0 }));
    await settle();
    expect(['old-1', 'web-2', 'web-19'].map((replicaId) => bed.phaseOf(replicaId))).toEqual([
      'STOPPED',
      'STOPPED',
      'STOPPED',
    ]);
    expect(bed.testBed.summarizeReport('web-2')?.reason).toBe('scaled down');
    bed.testBed.coordinator.sendOrder(aForgetOrder({ replicaId: 'web-3' }));
    await bed.testBed.clock.advance(0);
    expect(bed.testBed.requireReport('web-3')).toMatchObject({ forgotten: true });
    await bed.testBed.clock.advance(20 * START_MS);
    const rest = many.filter((replicaId) => !['web-2', 'web-3', 'web-19'].includes(replicaId));
    expect(bed.startCalls).toEqual(['old-1', ...rest]);
  });

  it('calls runtime.stop for a replica whose start waits when an earlier attempt got no answer', async () => {
    const bed = await StartTestBed.create();
    const { testBed } = bed;
    testBed.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    await bed.order('web-1');
    await testBed.clock.advance(START_MS);
    await bed.order('web-2', 'web-3');
    await testBed.clock.advance(500); // web-1 is retried and waits
    expect(testBed.agent.replicas.waitingStartCount).toBe(1);
    const stopped: string[] = [];
    const stop = testBed.runtime.stop.bind(testBed.runtime);
    testBed.runtime.stop = (containerId, graceMs) => {
      stopped.push(containerId);
      return stop(containerId, graceMs);
    };
    testBed.coordinator.sendOrder(aStopOrder({ replicaId: 'web-1', preStopMs: 0 }));
    await settle();
    expect([
      stopped.length,
      bed.phaseOf('web-1'),
      testBed.agent.replicas.waitingStartCount,
    ]).toEqual([1, 'STOPPED', 0]);
  });

  describe('whose supervisor of processes hangs', () => {
    const IMAGE = 'nginx:alpine';
    let bed: StartTestBed;
    /** Since when the supervisor has not answered; undefined: it answers. */
    let silentSinceMs: number | undefined;
    beforeEach(async () => {
      bed = await StartTestBed.create();
      const { testBed } = bed;
      testBed.machine.images.set(IMAGE);
      silentSinceMs = testBed.clock.now();
      testBed.runtime.health = () => ({
        ...HEALTHY,
        processesSilentMs: silentSinceMs === undefined ? 0 : testBed.clock.now() - silentSinceMs,
      });
      bed.startMs = 8_000;
      await bed.order('process-0', 'process-1', 'process-2');
      bed.startMs = START_MS;
      for (const replicaId of ['web-0', 'web-1', 'web-2'])
        testBed.coordinator.sendOrder(aStartOrder({ replicaId, spec: { image: IMAGE } }));
      await settle();
    });
    afterEach(() => bed.testBed.stop());

    it('gives the slots to containers once the supervisor has been silent for 5 s', async () => {
      await bed.testBed.clock.advance(4_000);
      expect(bed.startCalls).toEqual(['process-0', 'process-1']);
      await bed.testBed.clock.advance(1_500);
      expect(bed.startCalls).toEqual(['process-0', 'process-1', 'web-0', 'web-1']);
      await bed.testBed.clock.advance(2 * START_MS);
      expect(bed.phaseOf('web-2')).toBe('RUNNING');
    });

    it('gives up the process that waits after 10 s, and never starts it', async () => {
      await bed.testBed.clock.advance(11_000);
      expect(bed.phaseOf('process-2')).toBe('STOPPED');
      expect(bed.testBed.agent.replicas.waitingStartCount).toBe(0);
      silentSinceMs = undefined;
      await bed.testBed.clock.advance(60_000);
      expect(bed.startCalls).not.toContain('process-2');
    });

    it('counts the starts that go on when the supervisor answers again', async () => {
      await bed.testBed.clock.advance(6_000);
      silentSinceMs = undefined;
      await bed.testBed.clock.advance(1_999); // process-0 and process-1 hold both slots
      expect(bed.startCalls).not.toContain('process-2');
      await bed.testBed.clock.advance(2_000);
      expect(bed.startCalls).toContain('process-2');
      await bed.testBed.clock.advance(START_MS);
      expect(
        ['process-0', 'process-1', 'process-2', 'web-2'].map((replicaId) => bed.phaseOf(replicaId)),
      ).toEqual(['RUNNING', 'RUNNING', 'RUNNING', 'RUNNING']);
    });
  });

  it('begins the next start after 30 s when the running starts hang', async () => {
    const bed = await StartTestBed.create();
    bed.startMs = Number.MAX_SAFE_INTEGER;
    await bed.order('web-0', 'web-1', 'web-2');
    await bed.testBed.clock.advance(29_999);
    expect(bed.startCalls).toEqual(['web-0', 'web-1']);
    bed.startMs = START_MS;
    await bed.testBed.clock.advance(1 + START_MS);
    expect(bed.phaseOf('web-2')).toBe('RUNNING');
  });

  it('leaves waiting starts to the next agent when the agent is killed', async () => {
    const bed = await StartTestBed.create();
    await bed.order(...many);
    await bed.testBed.kill();
    await bed.testBed.clock.advance(60_000);
    expect(bed.startCalls).toHaveLength(2);
    bed.delayStarts();
    await bed.testBed.start();
    await bed.testBed.clock.advance(60_000);
    for (const replicaId of many)
      expect(bed.testBed.summarizeReport(replicaId)).toMatchObject({
        phase: 'RUNNING',
        ready: true,
      });
    expect(bed.maxConcurrentStarts).toBe(2);
  });
});
