import { CloudlessError, sleep, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { fromContainerLabels } from '../index.js';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const START_MS = 1_000;

/** Test bed in which each start takes a second and two starts run at the same time. */
class Storm {
  readonly testBed = new AgentTestBed();
  /** Replicas in the order of their start calls. */
  readonly begun: string[] = [];
  startMs = START_MS;
  most = 0;
  private now = 0;

  static async begin(): Promise<Storm> {
    const storm = new Storm();
    storm.testBed.startConcurrency = 2;
    storm.slow();
    await storm.testBed.start();
    return storm;
  }

  /** Each agent has its own runtime instance. */
  slow(): void {
    const { testBed } = this;
    const start = testBed.runtime.start.bind(testBed.runtime);
    testBed.runtime.start = async (request) => {
      this.begun.push(fromContainerLabels(request.labels)?.replicaId ?? '');
      this.most = Math.max(this.most, (this.now += 1));
      try {
        await sleep(testBed.clock, this.startMs);
        return await start(request);
      } finally {
        this.now -= 1;
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
    const storm = await Storm.begin();
    await storm.order(...many);
    for (const replicaId of many)
      expect(storm.testBed.requireReport(replicaId)).toMatchObject({ orderRevision: 10n });
    expect(storm.testBed.summarizeReport('web-1')).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 0,
      reason: '',
    });
    expect(storm.testBed.summarizeReport('web-2')?.reason).toBe(
      'waits in the start queue of this node',
    );
    expect(storm.testBed.agent.replicas.startsWaiting).toBe(18);
    await storm.testBed.clock.advance((many.length / 2) * START_MS);
    expect([storm.most, storm.begun]).toEqual([2, many]);
    for (const replicaId of many)
      expect(storm.testBed.summarizeReport(replicaId)).toMatchObject({
        phase: 'RUNNING',
        ready: true,
        reason: '',
      });
  });

  it('alternates first starts and restarts', async () => {
    const storm = await Storm.begin();
    const crashing = many.slice(0, 6);
    storm.startMs = 0;
    await storm.order(...crashing);
    await storm.testBed.clock.advance(0);
    storm.startMs = START_MS;
    await storm.order('new-1', 'new-2'); // occupy both slots
    for (const replicaId of crashing)
      storm.testBed.machine.exit(
        toContainerId(storm.testBed.requireReport(replicaId).containerId),
        1,
      );
    await storm.testBed.clock.advance(500); // their back-off has passed
    await storm.order('new-3', 'new-4', 'new-5');
    expect(storm.testBed.summarizeReport('web-0')?.reason).toBe(
      'exit code 1, restarting in 100 ms',
    );
    storm.begun.length = 0;
    await storm.testBed.clock.advance(10_000);
    expect(storm.begun).toEqual([
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
    expect(storm.most).toBe(2);
  });

  it('stops running replicas at once when starts wait, and never starts replicas stopped while they wait', async () => {
    const storm = await Storm.begin();
    await storm.order('old-1');
    await storm.testBed.clock.advance(START_MS);
    await storm.order(...many);
    for (const replicaId of ['old-1', 'web-2', 'web-19'])
      storm.testBed.coordinator.sendOrder(aStopOrder({ replicaId, preStopMs: 0 }));
    await settle();
    expect(['old-1', 'web-2', 'web-19'].map((replicaId) => storm.phaseOf(replicaId))).toEqual([
      'STOPPED',
      'STOPPED',
      'STOPPED',
    ]);
    expect(storm.testBed.summarizeReport('web-2')?.reason).toBe('scaled down');
    storm.testBed.coordinator.sendOrder(aForgetOrder({ replicaId: 'web-3' }));
    await storm.testBed.clock.advance(0);
    expect(storm.testBed.requireReport('web-3')).toMatchObject({ forgotten: true });
    await storm.testBed.clock.advance(20 * START_MS);
    const rest = many.filter((replicaId) => !['web-2', 'web-3', 'web-19'].includes(replicaId));
    expect(storm.begun).toEqual(['old-1', ...rest]);
  });

  it('lets the runtime stop a container that an earlier attempt may have started', async () => {
    const storm = await Storm.begin();
    const { testBed } = storm;
    testBed.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    await storm.order('web-1');
    await testBed.clock.advance(START_MS);
    await storm.order('web-2', 'web-3');
    await testBed.clock.advance(500); // web-1 is retried and waits
    expect(testBed.agent.replicas.startsWaiting).toBe(1);
    const stopped: string[] = [];
    const stop = testBed.runtime.stop.bind(testBed.runtime);
    testBed.runtime.stop = (containerId, graceMs) => {
      stopped.push(containerId);
      return stop(containerId, graceMs);
    };
    testBed.coordinator.sendOrder(aStopOrder({ replicaId: 'web-1', preStopMs: 0 }));
    await settle();
    expect([stopped.length, storm.phaseOf('web-1'), testBed.agent.replicas.startsWaiting]).toEqual([
      1,
      'STOPPED',
      0,
    ]);
  });

  it('continues behind starts that hang', async () => {
    const storm = await Storm.begin();
    storm.startMs = Number.MAX_SAFE_INTEGER;
    await storm.order('web-0', 'web-1', 'web-2');
    await storm.testBed.clock.advance(29_999);
    expect(storm.begun).toEqual(['web-0', 'web-1']);
    storm.startMs = START_MS;
    await storm.testBed.clock.advance(1 + START_MS);
    expect(storm.phaseOf('web-2')).toBe('RUNNING');
  });

  it('leaves waiting starts to the next agent', async () => {
    const storm = await Storm.begin();
    await storm.order(...many);
    await storm.testBed.kill();
    await storm.testBed.clock.advance(60_000);
    expect(storm.begun).toHaveLength(2);
    storm.slow();
    await storm.testBed.start();
    await storm.testBed.clock.advance(60_000);
    for (const replicaId of many)
      expect(storm.testBed.summarizeReport(replicaId)).toMatchObject({
        phase: 'RUNNING',
        ready: true,
      });
    expect(storm.most).toBe(2);
  });
});
