import { readdirSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  ContainerStatus_State as State,
  createAgentClient,
  type AgentClient,
  type ContainerStatus,
} from '@cloudless/api';
import { RealCluster } from './support/cluster.js';
import { listProcessesMentioning } from './support/processes.js';

/**
 * A component that a test kills. Coordinator, agent and supervisor may be killed and restarted in
 * any order; running processes continue and are adopted.
 */
type Victim = 'agent' | 'supervisor' | 'coordinator';
const AGENT = 'agent-1';
const ZONE = 'zone-a';
/**
 * Prints increasing numbers. On SIGUSR2 writes more than one log file can hold; on SIGHUP exits
 * with code 7.
 */
const COUNTER = [
  'node',
  '-e',
  `let n = 0; const count = () => console.log(String(++n));
   setInterval(count, 10);
   process.on('SIGUSR2', () => { for (let line = 0; line < 60_000; line += 1) console.log(String(++n).padStart(100, '0')); });
   process.on('SIGHUP', () => process.exit(7));`,
];

let cluster: RealCluster;
beforeEach(async () => {
  // A node whose agent returns later than its lease is lost, and its replicas are replaced.
  cluster = await RealCluster.start([ZONE], undefined, { coordinatorFlags: ['--lease', '30s'] });
  await cluster.client.createWorkload({ name: 'count', spec: { command: COUNTER } });
  await cluster.waitUntilSettled('count');
  await waitUntilCounting(await requireContainer());
});
afterEach(() => cluster.stop());

/** Creates a client of the port of the agent, which also answers without a coordinator. */
async function createAgentPortClient(): Promise<AgentClient> {
  const { address } = await cluster
    .requireAgent(AGENT)
    .waitForLog('agent started, connecting to coordinators');
  return createAgentClient(createGrpcTransport({ baseUrl: `http://${String(address)}` }));
}

/** Repeats a call until it returns a value; also after `unavailable`, while components start. */
async function retry<Result>(call: () => Promise<Result | undefined>): Promise<Result> {
  for (;;) {
    try {
      const result = await call();
      if (result !== undefined) return result;
    } catch (reason) {
      if (ConnectError.from(reason).code !== Code.Unavailable) throw reason;
    }
  }
}

/** Waits for a running container on the agent and returns its status. */
function requireContainer(): Promise<ContainerStatus> {
  return retry(async () => {
    const { containers } = await (await createAgentPortClient()).listContainers({});
    return containers.find(({ state }) => state === State.RUNNING);
  });
}

/** Returns the only replica, once the node is ready and the workload is settled. */
async function requireReplica() {
  await cluster.waitUntilNodeReady(AGENT);
  return (await cluster.waitUntilSettled('count')).status!.replicas[0]!;
}

/** Lists the process ids of the supervisors of the agent. */
function listSupervisors(): readonly number[] {
  return listProcessesMentioning(`supervisor ${cluster.directory}/${AGENT}`).map((line) =>
    Number.parseInt(line, 10),
  );
}

/** Waits for a supervisor that was not killed and returns its process id. */
function waitForSupervisor(): Promise<number> {
  return retry(async () => {
    await (await createAgentPortClient()).listContainers({});
    return listSupervisors().find((pid) => !killedSupervisors.has(pid));
  });
}

/** Process ids of the supervisors that this test has killed. */
const killedSupervisors = new Set<number>();

async function kill(victim: Victim): Promise<void> {
  if (victim === 'agent') await cluster.requireAgent(AGENT).kill('SIGKILL');
  else if (victim === 'coordinator') await cluster.coordinatorProcess.kill('SIGKILL');
  else {
    for (const pid of listSupervisors()) {
      killedSupervisors.add(pid);
      process.kill(pid, 'SIGKILL');
    }
  }
}

/** Restarts a component. The agent restarts the supervisor by itself. */
async function startAgain(victim: Victim): Promise<void> {
  if (victim === 'agent') await cluster.launchAgent(AGENT, ZONE);
  else if (victim === 'coordinator') await cluster.startCoordinator();
}

/** Returns the numbers in the log. Expects that no line is repeated or out of order. */
async function readNumbers(containerId: string): Promise<readonly number[]> {
  const entries: { readonly line: string; readonly sequence: bigint }[] = [];
  for await (const entry of (await createAgentPortClient()).streamLogs({ containerId }))
    if (entry.sequence > 0n) entries.push(entry);
  expect(entries.map(({ sequence }) => Number(sequence))).toEqual(
    entries.map((_, index) => index + 1),
  );
  const numbers = entries.map(({ line }) => Number(line));
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  return numbers;
}

/** Resolves when the program has printed its first number and handles signals. */
const waitUntilCounting = ({ containerId }: ContainerStatus) =>
  retry(async () => ((await readNumbers(containerId)).length > 0 ? true : undefined));

/** Returns the number of gaps between consecutive numbers. */
const countGaps = (numbers: readonly number[]): number =>
  numbers.filter((number, index) => number > (numbers[index - 1] ?? 0) + 1).length;

/** All orders in which the components can be killed. */
const ORDERS: readonly (readonly Victim[])[] = [
  ['agent', 'supervisor', 'coordinator'],
  ['agent', 'coordinator', 'supervisor'],
  ['supervisor', 'agent', 'coordinator'],
  ['supervisor', 'coordinator', 'agent'],
  ['coordinator', 'agent', 'supervisor'],
  ['coordinator', 'supervisor', 'agent'],
];
/** All groups of components that can be killed at the same time. */
const GROUPS: readonly (readonly Victim[])[] = [
  ['agent', 'supervisor'],
  ['agent', 'coordinator'],
  ['supervisor', 'coordinator'],
  ['agent', 'supervisor', 'coordinator'],
];

