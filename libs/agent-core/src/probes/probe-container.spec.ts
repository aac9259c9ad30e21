import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { toBehaviourCommand } from '@cloudless/runtime/testing';
import { RestartPolicy_Policy, type ProbeSchema, type WorkloadSpecSchema } from '@cloudless/api';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

type Spec = MessageInitShape<typeof WorkloadSpecSchema>;
type Probe = Exclude<MessageInitShape<typeof ProbeSchema>, { $typeName: string }>;

const ports = [{ name: 'http', containerPort: 80 }];
const http = (path: string, more: Probe = {}): Probe => ({
  check: { case: 'http', value: { path, port: 'http' } },
  period: durationFromMs(1_000),
  ...more,
});
const exec = (...command: string[]): Probe => ({
  check: { case: 'exec', value: { command } },
  period: durationFromMs(1_000),
});

async function createTestBed(spec: Spec): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  testBed.coordinator.sendOrder(aStartOrder({ spec: { ports, ...spec } }));
  await settle();
  return testBed;
}

const idOf = (testBed: AgentTestBed) => toContainerId(testBed.requireReport().containerId);
/** Readiness in each report, oldest report first. */
const readinessHistory = (testBed: AgentTestBed): boolean[] =>
  testBed.coordinator.reportHistory.map(({ ready }) => ready);

describe('readiness probe', () => {
  it('makes the replica ready in less than a period when it passes after failures', async () => {
    let status = 503;
    const testBed = await createTestBed({ readinessProbe: http('/ready') });
    testBed.http = () => status;
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'waiting for the readiness probe',
    });
    await testBed.clock.advance(150);
    expect(testBed.summarizeReport()?.reason).toBe('readiness probe: HTTP 503 from /ready');
    await testBed.clock.advance(850);
    expect(testBed.summarizeReport()).toMatchObject({
      ready: false,
      reason: 'readiness probe: HTTP 503 from /ready, 3 of 3 failed',
    });
    status = 200;
    await testBed.clock.advance(350); // less than the period of 1 s
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
  });

  it('causes no reports while its result stays the same', async () => {
    const testBed = await createTestBed({ readinessProbe: http('/ready') });
    testBed.http = () => 503;
    await testBed.clock.advance(10_000);
    const reportCount = testBed.coordinator.reportHistory.length;
    await testBed.clock.advance(60_000);
    expect(testBed.coordinator.reportHistory.length).toBe(reportCount);
  });

  it('causes no reports when a failing command changes its output', async () => {
    const testBed = await createTestBed({ readinessProbe: exec('check') });
    let count = 0;
    testBed.machine.setExecHandler(() => ({ exitCode: 1, stderr: `failure ${(count += 1)}` }));
    await testBed.clock.advance(5_000);
    const reportCount = testBed.coordinator.reportHistory.length;
    await testBed.clock.advance(60_000);
    expect([count > 50, testBed.coordinator.reportHistory.length]).toEqual([true, reportCount]);
  });

  it('makes a replica not ready at its failure threshold and ready again when it passes, without a restart', async () => {
    const testBed = await createTestBed({ readinessProbe: http('/ready') });
    await testBed.clock.advance(1_200);
    expect(testBed.summarizeReport()?.ready).toBe(true);
    const before = testBed.probeRequests.length;
    testBed.http = () => {
      throw new CloudlessError('unavailable', 'connection refused');
    };
    await testBed.clock.advance(2_000);
    expect([testBed.probeRequests.length - before, testBed.summarizeReport()?.ready]).toEqual([
      2,
      true,
    ]);
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport()).toMatchObject({
      ready: false,
      reason: 'readiness probe: connection refused at port http, 3 of 3 failed',
    });
    testBed.http = () => 200;
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
    expect(testBed.machine.startCount).toBe(1);
  });

  it('makes a restarted container not ready until it passes', async () => {
    const testBed = await createTestBed({ readinessProbe: http('/ready') });
    await testBed.clock.advance(200);
    testBed.http = () => 503;
    testBed.machine.exit(idOf(testBed), 1);
    await testBed.clock.advance(200);
    expect(testBed.summarizeReport()).toMatchObject({
      ready: false,
      restarts: 1,
      reason: 'readiness probe: HTTP 503 from /ready',
    });
  });
});

