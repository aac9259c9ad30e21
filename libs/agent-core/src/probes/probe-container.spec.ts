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

async function aWorld(spec: Spec): Promise<AgentTestBed> {
  const world = new AgentTestBed();
  await world.start();
  world.coordinator.sendOrder(aStartOrder({ spec: { ports, ...spec } }));
  await settle();
  return world;
}

const idOf = (world: AgentTestBed) => toContainerId(world.requireReport().containerId);
/** Readiness in the order of the reports. */
const readiness = (world: AgentTestBed): boolean[] =>
  world.coordinator.reportHistory.map(({ ready }) => ready);

describe('readiness probe', () => {
  it('alone makes a replica ready, soon after it passes', async () => {
    let status = 503;
    const world = await aWorld({ readinessProbe: http('/ready') });
    world.http = () => status;
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: 'waiting for the readiness probe',
    });
    await world.clock.advance(150);
    expect(world.summarizeReport()?.reason).toBe('readiness probe: HTTP 503 from /ready');
    await world.clock.advance(850);
    expect(world.summarizeReport()).toMatchObject({
      ready: false,
      reason: 'readiness probe: HTTP 503 from /ready, 3 of 3 failed',
    });
    status = 200;
    await world.clock.advance(350); // and not the whole period
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
  });

  it('causes no reports while nothing changes', async () => {
    const world = await aWorld({ readinessProbe: http('/ready') });
    world.http = () => 503;
    await world.clock.advance(10_000);
    const told = world.coordinator.reportHistory.length;
    await world.clock.advance(60_000);
    expect(world.coordinator.reportHistory.length).toBe(told);
  });

  it('causes no reports for a failing command with changing output', async () => {
    const world = await aWorld({ readinessProbe: exec('check') });
    let count = 0;
    world.machine.setExecHandler(() => ({ exitCode: 1, stderr: `failure ${(count += 1)}` }));
    await world.clock.advance(5_000);
    const told = world.coordinator.reportHistory.length;
    await world.clock.advance(60_000);
    expect([count > 50, world.coordinator.reportHistory.length]).toEqual([true, told]);
  });

  it('makes a replica unready at its threshold with a reason, and ready again, without a restart', async () => {
    const world = await aWorld({ readinessProbe: http('/ready') });
    await world.clock.advance(1_200);
    expect(world.summarizeReport()?.ready).toBe(true);
    const before = world.probeRequests.length;
    world.http = () => {
      throw new CloudlessError('unavailable', 'connection refused');
    };
    await world.clock.advance(2_000);
    expect([world.probeRequests.length - before, world.summarizeReport()?.ready]).toEqual([
      2,
      true,
    ]);
    await world.clock.advance(1_000);
    expect(world.summarizeReport()).toMatchObject({
      ready: false,
      reason: 'readiness probe: connection refused at port http, 3 of 3 failed',
    });
    world.http = () => 200;
    await world.clock.advance(1_000);
    expect(world.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
    expect(world.machine.startCount).toBe(1);
  });

  it('starts again, unready, with a restarted container', async () => {
    const world = await aWorld({ readinessProbe: http('/ready') });
    await world.clock.advance(200);
    world.http = () => 503;
    world.machine.exit(idOf(world), 1);
    await world.clock.advance(200);
    expect(world.summarizeReport()).toMatchObject({
      ready: false,
      restarts: 1,
      reason: 'readiness probe: HTTP 503 from /ready',
    });
  });
});

