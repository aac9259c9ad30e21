import { CloudlessError, toContainerId, type ContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { AgentTestBed } from '../testing/agent-test-bed.js';
import { aStartOrder, aStopOrder } from '../testing/builders.js';
import { hasFailed } from './reduce-replica.js';

const CURRENT = toContainerId('a'.repeat(64));
const OTHER = toContainerId('b'.repeat(64));
const anExit = (fields: object = {}) => ({
  containerId: CURRENT,
  exitCode: 1,
  reason: 'exit code 1',
  upMs: 0,
  ...fields,
});

describe('hasFailed', () => {
  const running = { kind: 'running', containerId: CURRENT } as const;
  const killing = { kind: 'killing', containerId: CURRENT, reason: 'liveness probe' } as const;

  it.each([
    { name: 'an exit code other than 0', activity: running, exit: {}, failed: true },
    { name: 'exit code 0', activity: running, exit: { exitCode: 0 }, failed: false },
    { name: 'exit code 0 after a kill', activity: killing, exit: { exitCode: 0 }, failed: true },
    { name: 'the end of a lease', activity: running, exit: { leaseEnded: true }, failed: false },
    { name: 'another container', activity: running, exit: { containerId: OTHER }, failed: false },
    { name: 'no container', activity: { kind: 'ended' } as const, exit: {}, failed: false },
  ])('is $failed for $name', ({ activity, exit, failed }) => {
    expect(hasFailed({ activity }, anExit(exit))).toBe(failed);
  });

  it('is false after a stop order', () => {
    const stop = { endpointsGoneMs: 0, preStopMs: 0, graceMs: 0 };
    expect(hasFailed({ activity: killing, stop }, anExit())).toBe(false);
  });
});

describe('containers of a replica', () => {
  let testBed: AgentTestBed;
  beforeEach(async () => {
    testBed = new AgentTestBed();
    await testBed.start();
  });
  const currentId = (): ContainerId => testBed.requireReport().containerId as ContainerId;

  it('are reported as stopped when the runtime no longer has the container to stop', async () => {
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    testBed.machine.removeSilently(currentId());
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 0 }));
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STOPPED',
      reason: 'the runtime no longer has the container',
    });
    expect(testBed.agent.replicas.find('web-1')?.current.activity).toEqual({ kind: 'ended' });
  });

  it('keep their id when a start gets no answer and the next start fails', async () => {
    const ids: string[] = [];
    const { runtime } = testBed;
    const start = runtime.start.bind(runtime);
    runtime.start = (request) => {
      ids.push(request.containerId);
      return start(request);
    };
    testBed.machine.failNextStart(new CloudlessError('unavailable', 'no answer'));
    testBed.machine.failNextStart(new CloudlessError('precondition', 'no'));
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    await testBed.clock.advance(5_000);
    expect(ids).toHaveLength(3);
    expect(new Set(ids).size).toBe(1);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  });

  it('have their last lines read once when an exit is reported twice', async () => {
    let reads = 0;
    const { runtime } = testBed;
    const logs = runtime.logs.bind(runtime);
    runtime.logs = (...args) => {
      reads += 1;
      return logs(...args);
    };
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    testBed.machine.exit(currentId(), 1);
    const [status] = await runtime.list();
    if (status === undefined) throw new Error('no container');
    testBed.agent.replicas.observe({ kind: 'exited', status });
    testBed.agent.replicas.observe({ kind: 'exited', status });
    await settle();
    expect(reads).toBe(1);
    expect(testBed.summarizeReport()).toMatchObject({ restarts: 1 });
  });
});
