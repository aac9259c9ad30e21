import {
  Condition_Type as ConditionType,
  type Condition,
  RestartPolicy_Policy as RestartMode,
  type Usage,
} from '@cloudless/api';
import { CloudlessError, silentLog, toContainerId, type ContainerId } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { HEALTHY, type ContainerKind, type RuntimeHealth } from '@cloudless/runtime';
import { createFakeRuntime, type FakeRuntime } from '@cloudless/runtime/testing';
import { AgentTestBed } from '../testing/agent-test-bed.js';
import type { ReplicaRunner } from '../replica/replica-runner.js';
import { aStartOrder } from '../testing/builders.js';
import { RuntimeHealthMonitor } from './runtime-health-monitor.js';

const IMAGE = 'nginx:alpine';

/** A node whose container runtime can become unavailable: then starts and stops fail. */
class Node {
  readonly testBed = new AgentTestBed();
  private unavailableSinceMs: number | undefined;
  private withoutProcess: readonly ContainerId[] = [];
  /** Health of the supervisor of processes. */
  processHealth: Pick<RuntimeHealth, 'processesSilentMs' | 'supervisorPid'> = HEALTHY;

  async start(): Promise<void> {
    const { testBed } = this;
    testBed.runtime = this.withOutages(
      createFakeRuntime({
        clock: testBed.clock,
        capabilities: ['runtime.process', 'runtime.cri', 'exec.tty'],
      }),
    );
    testBed.machine.images.set(IMAGE);
    await testBed.start();
  }

  makeUnavailable(): void {
    this.unavailableSinceMs = this.testBed.clock.now();
  }

  makeAvailable(): void {
    this.unavailableSinceMs = undefined;
  }

  /** Ends the main process of the replica's container without a report of the runtime. */
  killProcess(replicaId: string): void {
    this.withoutProcess = [this.testBed.requireReport(replicaId).containerId as ContainerId];
  }

  async startReplica(
    replicaId: string,
    spec: NonNullable<Parameters<typeof aStartOrder>[0]>['spec'] = {},
  ): Promise<void> {
    this.testBed.coordinator.sendOrder(aStartOrder({ replicaId, spec: { image: IMAGE, ...spec } }));
    await settle();
  }

  /** The condition in the newest usage report. */
  condition(): boolean | undefined {
    return this.findCondition(ConditionType.CONTAINER_RUNTIME_UNAVAILABLE)?.status;
  }

  /** A condition in the newest usage report. */
  findCondition(searched: ConditionType): Condition | undefined {
    return this.usages()
      .at(-1)
      ?.conditions.find(({ type }) => type === searched);
  }

  usages(): readonly Usage[] {
    return this.testBed.coordinator.received.flatMap((message) =>
      message.case === 'usage' ? [message.value] : [],
    );
  }

  private withOutages(runtime: FakeRuntime): FakeRuntime {
    const throwWhenUnavailable = (): void => {
      if (this.unavailableSinceMs !== undefined)
        throw new CloudlessError('unavailable', 'no runtime answers');
    };
    const { start, stop } = runtime;
    return Object.assign(runtime, {
      start: async (...args: Parameters<typeof start>) => {
        throwWhenUnavailable();
        return start.apply(runtime, args);
      },
      stop: async (...args: Parameters<typeof stop>) => {
        throwWhenUnavailable();
        return stop.apply(runtime, args);
      },
      health: () => ({
        ...this.processHealth,
        containersSilentMs:
          this.unavailableSinceMs === undefined
            ? 0
            : this.testBed.clock.now() - this.unavailableSinceMs,
        withoutProcess: this.withoutProcess,
      }),
    });
  }
}

