import { Condition_Type, RestartPolicy_Policy as RestartMode } from '@cloudless/api';
import {
  CloudlessError,
  createSeededRandom,
  silentLog,
  sleep,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import {
  combineRuntimes,
  HEALTHY,
  LazyRuntime,
  type AvailableContainers,
  type ContainerRuntime,
  type RuntimeHealth,
} from '@cloudless/runtime';
import { createFakeRuntime, type FakeRuntime } from '@cloudless/runtime/testing';
import { UNAVAILABLE_AFTER_MS } from '../node/runtime-health-monitor.js';
import { AgentTestBed } from '../testing/agent-test-bed.js';
import { aForgetOrder, aStartOrder, aStopOrder } from '../testing/builders.js';

const PROCESS = 'job-1';
const CONTAINER = 'web-1';
const REASON = 'waiting for the container runtime of the node, which does not answer';
const http = { ports: [{ name: 'http', containerPort: 80 }] };

/** A node with a process runtime and a container runtime that can be unavailable at a start. */
class Node {
  readonly testBed = new AgentTestBed();
  isUnavailable = false;
  /** Capabilities that the container runtime last had; empty: not known. */
  recordedCapabilities: readonly string[] = ['runtime.cri', 'disconnect.exclusive'];
  /** Called before each stop of a process. */
  onStop: () => void = () => undefined;
  /** True: the supervisor of processes has not answered since the start of the agent. */
  isSupervisorSilent = false;
  /** Time since which the connected supervisor has been hanging; undefined: it answers. */
  private hangsSinceMs: number | undefined;
  /** Time since which the container runtime has refused its calls; undefined: it accepts them. */
  private refusesSinceMs: number | undefined;
  private isClosed = false;
  private processes: FakeRuntime;
  private containers: FakeRuntime;

  constructor() {
    const { clock } = this.testBed;
    this.processes = createFakeRuntime({
      clock,
      capabilities: ['runtime.process', 'disconnect.exclusive', 'exec.tty'],
    });
    this.containers = createFakeRuntime({
      clock,
      capabilities: this.recordedCapabilities,
    });
  }

  async start(): Promise<void> {
    const { testBed } = this;
    const lazy = new LazyRuntime({
      name: 'cri',
      version: 'a container runtime',
      // As the agent opens a runtime that it has used before.
      capabilities: this.recordedCapabilities,
      leastSilentMs: this.isUnavailable ? UNAVAILABLE_AFTER_MS : 0,
      clock: testBed.clock,
      open: async () => {
        if (this.isUnavailable)
          throw new CloudlessError('unavailable', 'no container runtime answers');
        return this.withRefusals(this.containers);
      },
    });
    const combined = combineRuntimes({
      processes: this.withSilence(this.processes),
      containers: lazy,
      clock: testBed.clock,
      random: createSeededRandom(2),
      log: silentLog,
    });
    testBed.onClusterKnown = async (clusterId) =>
      void lazy.setOwner(clusterId).catch(() => undefined);
    testBed.runtime = Object.assign(combined, {
      machine: this.containers.machine,
      reopen: async () => testBed.runtime,
    });
    await testBed.start();
  }

  /** Returns a process runtime that behaves as one whose supervisor is silent at the start. */
  private withSilence(processes: FakeRuntime): ContainerRuntime {
    const { clock } = this.testBed;
    const openedAt = clock.now();
    const list = processes.list.bind(processes);
    const stop = processes.stop.bind(processes);
    const requireAnswer = async (limitMs: number): Promise<void> => {
      if (this.hangsSinceMs !== undefined) await sleep(clock, limitMs);
      if (this.isSupervisorSilent || this.hangsSinceMs !== undefined)
        throw new CloudlessError('unavailable', 'the supervisor does not answer');
    };
    return Object.assign(processes, {
      list: async () => {
        await requireAnswer(10_000);
        return list();
      },
      stop: async (containerId: ContainerId, graceMs: number) => {
        this.onStop();
        await requireAnswer(10_000 + graceMs);
        return stop(containerId, graceMs);
      },
      listAvailable: async (): Promise<AvailableContainers> =>
        this.isSupervisorSilent
          ? { containers: [], missing: ['process'] }
          : { containers: await list(), missing: [] },
      health: (): RuntimeHealth => {
        if (this.hangsSinceMs !== undefined) {
          const turns = Math.floor((clock.now() - this.hangsSinceMs) / 1_000);
          return { ...HEALTHY, processesSilentMs: turns * 1_000, supervisorPid: 17 };
        }
        if (!this.isSupervisorSilent) return HEALTHY;
        return { ...HEALTHY, processesSilentMs: 5_000 + clock.now() - openedAt, supervisorPid: 17 };
      },
    });
  }

  /** Returns a container runtime that refuses its calls at once from {@link refuse} on. */
  private withRefusals(containers: FakeRuntime): ContainerRuntime {
    const { clock } = this.testBed;
    const list = containers.list.bind(containers);
    const stop = containers.stop.bind(containers);
    const requireRuntime = (): void => {
      if (this.refusesSinceMs !== undefined)
        throw new CloudlessError('unavailable', 'connection refused');
    };
    return Object.assign(containers, {
      list: async () => {
        requireRuntime();
        return list();
      },
      stop: async (containerId: ContainerId, graceMs: number) => {
        requireRuntime();
        return stop(containerId, graceMs);
      },
      health: (): RuntimeHealth => ({
        ...HEALTHY,
        containersSilentMs: clock.now() - (this.refusesSinceMs ?? clock.now()),
      }),
    });
  }

  /**
   * Kills the agent and starts another agent, while the container runtime does not answer.
   * @param whileStopped - Called while no agent runs.
   */
  async restartWithoutContainers(whileStopped: () => void = () => undefined): Promise<void> {
    this.isUnavailable = true;
    await this.restart(whileStopped);
  }

  /** Kills the agent and starts another agent, while the supervisor of processes is silent. */
  async restartWithoutProcesses(): Promise<void> {
    this.isSupervisorSilent = true;
    await this.restart();
  }

  private async restart(whileStopped: () => void = () => undefined): Promise<void> {
    await this.testBed.kill();
    await this.testBed.runtime.close();
    this.processes = await this.processes.reopen();
    this.containers = await this.containers.reopen();
    whileStopped();
    await this.start();
    await this.testBed.clock.advance(2_000); // the wait for the container runtime's list
    await settle();
  }

  /** Lets the supervisor hang from now on, with its connection open. */
  hang(): void {
    this.hangsSinceMs = this.testBed.clock.now();
  }

  /** Lets the container runtime refuse all calls from now on, as containerd that was stopped. */
  refuse(): void {
    this.refusesSinceMs = this.testBed.clock.now();
  }

  /** Ends a hang, as `kill -9` does: another supervisor answers. */
  replaceSupervisor(): void {
    this.hangsSinceMs = undefined;
  }

  /** Lets the runtimes answer and the agent list their containers. */
  async makeAvailable(): Promise<void> {
    this.isUnavailable = false;
    this.isSupervisorSilent = false;
    await this.testBed.clock.advance(10_000);
    await settle();
  }

  /** Runs a process and a container, both ready. */
  async run(spec: NonNullable<Parameters<typeof aStartOrder>[0]>['spec'] = {}): Promise<void> {
    await this.start();
    const { coordinator, clock } = this.testBed;
    coordinator.sendOrder(aStartOrder({ replicaId: PROCESS }));
    coordinator.sendOrder(
      aStartOrder({ replicaId: CONTAINER, spec: { image: 'nginx', ...http, ...spec } }),
    );
    await clock.advance(100);
    expect(this.testBed.summarizeReport(CONTAINER)).toMatchObject({ ready: true });
  }

  /** Stops the agent and closes its runtimes. */
  async close(options: Parameters<AgentTestBed['stop']>[0] = {}): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    try {
      await this.testBed.stop(options);
    } finally {
      await this.testBed.runtime.close();
      await this.testBed.clock.advance(0);
    }
  }

  get containerId(): ContainerId {
    const [status] = this.containers.machine.statuses();
    if (status === undefined) throw new Error('no container');
    return status.containerId;
  }

  get containerPhases(): readonly string[] {
    return this.containers.machine.statuses().map(({ phase }) => phase);
  }

  get processPhases(): readonly string[] {
    return this.processes.machine.statuses().map(({ phase }) => phase);
  }

  exitContainer(exitCode: number): void {
    this.containers.machine.exit(this.containerId, exitCode);
  }
}