describe('liveness probe', () => {
  const livez = { livenessProbe: http('/livez'), terminationGracePeriod: durationFromMs(3_000) };

  it('restarts the container at its failure threshold, with a reason and a growing delay', async () => {
    const testBed = await createTestBed(livez);
    await testBed.clock.advance(2_000);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    const first = idOf(testBed);
    testBed.http = () => 500;
    await testBed.clock.advance(3_200);
    const endReason = 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGTERM)';
    expect(testBed.requireReport()).toMatchObject({
      restarts: 1,
      lastExitCode: 143,
      lastEndReason: endReason,
      phase: 3,
    });
    expect(testBed.coordinator.reportHistory.map(({ reason }) => reason)).toContain(
      `${endReason}, restarting in 100 ms`,
    );
    expect(idOf(testBed)).not.toBe(first);
    testBed.http = () => 500;
    await testBed.clock.advance(60_000);
    const { restarts } = testBed.requireReport();
    expect(restarts).toBeGreaterThan(5);
    expect(restarts).toBeLessThan(15); // 3 s of failures, then a delay of 100 ms, 200 ms, …
  });

  it('restarts the container without a coordinator, and the restart is reported after the reconnect', async () => {
    const testBed = await createTestBed(livez);
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    testBed.http = () => 500;
    await testBed.clock.advance(4_500);
    testBed.http = () => 200;
    await testBed.clock.advance(10_000);
    expect(testBed.machine.startCount).toBe(2);
    testBed.coordinator.reachable = true;
    await testBed.clock.advance(2_000);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
    expect(testBed.requireReport().lastEndReason).toContain('liveness probe: HTTP 500 from /livez');
  });

  it('makes the replica FAILED under restart policy NEVER when it fails', async () => {
    const testBed = await createTestBed({
      ...livez,
      restart: { policy: RestartPolicy_Policy.NEVER },
    });
    testBed.http = () => 500;
    await testBed.clock.advance(4_500);
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'FAILED',
      reason:
        'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGTERM); never restarted',
    });
  });

  it('makes no check before its initial delay', async () => {
    const testBed = await createTestBed({
      livenessProbe: http('/livez', { initialDelay: durationFromMs(30_000) }),
    });
    testBed.http = () => 500;
    await testBed.clock.advance(30_000);
    expect(testBed.probeRequests).toEqual([]);
    await testBed.clock.advance(4_500);
    expect(testBed.requireReport().restarts).toBe(1);
  });

  it('does not count a check that could not be made', async () => {
    const testBed = await createTestBed({ livenessProbe: exec('alive') });
    testBed.machine.setExecHandler(() => {
      throw new CloudlessError('unavailable', 'the supervisor went away');
    });
    await testBed.clock.advance(30_000);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    testBed.machine.setExecHandler(() => ({ exitCode: 1, stderr: 'dead' }));
    await testBed.clock.advance(3_200);
    expect(testBed.requireReport().lastEndReason).toBe(
      'liveness probe: the command ended with exit code 1 (dead), 3 of 3 failed (killed by SIGTERM)',
    );
  });

  it('fails when its command exceeds the timeout', async () => {
    const testBed = await createTestBed({
      livenessProbe: { ...exec('hangs'), timeout: durationFromMs(300), failureThreshold: 1 },
    });
    await testBed.clock.advance(1_500);
    expect(testBed.requireReport().lastEndReason).toBe(
      'liveness probe: no answer within 300 ms, 1 of 1 failed (killed by SIGTERM)',
    );
  });
});

describe('startup probe', () => {
  const slow: Spec = {
    startupProbe: http('/started', { failureThreshold: 5 }),
    livenessProbe: http('/livez', { failureThreshold: 1 }),
    readinessProbe: http('/ready'),
  };

  it('delays the other probes until it has passed once', async () => {
    let started = false;
    const testBed = await createTestBed(slow);
    testBed.http = (path) =>
      path === '/started' && started ? 200 : path === '/started' ? 503 : started ? 200 : 500;
    await testBed.clock.advance(3_500);
    expect(testBed.summarizeReport()).toEqual({
      ...{ phase: 'RUNNING', ready: false, restarts: 0 },
      reason: 'startup probe: HTTP 503 from /started',
    });
    expect(testBed.probeRequests.every(({ text }) => text.endsWith('/started'))).toBe(true);
    started = true;
    await testBed.clock.advance(2_500);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    const asked = testBed.probeRequests.slice(-2).map(({ text }) => text.replace(/.*\//, '/'));
    expect([...asked].sort()).toEqual(['/livez', '/ready']);
  });

  it('restarts the container when it has not passed within failure threshold × period', async () => {
    const testBed = await createTestBed(slow);
    testBed.http = () => 503;
    await testBed.clock.advance(4_300);
    expect(testBed.requireReport().lastEndReason).toBe(
      'startup probe: HTTP 503 from /started, 5 of 5 failed (killed by SIGTERM)',
    );
    expect(testBed.requireReport().restarts).toBe(1);
  });

  it('passes before the TCP ports are checked when there is no readiness probe', async () => {
    const testBed = await createTestBed({ startupProbe: http('/started') });
    testBed.closedPorts.add('*');
    await testBed.clock.advance(150);
    expect(testBed.summarizeReport()?.reason).toBe('waiting for port http to accept connections');
    testBed.closedPorts.clear();
    await testBed.clock.advance(300);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, reason: '' });
  });
});