describe('Agent whose container runtime does not answer', () => {
  let node: Node;
  beforeEach(async () => {
    node = new Node();
    await node.start();
  });
  afterEach(() => node.testBed.stop());

  it('reports the node condition after 5 s, and clears the condition when the runtime answers', async () => {
    await node.testBed.clock.advance(10_000);
    expect(node.condition()).toBe(false);
    node.makeUnavailable();
    await node.testBed.clock.advance(6_000);
    expect(node.condition()).toBe(true);
    node.makeAvailable();
    await node.testBed.clock.advance(1_000);
    expect(node.condition()).toBe(false);
  });

  it('reports no condition for a restart of the runtime within 5 s', async () => {
    node.makeUnavailable();
    await node.testBed.clock.advance(4_000);
    node.makeAvailable();
    await node.testBed.clock.advance(10_000);
    expect(
      node
        .usages()
        .flatMap(({ conditions }) => conditions)
        .filter(({ status }) => status),
    ).toEqual([]);
  });

  it('gives up a start after 10 s, and leaves no container when the runtime answers again', async () => {
    node.makeUnavailable();
    await node.startReplica('web-1');
    await node.testBed.clock.advance(9_000);
    expect(node.testBed.summarizeReport()).toMatchObject({ phase: 'STARTING' });
    await node.testBed.clock.advance(2_000);
    expect(node.testBed.summarizeReport()).toMatchObject({
      phase: 'STOPPED',
      reason: expect.stringContaining('does not answer'),
    });
    node.makeAvailable();
    await node.testBed.clock.advance(60_000);
    expect(await node.testBed.runtime.list()).toEqual([]);
  });

  it('keeps running containers ready and does not restart them', async () => {
    await node.startReplica('web-1');
    node.makeUnavailable();
    await node.testBed.clock.advance(60_000);
    node.makeAvailable();
    await node.testBed.clock.advance(10_000);
    expect(node.testBed.summarizeReport()).toMatchObject({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
    });
    expect(node.testBed.machine.startCount).toBe(1);
  });

  it('does not give up a start under restart policy NEVER, as the container may have run', async () => {
    node.makeUnavailable();
    await node.startReplica('job-1', { restart: { policy: RestartMode.NEVER } });
    await node.testBed.clock.advance(60_000);
    expect(node.testBed.summarizeReport('job-1')).toMatchObject({ phase: 'STARTING' });
    node.makeAvailable();
    await node.testBed.clock.advance(1_000);
    expect(node.testBed.summarizeReport('job-1')).toMatchObject({ phase: 'RUNNING' });
  });

  it('marks a container without its main process as not ready', async () => {
    await node.startReplica('web-1');
    node.makeUnavailable();
    node.killProcess('web-1');
    await node.testBed.clock.advance(2_000);
    expect(node.testBed.summarizeReport()).toMatchObject({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason:
        'the main process no longer exists, and the container runtime has not reported its exit',
    });
  });
});

describe('Agent whose supervisor of processes does not answer', () => {
  const { PROCESS_RUNTIME_UNAVAILABLE } = ConditionType;
  let node: Node;
  beforeEach(async () => {
    node = new Node();
    await node.start();
  });
  afterEach(() => node.testBed.stop());

  it('reports a condition that says what to do, until the supervisor answers', async () => {
    const report = async (processesSilentMs: number, supervisorPid?: number) => {
      node.processHealth = {
        processesSilentMs,
        ...(supervisorPid === undefined ? {} : { supervisorPid }),
      };
      await node.testBed.clock.advance(15_000);
      const { status, reason } = node.findCondition(PROCESS_RUNTIME_UNAVAILABLE) ?? {};
      return [status, reason];
    };
    const silent = 'has not answered for 5 s: no new process is placed on this node until it does';
    expect(await report(4_000, 17)).toEqual([false, '']);
    expect(await report(5_000, 17)).toEqual([
      true,
      `the supervisor of the processes (process 17) ${silent}; if the supervisor stays silent, run kill -9 17 on the machine: the agent starts another supervisor, and the processes keep running`,
    ]);
    expect(await report(6_000)).toEqual([
      true,
      `the supervisor of the processes ${silent}; if the supervisor stays silent, read supervisor.log in the directory runtime of the agent's data directory`,
    ]);
    expect(await report(0, 18)).toEqual([false, '']);
    expect(node.condition()).toBe(false);
  });

  it('gives up the start of a process after 10 s, and of no container', async () => {
    node.makeUnavailable(); // starts fail
    await node.startReplica('task-1', { image: '', command: ['server'] });
    await node.startReplica('web-1');
    node.processHealth = { processesSilentMs: 9_000 };
    await node.testBed.clock.advance(2_000);
    expect(node.testBed.summarizeReport('task-1')).toMatchObject({ phase: 'STARTING' });
    node.processHealth = { processesSilentMs: 10_000 };
    await node.testBed.clock.advance(2_000);
    expect(node.testBed.summarizeReport('task-1')).toMatchObject({
      phase: 'STOPPED',
      reason: 'not started: the supervisor of processes does not answer',
    });
    expect(node.testBed.summarizeReport('web-1')).toMatchObject({ phase: 'STARTING' });
  });
});