/**
 * Runs `killAll`, restarts the victims in their order, and expects the same container, process and
 * replica, no restart, and no gap in the log but for lines that a killed supervisor had not
 * written.
 */
async function expectSurvival(
  victims: readonly Victim[],
  killAll: () => Promise<unknown>,
): Promise<void> {
  const before = {
    container: await requireContainer(),
    replica: await requireReplica(),
    supervisor: await waitForSupervisor(),
  };
  const lineCount = (await readNumbers(before.container.containerId)).length;
  await killAll();
  for (const victim of victims) await startAgain(victim);
  const pid = await waitForSupervisor();
  if (victims.includes('supervisor')) expect(pid).not.toBe(before.supervisor);
  else expect(pid).toBe(before.supervisor);
  const { containerId, pid: process } = await requireContainer();
  expect({ containerId, process }).toEqual({
    containerId: before.container.containerId,
    process: before.container.pid,
  });
  const { id, restarts, nodeId, containerId: reportedContainerId } = await requireReplica();
  expect({ id, restarts, nodeId, reportedContainerId }).toEqual({
    id: before.replica.id,
    restarts: 0,
    nodeId: AGENT,
    reportedContainerId: containerId,
  });
  // The log continues. Only lines that a killed supervisor had not yet written may be missing.
  const numbers = await retry(async () => {
    const current = await readNumbers(containerId);
    return current.length > lineCount + 20 ? current : undefined;
  });
  expect(countGaps(numbers)).toBeLessThanOrEqual(killedSupervisors.size);
  if (killedSupervisors.size === 0) expect(numbers.at(-1)).toBe(numbers.length);
}

describe('cluster', () => {
  beforeEach(() => killedSupervisors.clear());

  it('keeps replicas running when coordinator, agent and supervisor are killed in any order', async () => {
    for (const order of ORDERS) {
      await expectSurvival(order, async () => {
        for (const victim of order) await kill(victim);
      });
    }
  });

  it('keeps replicas running when two or three of its components are killed together', async () => {
    for (const victims of GROUPS)
      await expectSurvival(victims, () => Promise.all(victims.map(kill)));
  });

  it('loses no log line when agent and coordinator are killed but the supervisor is not', async () => {
    await expectSurvival(['agent', 'coordinator'], () =>
      Promise.all([kill('agent'), kill('coordinator')]),
    );
    await expectSurvival(['coordinator', 'agent'], () =>
      Promise.all([kill('agent'), kill('coordinator')]),
    );
  });

  it('reports the exit code of a process that ended while agent and coordinator did not run', async () => {
    const before = await requireReplica();
    const { pid } = await requireContainer();
    await Promise.all([kill('agent'), kill('coordinator')]);
    process.kill(pid, 'SIGHUP');
    await startAgain('agent');
    const next = await requireContainer();
    expect(next.containerId).not.toBe(before.containerId);
    await startAgain('coordinator');
    const after = await cluster.waitForWorkload('count', ({ status }) =>
      status!.replicas.some((r) => r.restarts === 1 && r.ready),
    );
    expect(after.status!.replicas).toMatchObject([
      { id: before.id, nodeId: AGENT, restarts: 1, lastExitCode: 7, containerId: next.containerId },
    ]);
  });

  it('reports the exit code of a process that a new supervisor has adopted', async () => {
    const before = await requireReplica();
    const { pid } = await requireContainer();
    await waitForSupervisor();
    await kill('supervisor');
    await waitForSupervisor();
    process.kill(pid, 'SIGHUP');
    const after = await cluster.waitForWorkload('count', ({ status }) =>
      status!.replicas.some((r) => r.restarts === 1 && r.ready),
    );
    expect(after.status!.replicas).toMatchObject([
      { id: before.id, nodeId: AGENT, restarts: 1, lastExitCode: 7 },
    ]);
  });
});

describe('agent without a coordinator', () => {
  it('restarts a crashed replica and rotates its log, and a new coordinator replaces nothing', async () => {
    const before = await requireReplica();
    const first = await requireContainer();
    await kill('coordinator');
    process.kill(first.pid, 'SIGHUP');
    const second = await retry(async () => {
      const now = await requireContainer();
      return now.containerId === first.containerId ? undefined : now;
    });
    await waitUntilCounting(second);
    process.kill(second.pid, 'SIGUSR2');
    await retry(async () => {
      let newest = 0;
      const request = { containerId: second.containerId, tailLines: 1 };
      for await (const { line } of (await createAgentPortClient()).streamLogs(request))
        newest = Number(line);
      return newest > 60_000 ? newest : undefined;
    });
    expect(listLogFiles(second.containerId).length).toBeGreaterThan(1);
    await startAgain('coordinator');
    const after = await cluster.waitForWorkload('count', ({ status }) =>
      status!.replicas.some((r) => r.restarts === 1 && r.ready),
    );
    expect(after.status!.replicas).toMatchObject([
      {
        id: before.id,
        nodeId: AGENT,
        restarts: 1,
        lastExitCode: 7,
        containerId: second.containerId,
      },
    ]);
    const { events } = await cluster.client.listEvents({ pageSize: 1_000 });
    const reasons = events
      .filter(({ workload }) => workload === 'count')
      .map(({ reason }) => reason);
    expect(reasons.filter((reason) => reason === 'ReplicaRestarted')).toHaveLength(1);
    expect(reasons.filter((reason) => reason === 'ReplicasPlaced')).toHaveLength(1);
  });
});

/** Lists the log files of a container in the directory of its agent. */
function listLogFiles(containerId: string): readonly string[] {
  return readdirSync(`${cluster.directory}/${AGENT}`, { recursive: true, encoding: 'utf8' }).filter(
    (path) => path.includes(`${containerId}/log/`),
  );
}
