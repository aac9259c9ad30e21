import { join } from 'node:path';
import { CloudlessError, errorMessageOf, StoppedError } from '@cloudless/base';
import { UNPRIVILEGED_SERVICE_CIDR } from '@cloudless/network';
import { makeDirectory, READY_MESSAGES, SESSION_MESSAGE, systemClock } from '@cloudless/app-kit';
import { ProgramProcess, type ReadyFields } from './program-process.js';
import type { Guard } from './guard.js';
import { openSecureAccess, type SecureAccess } from './secure-access.js';

/** Layout of a development cluster. Port 0 selects a free port. */
export interface DevClusterOptions {
  readonly dataDir: string;
  /** True when the data directory is removed at the end. */
  readonly isTemporary: boolean;
  readonly port: number;
  readonly opsPort: number;
  /** True: TLS and identities; undefined: plaintext. */
  readonly secure?: true;
  /** Port of the first agent's API; the others follow. 0 selects a free port for each. */
  readonly agentPort: number;
  readonly agents: number;
  /** First port that agents assign to workloads; each agent has a thousand. */
  readonly workloadPort: number;
  /**
   * Container runtime of the agents, in addition to processes; values of the agent's `--runtime`.
   */
  readonly runtime: string;
  readonly criSocket?: string;
  /** Called for each log line of a program. */
  readonly onLine: (name: string, line: string) => void;
  /** Called when an agent has ended unexpectedly and is restarted, as a service manager would do. */
  readonly onRestart: (name: string) => void;
  /**
   * Called every 10 s while the cluster starts, with the programs that are not ready and the time
   * since the start.
   */
  readonly onWaiting: (names: readonly string[], elapsedMs: number) => void;
  readonly guard: Guard;
}

/** A coordinator and its agents on this machine. */
export interface DevCluster {
  /** Base URL of the API. */
  readonly url: string;
  readonly opsUrl: string;
  /** Credentials of users and agents; undefined: every client on this machine, in plaintext. */
  readonly access: SecureAccess | undefined;
  /** Names of the nodes, and addresses of the agents' APIs. */
  readonly agents: readonly {
    readonly name: string;
    readonly zone: string;
    readonly address: string;
  }[];
  /** The container runtime of the agents, or the reason why they have none. */
  readonly containers: ContainerSupport;
  /** Rejects when the coordinator ends unexpectedly, or an agent cannot be restarted. */
  readonly failed: Promise<never>;
  /** Stops workloads, agents and the coordinator, in this order. */
  stop(): Promise<void>;
}

/**
 * `runtime`: such as `containerd 1.6.20 at /run/containerd/containerd.sock`. `reason`: why
 * there is none.
 */
export type ContainerSupport = { readonly runtime: string } | { readonly reason: string };

/**
 * A start takes seconds. A minute or more is normal on a busy machine; more than this means that
 * the program hangs.
 */
const READY_TIMEOUT_MS = 180_000;
/** Interval of {@link DevClusterOptions.onWaiting}: more than a start takes on a quiet machine. */
const WAITING_NOTICE_MS = 10_000;
const PORTS_PER_AGENT = 1_000;
/**
 * Agents first stop workloads, with their grace periods, and remove containers with networks and
 * mounts.
 */
const AGENT_GRACE_MS = 60_000;
const COORDINATOR_GRACE_MS = 10_000;
const ZONES = ['a', 'b', 'c'];
const COORDINATOR = 'coordinator';

/**
 * Starts one coordinator and its agents, which are spread over the zones.
 * @param signal - Aborts the start: started processes are stopped.
 * @throws {@link StoppedError} when `signal` is aborted before the cluster is up.
 */