describe('RuntimeHealthMonitor', () => {
  it.each<{
    name: string;
    silentMs: (nowMs: number) => number;
    lists: number;
    waitMs: number;
    isSilent: boolean;
  }>([
    { name: 'that answers', silentMs: () => 0, lists: 1, waitMs: 0, isSilent: false },
    {
      name: 'that answers slowly',
      silentMs: (now) => (now < 1_000 ? 900 : 0),
      lists: 1,
      waitMs: 1_000,
      isSilent: false,
    },
    {
      name: 'that refuses calls',
      silentMs: (now) => 1 + now,
      lists: 1,
      waitMs: 5_000,
      isSilent: true,
    },
    { name: 'that is silent', silentMs: () => 5_000, lists: 0, waitMs: 0, isSilent: true },
    {
      name: 'that has just become silent',
      silentMs: (now) => 1_000 + now,
      lists: 1,
      waitMs: 4_000,
      isSilent: true,
    },
    {
      name: 'that answers again',
      silentMs: (now) => (now < 2_000 ? 2_000 : 0),
      lists: 1,
      waitMs: 2_000,
      isSilent: false,
    },
    {
      name: 'that is not measured',
      silentMs: () => 3_000,
      lists: 1,
      waitMs: 5_000,
      isSilent: false,
    },
  ])('finds within $waitMs ms whether a runtime $name is silent', async (row) => {
    const find = async (kind: ContainerKind) => {
      const clock = new ManualClock();
      let lists = 0;
      const monitor = new RuntimeHealthMonitor({
        runtime: {
          health: () => ({
            ...HEALTHY,
            [kind === 'process' ? 'processesSilentMs' : 'containersSilentMs']: row.silentMs(
              clock.now(),
            ),
          }),
          list: async () => {
            lists += 1;
            throw new CloudlessError('unavailable', 'no reply within 10 s');
          },
        },
        replicas: { listRunners: () => [], pauseStarts: () => undefined },
        clock,
        log: silentLog,
      });
      const finding = monitor.findSilentKinds().then((kinds) => ({ kinds, waitMs: clock.now() }));
      await clock.advance(60_000);
      return { ...(await finding), lists };
    };
    const { waitMs, lists, isSilent } = row;
    const kindsIf = (kind: ContainerKind) => (isSilent ? [kind] : []);
    expect(await find('process')).toEqual({ kinds: kindsIf('process'), waitMs, lists });
    expect(await find('container')).toEqual({ kinds: kindsIf('container'), waitMs, lists: 1 });
  });

  it('marks a container as without process only after two reads in a row without its process', () => {
    const marked: (readonly string[])[] = [];
    const runner = {
      markProcessGone: (containerIds: ReadonlySet<string>) => marked.push([...containerIds]),
    } as unknown as ReplicaRunner;
    let withoutProcess: readonly ContainerId[] = [];
    const monitor = new RuntimeHealthMonitor({
      runtime: { health: () => ({ ...HEALTHY, withoutProcess }), list: async () => [] },
      replicas: { listRunners: () => [runner], pauseStarts: () => undefined },
      clock: new ManualClock(),
      log: silentLog,
    });
    const containerId = toContainerId('a'.repeat(64));
    withoutProcess = [containerId];
    monitor.refresh();
    withoutProcess = []; // the runtime has reported the exit, or the process was only starting
    monitor.refresh();
    withoutProcess = [containerId];
    monitor.refresh();
    expect(marked).toEqual([]);
    monitor.refresh();
    expect(marked).toEqual([[containerId]]);
  });
});