describe('liveness probe', () => {
  const livez = { livenessProbe: http('/livez'), terminationGracePeriod: durationFromMs(3_000) };

  it('restarts a container at its failure threshold with a reason and back-off', async () => {
    const world = await aWorld(livez);
    await world.clock.advance(2_000);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    const first = idOf(world);
    world.http = () => 500;
    await world.clock.advance(3_200);
    const why = 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGTERM)';
    expect(world.requireReport()).toMatchObject({
      restarts: 1,
      lastExitCode: 143,
      lastEndReason: why,
      phase: 3,
    });
    expect(world.coordinator.reportHistory.map(({ reason }) => reason)).toContain(
      `${why}, restarting in 100 ms`,
    );
    expect(idOf(world)).not.toBe(first);
    world.http = () => 500;
    await world.clock.advance(60_000);
    const { restarts } = world.requireReport();
    expect(restarts).toBeGreaterThan(5);
    expect(restarts).toBeLessThan(15); // 100 ms, 200 ms, … after 3 s of failures each
  });

  it('works without any coordinator, and is reported later', async () => {
    const world = await aWorld(livez);
    world.coordinator.reachable = false;
    world.coordinator.dropConnections();
    world.http = () => 500;
    await world.clock.advance(4_500);
    world.http = () => 200;
    await world.clock.advance(10_000);
    expect(world.machine.startCount).toBe(2);
    world.coordinator.reachable = true;
    await world.clock.advance(2_000);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
    expect(world.requireReport().lastEndReason).toContain('liveness probe: HTTP 500 from /livez');
  });

  it('counts as a failure for the restart policy, whatever the exit code', async () => {
    const world = await aWorld({ ...livez, restart: { policy: RestartPolicy_Policy.NEVER } });
    world.http = () => 500;
    await world.clock.advance(4_500);
    expect(world.summarizeReport()).toMatchObject({
      phase: 'FAILED',
      reason:
        'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGTERM); never restarted',
    });
  });

  it('waits for its initial delay', async () => {
    const world = await aWorld({
      livenessProbe: http('/livez', { initialDelay: durationFromMs(30_000) }),
    });
    world.http = () => 500;
    await world.clock.advance(30_000);
    expect(world.probeRequests).toEqual([]);
    await world.clock.advance(4_500);
    expect(world.requireReport().restarts).toBe(1);
  });

  it('does not count a check that could not be made', async () => {
    const world = await aWorld({ livenessProbe: exec('alive') });
    world.machine.setExecHandler(() => {
      throw new CloudlessError('unavailable', 'the supervisor went away');
    });
    await world.clock.advance(30_000);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    world.machine.setExecHandler(() => ({ exitCode: 1, stderr: 'dead' }));
    await world.clock.advance(3_200);
    expect(world.requireReport().lastEndReason).toBe(
      'liveness probe: the command ended with exit code 1 (dead), 3 of 3 failed (killed by SIGTERM)',
    );
  });

  it('ends a command that exceeds the timeout', async () => {
    const world = await aWorld({
      livenessProbe: { ...exec('hangs'), timeout: durationFromMs(300), failureThreshold: 1 },
    });
    await world.clock.advance(1_500);
    expect(world.requireReport().lastEndReason).toBe(
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
    const world = await aWorld(slow);
    world.http = (path) =>
      path === '/started' && started ? 200 : path === '/started' ? 503 : started ? 200 : 500;
    await world.clock.advance(3_500);
    expect(world.summarizeReport()).toEqual({
      ...{ phase: 'RUNNING', ready: false, restarts: 0 },
      reason: 'startup probe: HTTP 503 from /started',
    });
    expect(world.probeRequests.every(({ text }) => text.endsWith('/started'))).toBe(true);
    started = true;
    await world.clock.advance(2_500);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    const asked = world.probeRequests.slice(-2).map(({ text }) => text.replace(/.*\//, '/'));
    expect([...asked].sort()).toEqual(['/livez', '/ready']);
  });

  it('restarts a container that does not start in time', async () => {
    const world = await aWorld(slow);
    world.http = () => 503;
    await world.clock.advance(4_300);
    expect(world.requireReport().lastEndReason).toBe(
      'startup probe: HTTP 503 from /started, 5 of 5 failed (killed by SIGTERM)',
    );
    expect(world.requireReport().restarts).toBe(1);
  });

  it('passes before the TCP ports are checked when there is no readiness probe', async () => {
    const world = await aWorld({ startupProbe: http('/started') });
    world.closedPorts.add('*');
    await world.clock.advance(150);
    expect(world.summarizeReport()?.reason).toBe('waiting for port http to accept connections');
    world.closedPorts.clear();
    await world.clock.advance(300);
    expect(world.summarizeReport()).toMatchObject({ ready: true, reason: '' });
  });
});

describe('probes', () => {
  const all: Spec = { livenessProbe: http('/livez'), readinessProbe: http('/ready') };

  it('are not made while the replica stops, and leave no timers', async () => {
    const world = await aWorld({ ...all, preStopDelay: durationFromMs(5_000) });
    await world.clock.advance(2_000);
    world.coordinator.sendOrder(aStopOrder());
    await settle();
    const before = world.probeRequests.length;
    world.http = () => 500;
    await world.clock.advance(60_000);
    expect(world.probeRequests.length).toBe(before);
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED', restarts: 0 });
    world.coordinator.sendOrder(aForgetOrder());
    await world.clock.advance(1_000);
    await world.stop();
    expect(world.clock.pendingTimers).toBe(0);
  });

  it('are not made during the grace period of a container that is being killed', async () => {
    const command = [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const world = await aWorld({ ...all, command, terminationGracePeriod: durationFromMs(20_000) });
    world.http = () => 500;
    await world.clock.advance(4_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: false, restarts: 0 });
    expect(world.requireReport()).toMatchObject({
      reason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed',
    });
    const before = world.probeRequests.length;
    await world.clock.advance(18_000);
    expect(world.probeRequests.length).toBe(before);
    await world.clock.advance(3_000);
    expect(world.requireReport()).toMatchObject({
      restarts: 1,
      lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGKILL)',
    });
    await world.stop();
    expect(world.clock.pendingTimers).toBe(0);
  });

  it.each([
    { after: 'while the container is ended', ends: false },
    { after: 'when it has ended meanwhile', ends: true },
  ])('continue a kill after a restart of the agent, $after', async ({ ends }) => {
    const command = [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])];
    const restart = { policy: RestartPolicy_Policy.ON_FAILURE };
    const world = await aWorld({
      ...all,
      restart,
      command,
      terminationGracePeriod: durationFromMs(20_000),
    });
    world.http = () => 500;
    await world.clock.advance(4_000);
    const id = idOf(world);
    await world.kill();
    if (ends) world.machine.exit(id, 0);
    world.http = () => 200;
    await world.start();
    await world.clock.advance(25_000);
    expect(world.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, restarts: 1 });
    expect(world.requireReport().lastEndReason).toContain(
      'liveness probe: HTTP 500 from /livez, 3 of 3 failed (',
    );
  });

  it('continue after a restart of the agent without a change of readiness', async () => {
    const world = await aWorld(all);
    await world.clock.advance(2_500);
    world.coordinator.reportHistory.length = 0;
    const before = world.probeRequests.length;
    await world.restart();
    await world.clock.advance(10_000);
    expect(readiness(world).every((ready) => ready)).toBe(true);
    expect(world.probeRequests.length).toBeGreaterThan(before + 10);
    world.http = (path) => (path === '/ready' ? 503 : 200);
    await world.restart();
    await world.clock.advance(1_900);
    expect(world.summarizeReport()?.ready).toBe(true); // two failed checks at most
    await world.clock.advance(2_000);
    expect(world.summarizeReport()).toMatchObject({
      ready: false,
      reason: 'readiness probe: HTTP 503 from /ready, 3 of 3 failed',
    });
  });

  it('count the initial delay from the start of the container, also in the next agent', async () => {
    const world = await aWorld({
      livenessProbe: http('/livez', { initialDelay: durationFromMs(20_000) }),
    });
    await world.clock.advance(10_000);
    await world.restart();
    await world.clock.advance(9_900);
    expect(world.probeRequests).toEqual([]);
    await world.clock.advance(1_200);
    expect(world.probeRequests).not.toEqual([]);
  });

  it('are made again for an orphan once its order is repeated', async () => {
    const world = await aWorld(all);
    await world.clock.advance(2_000);
    await world.kill();
    world.store.replicas.clear();
    await world.start();
    const before = world.probeRequests.length;
    world.coordinator.sendOrder(aStartOrder({ spec: { ports, ...all } }));
    await world.clock.advance(2_500);
    expect(world.probeRequests.length).toBeGreaterThan(before);
    expect(world.summarizeReport()).toMatchObject({ ready: true });
  });

  it('spread their first checks', async () => {
    const world = new AgentTestBed();
    await world.start();
    const spec = { ports, livenessProbe: http('/livez', { period: durationFromMs(10_000) }) };
    for (let index = 0; index < 100; index += 1)
      world.coordinator.sendOrder(aStartOrder({ replicaId: `web-${index}`, spec }));
    await world.clock.advance(10_000);
    expect(world.probeRequests.length).toBeGreaterThanOrEqual(100);
    const perSecond = Array.from(
      { length: 10 },
      (_, second) =>
        world.probeRequests.filter(({ atMs }) => Math.floor(atMs / 1_000) === second).length,
    );
    expect(Math.max(...perSecond)).toBeLessThan(25);
  });
});