describe('probes', () => {
  const all: Spec = { livenessProbe: http('/livez'), readinessProbe: http('/ready') };

  it('are not made while the replica stops, and leave no timers', async () => {
    const testBed = await createTestBed({ ...all, preStopDelay: durationFromMs(5_000) });
    await testBed.clock.advance(2_000);
    testBed.coordinator.sendOrder(aStopOrder());
    await settle();
    const before = testBed.probeRequests.length;
    testBed.http = () => 500;
    await testBed.clock.advance(60_000);
    expect(testBed.probeRequests.length).toBe(before);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED', restarts: 0 });
    testBed.coordinator.sendOrder(aForgetOrder());
    await testBed.clock.advance(1_000);
    await testBed.stop();
    expect(testBed.clock.pendingTimers).toBe(0);
  });

  it('are not made during the grace period of a container that is being killed', async () => {
    const command = [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const testBed = await createTestBed({
      ...all,
      command,
      terminationGracePeriod: durationFromMs(20_000),
    });
    testBed.http = () => 500;
    await testBed.clock.advance(4_000);
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
    });
    expect(testBed.requireReport()).toMatchObject({
      reason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed',
    });
    const before = testBed.probeRequests.length;
    await testBed.clock.advance(18_000);
    expect(testBed.probeRequests.length).toBe(before);
    await testBed.clock.advance(3_000);
    expect(testBed.requireReport()).toMatchObject({
      restarts: 1,
      lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGKILL)',
    });
    await testBed.stop();
    expect(testBed.clock.pendingTimers).toBe(0);
  });

  it.each([
    { condition: 'when the container still runs', ends: false },
    { condition: 'when the container has exited meanwhile', ends: true },
  ])('restart an unhealthy container after a restart of the agent $condition', async ({ ends }) => {
    const command = [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const restart = { policy: RestartPolicy_Policy.ON_FAILURE };
    const testBed = await createTestBed({
      ...all,
      restart,
      command,
      terminationGracePeriod: durationFromMs(20_000),
    });
    testBed.http = () => 500;
    await testBed.clock.advance(4_000);
    const id = idOf(testBed);
    await testBed.kill();
    if (ends) testBed.machine.exit(id, 0);
    testBed.http = () => 200;
    await testBed.start();
    await testBed.clock.advance(25_000);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
    expect(testBed.requireReport().lastEndReason).toContain(
      'liveness probe: HTTP 500 from /livez, 3 of 3 failed (',
    );
  });

  it('continue after a restart of the agent, and the replica stays ready until the failure threshold', async () => {
    const testBed = await createTestBed(all);
    await testBed.clock.advance(2_500);
    testBed.coordinator.reportHistory.length = 0;
    const before = testBed.probeRequests.length;
    await testBed.restart();
    await testBed.clock.advance(10_000);
    expect(readinessHistory(testBed).every((ready) => ready)).toBe(true);
    expect(testBed.probeRequests.length).toBeGreaterThan(before + 10);
    testBed.http = (path) => (path === '/ready' ? 503 : 200);
    await testBed.restart();
    await testBed.clock.advance(1_900);
    expect(testBed.summarizeReport()?.ready).toBe(true); // two failed checks at most
    await testBed.clock.advance(2_000);
    expect(testBed.summarizeReport()).toMatchObject({
      ready: false,
      reason: 'readiness probe: HTTP 503 from /ready, 3 of 3 failed',
    });
  });

  it('count the initial delay from the start of the container, also in the next agent', async () => {
    const testBed = await createTestBed({
      livenessProbe: http('/livez', { initialDelay: durationFromMs(20_000) }),
    });
    await testBed.clock.advance(10_000);
    await testBed.restart();
    await testBed.clock.advance(9_900);
    expect(testBed.probeRequests).toEqual([]);
    await testBed.clock.advance(1_200);
    expect(testBed.probeRequests).not.toEqual([]);
  });

  it('are made for an orphan once its start order is repeated', async () => {
    const testBed = await createTestBed(all);
    await testBed.clock.advance(2_000);
    await testBed.kill();
    testBed.store.replicas.clear();
    await testBed.start();
    const before = testBed.probeRequests.length;
    testBed.coordinator.sendOrder(aStartOrder({ spec: { ports, ...all } }));
    await testBed.clock.advance(2_500);
    expect(testBed.probeRequests.length).toBeGreaterThan(before);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true });
  });

  it('spread their first checks over the period when 100 replicas start together', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    const spec = { ports, livenessProbe: http('/livez', { period: durationFromMs(10_000) }) };
    for (let index = 0; index < 100; index += 1)
      testBed.coordinator.sendOrder(aStartOrder({ replicaId: `web-${index}`, spec }));
    await testBed.clock.advance(10_000);
    expect(testBed.probeRequests.length).toBeGreaterThanOrEqual(100);
    const perSecond = Array.from(
      { length: 10 },
      (_, second) =>
        testBed.probeRequests.filter(({ atMs }) => Math.floor(atMs / 1_000) === second).length,
    );
    expect(Math.max(...perSecond)).toBeLessThan(25);
  });
});