export async function startDevCluster(
  options: DevClusterOptions,
  signal: AbortSignal,
): Promise<DevCluster> {
  const children = new Map<string, ProgramProcess>();
  const starting = new Set<string>();
  let isStopping = false;
  let fail: (reason: Error) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => undefined);
  const start = async (
    name: string,
    program: 'coordinator' | 'agent',
    args: readonly string[],
  ): Promise<ReadyFields> => {
    if (isStopping) throw new StoppedError();
    const child = ProgramProcess.start({
      name,
      program,
      args: [...args, '--data-dir', join(options.dataDir, name), '--log-format', 'json'],
      logFile: join(options.dataDir, `${name}.log`),
      keepsLog: !options.isTemporary,
      readyMessage: READY_MESSAGES[program],
      // A workload that is created before finds no node.
      ...(program === 'agent' ? { furtherMessage: SESSION_MESSAGE } : {}),
      readyTimeoutMs: READY_TIMEOUT_MS,
      onLine: (line) => options.onLine(name, line),
      graceMs: program === 'agent' ? AGENT_GRACE_MS : COORDINATOR_GRACE_MS,
      guard: options.guard,
    });
    children.set(name, child);
    starting.add(name);
    void child.ready.then(
      () => starting.delete(name),
      () => starting.delete(name),
    );
    const ready = await child.ready.catch((reason: unknown) => {
      // The program names its own flags; the user gave those of dev-cluster.
      throw new CloudlessError(
        'unavailable',
        errorMessageOf(reason).replaceAll('--listen', '--agent-port'),
        { cause: reason },
      );
    });
    void child.exited.then(() => {
      if (isStopping) return;
      if (program === 'coordinator')
        return fail(new CloudlessError('unavailable', child.describeFailure('has ended')));
      options.onRestart(name);
      start(name, program, args).catch(fail);
    });
    return ready;
  };
  const stop = async (): Promise<void> => {
    isStopping = true;
    const agents = [...children].filter(([name]) => name !== COORDINATOR);
    await Promise.all(agents.map(([, agent]) => agent.stop()));
    await children.get(COORDINATOR)?.stop();
  };
  const startAll = async (): Promise<DevCluster> => {
    await makeDirectory(options.dataDir, 0o700).catch((reason: unknown) => {
      throw new CloudlessError(
        'precondition',
        `cannot create the data directory ${options.dataDir}: ${errorMessageOf(reason)}; choose another one with --data-dir`,
        { cause: reason },
      );
    });
    const { url, opsUrl } = await start(COORDINATOR, 'coordinator', [
      ...['--port', String(options.port), '--ops-port', String(options.opsPort)],
      ...['--tls', options.secure === true ? 'on' : 'off'],
      // Loopback addresses, which every user of this machine can serve and reach.
      ...['--service-cidr', UNPRIVILEGED_SERVICE_CIDR],
    ]);
    const coordinatorDir = join(options.dataDir, COORDINATOR);
    const access =
      options.secure === true
        ? await openSecureAccess({ ...options, url: String(url), coordinatorDir, signal })
        : undefined;
    const agents = await Promise.all(
      Array.from({ length: options.agents }, async (_, index) => {
        const { name, zone, args } = describeAgent(options, index, String(url), access);
        const ready = await start(name, 'agent', args);
        return {
          name,
          zone,
          // A node that has not joined yet does not serve.
          address: String(ready['address'] ?? describeAddress(options, index)),
          containers: getContainerSupport(ready),
        };
      }),
    );
    const [{ containers } = { containers: { reason: 'there is no agent' } }] = agents;
    return { url: String(url), opsUrl: String(opsUrl), access, agents, containers, failed, stop };
  };
  const notice = startWaitingNotices(() => [...starting], options.onWaiting);
  try {
    return await Promise.race([startAll(), rejectOnAbort(signal)]);
  } catch (reason) {
    await stop();
    throw reason;
  } finally {
    clearInterval(notice);
  }
}

/** Returns the address of an agent's API; empty when the agent chooses its port. */
const describeAddress = ({ agentPort }: DevClusterOptions, index: number): string =>
  agentPort === 0 ? '' : `127.0.0.1:${agentPort + index}`;

/** Returns the name, the zone and the command line of an agent. */
function describeAgent(
  options: DevClusterOptions,
  index: number,
  url: string,
  access: SecureAccess | undefined,
): { readonly name: string; readonly zone: string; readonly args: readonly string[] } {
  const { workloadPort, runtime, criSocket } = options;
  const name = `agent-${index + 1}`;
  const zone = `zone-${ZONES[index % ZONES.length] ?? 'a'}`;
  const firstPort = workloadPort + index * PORTS_PER_AGENT;
  const args = [
    ...['run', '--name', name, '--coordinator', url, '--region', 'local', '--zone', zone],
    ...['--listen', describeAddress(options, index) || '127.0.0.1:0'],
    ...['--port-range', `${firstPort}-${firstPort + PORTS_PER_AGENT - 1}`],
    ...['--runtime', runtime, ...(criSocket === undefined ? [] : ['--cri-socket', criSocket])],
    ...(access === undefined
      ? []
      : ['--join-token-file', access.joinTokenFile, ...listMeshFlags(process.env)]),
    '--stop-workloads-on-exit',
  ];
  return { name, zone, args };
}

/** Proxies of a cluster with TLS reach each other with TLS, unless the agents have none. */
function listMeshFlags(env: NodeJS.ProcessEnv): readonly string[] {
  return env['CLOUDLESS_AGENT_NETWORK'] === 'off' ? [] : ['--mesh-listen', '127.0.0.1:0'];
}

/** Calls `onWaiting` at an interval until the result is cleared. */
function startWaitingNotices(
  listNames: () => readonly string[],
  onWaiting: DevClusterOptions['onWaiting'],
): NodeJS.Timeout {
  const startedMs = systemClock.now();
  return setInterval(
    () => onWaiting(listNames(), systemClock.now() - startedMs),
    WAITING_NOTICE_MS,
  );
}

function rejectOnAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(new StoppedError());
    signal.addEventListener('abort', () => reject(new StoppedError()), { once: true });
  });
}

function getContainerSupport({ containerRuntime, containers }: ReadyFields): ContainerSupport {
  return typeof containerRuntime === 'string'
    ? { runtime: containerRuntime }
    : { reason: String(containers ?? 'not known') };
}
