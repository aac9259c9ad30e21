import { timestampMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, type ContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { AgentTestBed } from '../testing/agent-test-bed.js';
import { aStartOrder, aStopOrder } from '../testing/builders.js';

describe('the next start in reports', () => {
  let testBed: AgentTestBed;
  beforeEach(async () => {
    testBed = new AgentTestBed();
    await testBed.start();
    await testBed.clock.advance(1_234);
  });
  /** Time until the reported next start, milliseconds; undefined without one. */
  const nextStartInMs = (): number | undefined => {
    const { nextStartAt } = testBed.requireReport();
    return nextStartAt && timestampMs(nextStartAt) - testBed.clock.wallTime();
  };
  const exit = async (code = 1): Promise<void> => {
    testBed.machine.exit(testBed.requireReport().containerId as ContainerId, code);
    await settle();
  };
  const run = async (): Promise<void> => {
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
  };

  it('reports the next start with the end of the container, and not after the start', async () => {
    await run();
    expect(nextStartInMs()).toBeUndefined();
    const { reportHistory } = testBed.coordinator;
    const before = reportHistory.length;
    await exit();
    expect(nextStartInMs()).toBe(100);
    expect(reportHistory.slice(before)).toEqual([
      expect.objectContaining({ reason: 'exit code 1, restarting in 100 ms', restarts: 1 }),
    ]);
    await testBed.clock.advance(99);
    expect(reportHistory).toHaveLength(before + 1);
    await testBed.clock.advance(1);
    const later = reportHistory.slice(before + 1);
    expect(later.map((report) => 'nextStartAt' in report)).toEqual([false, false]);
  });

  it('removes the next start when the start begins, before the container runs', async () => {
    await run();
    await exit();
    expect(nextStartInMs()).toBe(100);
    testBed.runtime.start = () => new Promise(() => undefined);
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: false });
    expect(nextStartInMs()).toBeUndefined();
  });

  it('reports later next starts as the delay grows, for failed starts and exit code 0', async () => {
    for (let attempt = 0; attempt < 2; attempt += 1)
      testBed.machine.failNextStart(new CloudlessError('precondition', 'no executable server'));
    await run();
    expect(nextStartInMs()).toBe(100);
    await testBed.clock.advance(100);
    expect(nextStartInMs()).toBe(200);
    await testBed.clock.advance(200);
    expect(nextStartInMs()).toBeUndefined();
    await exit(0);
    expect(nextStartInMs()).toBe(400);
  });

  it('reports no next start while the agent repeats a call to a silent runtime', async () => {
    testBed.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    await run();
    expect(testBed.summarizeReport()?.reason).toBe('no answer, trying again in 500 ms');
    expect(nextStartInMs()).toBeUndefined();
  });

  it('reports no next start once the replica is ordered to stop', async () => {
    await run();
    await exit();
    expect(nextStartInMs()).toBe(100);
    testBed.coordinator.sendOrder(aStopOrder());
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(nextStartInMs()).toBeUndefined();
  });

  it('reports the next start of the new back-off after a restart of the agent', async () => {
    await run();
    await exit();
    await testBed.clock.advance(60);
    await testBed.restart();
    expect(nextStartInMs()).toBe(100);
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
    expect(nextStartInMs()).toBeUndefined();
  });

  it('reports no next start for the first start of a replica by a restarted agent', async () => {
    testBed.runtime.start = () => new Promise(() => undefined);
    await run();
    testBed.coordinator.reachable = false;
    await testBed.restart();
    const activity = testBed.agent.replicas.find('web-1')?.current.activity;
    expect(activity).toEqual({ kind: 'backingOff' });
  });
});