describe('Agent whose container runtime does not answer at its start', () => {
  let node: Node;
  beforeEach(() => {
    node = new Node();
  });
  afterEach(() => node.close());

  it('controls processes at once and reports replicas with an image as not ready', async () => {
    await node.run();
    await node.restartWithoutContainers();
    const { testBed } = node;
    expect(testBed.agent.connected).toBe(true);
    expect(testBed.summarizeReport(PROCESS)).toMatchObject({ phase: 'RUNNING', ready: true });
    expect(testBed.summarizeReport(CONTAINER)).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: REASON,
    });
    expect(testBed.requireReport(CONTAINER)).toMatchObject({ orderRevision: 10n, endpoints: [] });
    testBed.coordinator.sendOrder(aStartOrder({ replicaId: 'job-2' }));
    await settle();
    expect(testBed.summarizeReport('job-2')).toMatchObject({ phase: 'RUNNING', ready: true });
  });

  it('adopts running containers without a restart once the runtime answers', async () => {
    await node.run();
    const before = node.containerId;
    await node.restartWithoutContainers();
    await node.makeAvailable();
    expect(node.testBed.summarizeReport(CONTAINER)).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
    expect(node.testBed.requireReport(CONTAINER).containerId).toBe(before);
    expect(node.containerPhases).toEqual(['running']);
  });

  it('handles an exit that happened before the runtime answered', async () => {
    await node.run({ restart: { policy: RestartMode.NEVER } });
    await node.restartWithoutContainers(() => node.exitContainer(3));
    expect(node.testBed.summarizeReport(CONTAINER)).toMatchObject({ phase: 'RUNNING' });
    await node.makeAvailable();
    expect(node.testBed.requireReport(CONTAINER)).toMatchObject({ lastExitCode: 3 });
    expect(node.testBed.summarizeReport(CONTAINER)).toMatchObject({ phase: 'FAILED' });
  });

  it('keeps its capabilities and says in its first Hello that the runtime is unavailable', async () => {
    await node.run();
    const { hellos } = node.testBed.coordinator;
    const before = hellos.at(-1)?.capabilities;
    expect(before).toContain('runtime.cri');
    const count = hellos.length;
    await node.restartWithoutContainers();
    const first = hellos[count];
    expect(first?.capabilities).toEqual(before);
    const unavailable = { type: Condition_Type.CONTAINER_RUNTIME_UNAVAILABLE, status: true };
    expect(first?.conditions).toContainEqual(expect.objectContaining(unavailable));
    await node.makeAvailable();
    expect(hellos).toHaveLength(count + 1); // nothing changes once the runtime answers
  });

  it('reports the capabilities of the runtime once the runtime answers, when none are recorded', async () => {
    await node.run();
    node.recordedCapabilities = [];
    await node.restartWithoutContainers();
    const { hellos } = node.testBed.coordinator;
    expect(hellos.at(-1)?.capabilities).not.toContain('runtime.cri');
    await node.makeAvailable();
    expect(hellos.at(-1)?.capabilities).toContain('runtime.cri');
  });

  it('accepts a stop order and carries it out once the runtime answers', async () => {
    await node.run();
    await node.restartWithoutContainers();
    const { testBed } = node;
    testBed.coordinator.sendOrder(aStopOrder({ replicaId: CONTAINER, preStopMs: 0 }));
    await settle();
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ phase: 'STOPPING' });
    expect(testBed.requireReport(CONTAINER).orderRevision).toBe(20n);
    expect(node.containerPhases).toEqual(['running']);
    await node.makeAvailable();
    await testBed.clock.advance(60_000);
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ phase: 'STOPPED' });
    expect(node.containerPhases).toEqual(['exited']);
  });

  it('accepts a forget order and carries it out once the runtime answers', async () => {
    await node.run();
    await node.restartWithoutContainers();
    const { testBed } = node;
    testBed.coordinator.sendOrder(aForgetOrder({ replicaId: CONTAINER }));
    await testBed.clock.advance(1_000);
    expect(testBed.requireReport(CONTAINER).forgotten).toBe(false);
    await node.makeAvailable();
    await testBed.clock.advance(60_000);
    expect(node.containerPhases).toEqual([]);
    expect([...testBed.store.replicas.keys()]).toEqual([PROCESS]);
  });

  it('forgets a process while the container runtime does not answer', async () => {
    await node.run();
    await node.restartWithoutContainers();
    const { testBed } = node;
    testBed.coordinator.sendOrder(aForgetOrder({ replicaId: PROCESS }));
    await testBed.clock.advance(60_000);
    expect(testBed.requireReport(PROCESS).forgotten).toBe(true);
  });

  it('keeps unlisted replicas over a second restart of the agent', async () => {
    await node.run();
    const before = node.containerId;
    await node.restartWithoutContainers();
    await node.restartWithoutContainers();
    expect(node.testBed.summarizeReport(CONTAINER)).toMatchObject({ reason: REASON });
    await node.makeAvailable();
    expect(node.testBed.summarizeReport(CONTAINER)).toMatchObject({ ready: true, restarts: 0 });
    expect(node.testBed.requireReport(CONTAINER).containerId).toBe(before);
  });

  it('waits for the coordinator to repeat the order after a reboot of the machine', async () => {
    await node.run();
    await node.restartWithoutContainers(() => {
      node.exitContainer(-1);
      node.testBed.bootId = 'boot-2';
    });
    const { testBed } = node;
    expect(testBed.requireReport(CONTAINER).orderRevision).toBe(0n);
    testBed.coordinator.sendOrder(
      aStartOrder({ replicaId: CONTAINER, spec: { image: 'nginx', ...http } }),
    );
    await settle();
    expect(testBed.requireReport(CONTAINER).orderRevision).toBe(10n);
    await node.makeAvailable();
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ phase: 'RUNNING', ready: true });
  });

  it('acknowledges an order that makes an unlisted replica exclusive only once the runtime answers', async () => {
    await node.run();
    await node.restartWithoutContainers();
    const { testBed } = node;
    const order = aStartOrder({
      replicaId: CONTAINER,
      revision: 11n,
      stopAfterMs: 5_000,
      spec: { image: 'nginx', ...http },
    });
    testBed.coordinator.sendOrder(order);
    await settle();
    expect(testBed.requireReport(CONTAINER).orderRevision).toBe(10n);
    await node.makeAvailable();
    testBed.coordinator.sendOrder(order);
    await settle();
    expect(testBed.requireReport(CONTAINER).orderRevision).toBe(11n);
  });

  it('lists the processes only, and leaves no timer when it stops before the runtime answers', async () => {
    await node.run();
    await node.restartWithoutContainers();
    const { testBed } = node;
    const { containers } = await testBed.agent.containers.listContainers();
    expect(containers.map(({ replicaId }) => replicaId)).toEqual([PROCESS]);
    await node.close();
    expect(testBed.clock.pendingTimers).toBe(0);
  });
});

describe('Agent whose supervisor of processes does not answer at its start', () => {
  const PROCESS_REASON =
    'waiting for the supervisor of processes of the node, which does not answer';
  const PROCESSES_RUN_ON =
    'the processes of this node were not stopped and run on, because the supervisor of the processes (process 17) does not answer: run kill -9 17 on the machine, then start the agent and stop it again';
  const CONTAINERS_RUN_ON =
    'the containers of this node were not stopped and run on, because the container runtime does not answer: start the container runtime, then start the agent and stop it again';
  let node: Node;
  beforeEach(async () => {
    node = new Node();
    await node.run();
  });
  afterEach(() => node.close());

  it('controls containers at once, and reports processes as not ready and the node condition', async () => {
    await node.restartWithoutProcesses();
    const { testBed } = node;
    expect(testBed.agent.connected).toBe(true);
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ phase: 'RUNNING', ready: true });
    expect(testBed.summarizeReport(PROCESS)).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason: PROCESS_REASON,
    });
    expect(testBed.coordinator.hellos.at(-1)?.capabilities).toContain('runtime.process');
    const usages = testBed.coordinator.received.flatMap((message) =>
      message.case === 'usage' ? [message.value] : [],
    );
    const conditions = usages.at(-1)?.conditions ?? [];
    expect(
      conditions.find(({ type }) => type === Condition_Type.PROCESS_RUNTIME_UNAVAILABLE),
    ).toMatchObject({ status: true, reason: expect.stringContaining('run kill -9 17') });
  });

  it('adopts running processes without a restart once the supervisor answers', async () => {
    const before = node.testBed.requireReport(PROCESS).containerId;
    await node.restartWithoutProcesses();
    await node.testBed.clock.advance(60_000); // starts are given up after 10 s
    await node.makeAvailable();
    expect(node.testBed.summarizeReport(PROCESS)).toEqual({
      phase: 'RUNNING',
      ready: true,
      restarts: 0,
      reason: '',
    });
    expect(node.testBed.requireReport(PROCESS).containerId).toBe(before);
  });

  it('carries out a forget order only once the supervisor answers', async () => {
    await node.restartWithoutProcesses();
    const { testBed } = node;
    testBed.coordinator.sendOrder(aForgetOrder({ replicaId: PROCESS }));
    await testBed.clock.advance(1_000);
    expect(testBed.requireReport(PROCESS).forgotten).toBe(false);
    await node.makeAvailable();
    await testBed.clock.advance(60_000);
    expect([...testBed.store.replicas.keys()]).toEqual([CONTAINER]);
  });

  it.each([
    { replicaId: PROCESS, text: 'the supervisor of processes does not answer', spec: {} },
    {
      replicaId: CONTAINER,
      text: 'the container runtime does not answer',
      spec: { image: 'nginx', ...http },
    },
  ])('names the runtime of $replicaId when an order waits for both runtimes', async (row) => {
    const { replicaId, text, spec } = row;
    const { testBed } = node;
    const failures: string[] = [];
    const record: Log['warn'] = (message, fields) =>
      void failures.push(`${message}: ${Object.values(fields ?? {}).join(' ')}`);
    const log: Log = { ...silentLog, warn: record, error: record, child: () => log };
    testBed.log = log;
    node.isUnavailable = true;
    await node.restartWithoutProcesses();
    testBed.coordinator.sendOrder(
      aStartOrder({ replicaId, revision: 11n, stopAfterMs: 5_000, spec }),
    );
    await settle();
    expect(failures.at(-1)).toMatch(/^order not stored: /);
    expect(failures.at(-1)).toContain(text);
  });

  it('keeps a replica whose kind a later list does not contain, and restarts one that is gone', async () => {
    const { testBed } = node;
    const { replicas } = testBed.agent;
    const expected = replicas.listExpectedContainers();
    expect([...expected.keys()]).toEqual([PROCESS, CONTAINER]);
    replicas.applyContainerList(expected, { containers: [], missing: ['container'] });
    await testBed.clock.advance(1_000);
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ ready: true, restarts: 0 });
    expect(testBed.summarizeReport(PROCESS)).toMatchObject({ restarts: 1 });
  });

  it('adopts the processes by a list without containers, and starts no container twice', async () => {
    node.isUnavailable = true;
    await node.restartWithoutProcesses();
    node.isUnavailable = false;
    const { testBed } = node;
    await testBed.clock.advance(10_000);
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ ready: true });
    const listAvailable = testBed.runtime.listAvailable?.bind(testBed.runtime);
    testBed.runtime.listAvailable = async () => {
      const { containers } = (await listAvailable?.()) ?? { containers: [] };
      const processes = containers.filter(({ containerId }) => containerId !== node.containerId);
      return { containers: processes, missing: ['container'] };
    };
    await node.makeAvailable();
    expect(testBed.summarizeReport(PROCESS)).toMatchObject({ ready: true, restarts: 0 });
    expect(testBed.summarizeReport(CONTAINER)).toMatchObject({ ready: true, restarts: 0 });
    expect(node.containerPhases).toEqual(['running']);
  });

  it.each([
    { name: 'the supervisor', isUnavailable: false, problems: [PROCESSES_RUN_ON] },
    {
      name: 'neither runtime',
      isUnavailable: true,
      problems: [PROCESSES_RUN_ON, CONTAINERS_RUN_ON],
    },
  ])('says that replicas continue when $name answers a stop with workloads', async (row) => {
    node.isUnavailable = row.isUnavailable;
    await node.restartWithoutProcesses();
    await expect(node.close({ stopWorkloads: true })).rejects.toMatchObject({
      kind: 'unavailable',
      message: row.problems.join('; '),
    });
    const { received } = node.testBed.coordinator;
    expect(received.findLast(({ case: kind }) => kind === 'goodbye')?.value).toMatchObject({
      replicasContinue: true,
      reason: 'the agent stops its workloads, except those whose runtime does not answer',
    });
    expect(node.containerPhases).toEqual([row.isUnavailable ? 'running' : 'exited']);
  });

  it('counts a stop as incomplete whose list does not contain the processes', async () => {
    await node.restartWithoutProcesses();
    const { replicas } = node.testBed.agent;
    expect(await replicas.stopAll()).toBe(false);
    expect(await replicas.stopAll(['process'])).toBe(true);
  });

  it('stops the containers without the processes when the supervisor is silent at the stop', async () => {
    const { testBed } = node;
    node.isSupervisorSilent = true;
    await testBed.clock.advance(1_000);
    await expect(node.close({ stopWorkloads: true })).rejects.toThrow(PROCESSES_RUN_ON);
    expect(node.containerPhases).toEqual(['exited']);
  });

  const readGoodbye = (): unknown =>
    node.testBed.coordinator.received.findLast(({ case: kind }) => kind === 'goodbye')?.value;

  it.each([
    { silentMs: 0, name: 'at that moment' },
    { silentMs: 900, name: '0.9 s before' },
    { silentMs: 4_900, name: '4.9 s before' },
  ])('says that replicas continue when the supervisor hangs $name', async ({ silentMs }) => {
    node.hang();
    await node.testBed.clock.advance(silentMs);
    await expect(node.close({ stopWorkloads: true })).rejects.toThrow(PROCESSES_RUN_ON);
    expect(readGoodbye()).toMatchObject({ replicasContinue: true });
    expect(node.processPhases).toEqual(['running']);
    expect(node.containerPhases).toEqual(['exited']);
  });

  it.each([
    { silentMs: 1, name: '1 ms before' },
    { silentMs: 900, name: '0.9 s before' },
    { silentMs: 4_900, name: '4.9 s before' },
  ])('says that replicas continue when the container runtime ends $name', async ({ silentMs }) => {
    node.refuse();
    await node.testBed.clock.advance(silentMs);
    await expect(node.close({ stopWorkloads: true })).rejects.toThrow(CONTAINERS_RUN_ON);
    expect(readGoodbye()).toMatchObject({ replicasContinue: true });
    expect(node.containerPhases).toEqual(['running']);
  });

  it('says what runs on when the supervisor hangs while it stops the processes', async () => {
    node.onStop = () => node.hang();
    await expect(node.close({ stopWorkloads: true })).rejects.toMatchObject({
      kind: 'unavailable',
      message: PROCESSES_RUN_ON,
    });
    expect(readGoodbye()).toMatchObject({ replicasContinue: false });
    expect(node.processPhases).toEqual(['running']);
    expect(node.containerPhases).toEqual(['exited']);
  });

  it('asks no silent supervisor for its processes when the node has nothing else', async () => {
    const { clock, coordinator, runtime } = node.testBed;
    coordinator.sendOrder(aForgetOrder({ replicaId: CONTAINER }));
    await clock.advance(1_000);
    node.hang();
    await clock.advance(6_000);
    let lists = 0;
    runtime.listAvailable = async () => {
      lists += 1;
      throw new CloudlessError('unavailable', 'no reply within 10 s');
    };
    await expect(node.close({ stopWorkloads: true })).rejects.toThrow(PROCESSES_RUN_ON);
    expect(lists).toBe(0);
  });

  it('says what runs on when the containers cannot be listed after the Goodbye', async () => {
    const { clock, agent, runtime } = node.testBed;
    const close = agent.replicas.close.bind(agent.replicas);
    agent.replicas.close = async () => {
      node.hang();
      runtime.listAvailable = async () => {
        await sleep(clock, 10_000);
        throw new CloudlessError('unavailable', 'no reply within 10 s');
      };
      await close();
    };
    await expect(node.close({ stopWorkloads: true })).rejects.toThrow(PROCESSES_RUN_ON);
  });

  it('leaves processes to the end of the runtimes when another supervisor answers after a hang', async () => {
    node.onStop = () => {
      node.hang();
      node.testBed.clock.setTimer(9_000, () => node.replaceSupervisor());
    };
    const isClosed = node.close({ stopWorkloads: true });
    await expect(isClosed).resolves.toBeUndefined();
  });

  it('stops the workloads within 1 s when the supervisor answers', async () => {
    const { clock } = node.testBed;
    const before = clock.now();
    let stoppedAt = Infinity;
    node.onStop = () => (stoppedAt = clock.now());
    await node.close({ stopWorkloads: true });
    expect(stoppedAt - before).toBeLessThan(1_000);
  });

  it('stops the processes of a supervisor that answers just before the stop', async () => {
    await node.restartWithoutProcesses();
    node.isSupervisorSilent = false; // no loop of the agent has noticed
    await node.close({ stopWorkloads: true });
    expect(node.processPhases).toEqual(['exited']);
  });

  it('reports no failure when the machine shuts down, which ends the processes', async () => {
    await node.restartWithoutProcesses();
    await node.close({ stopWorkloads: true, machineStops: true });
    const { received } = node.testBed.coordinator;
    expect(received.findLast(({ case: kind }) => kind === 'goodbye')?.value).toMatchObject({
      replicasContinue: false,
    });
  });

  it('restores the replicas of each runtime when that runtime answers', async () => {
    node.isUnavailable = true;
    await node.restartWithoutProcesses();
    const { testBed } = node;
    const reasons = (): readonly unknown[] =>
      [PROCESS, CONTAINER].map((replicaId) => testBed.summarizeReport(replicaId)?.reason);
    expect(reasons()).toEqual([PROCESS_REASON, REASON]);
    node.isUnavailable = false;
    await testBed.clock.advance(10_000);
    expect(reasons()).toEqual([PROCESS_REASON, '']);
    await node.makeAvailable();
    expect(reasons()).toEqual(['', '']);
  });
});
