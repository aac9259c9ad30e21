import { join } from 'node:path';
import { CloudlessError, errorMessageOf, StoppedError } from '@cloudless/base';
import { makeDirectory } from '@cloudless/system';
import { Child, type ReadyFields } from './child.js';
import type { Guard } from './guard.js';

/** How a development cluster is laid out. Port 0 lets the system choose. */
export interface DevClusterOptions {
  readonly dataDir: string;
  readonly port: number;
  readonly opsPort: number;
  /**
   * Port of the first agent's own service; the others follow. 0 lets the system choose for each.
   */
  readonly agentPort: number;
  readonly agents: number;
  /** First port that agents hand to workloads; each agent has a thousand. */
  readonly workloadPort: number;
  /** What the agents run beside processes, as their own flags say. */
  readonly runtime: string;
  readonly criSocket?: string;
  /** Called with each log line of a program. */
  readonly onLine: (name: string, line: string) => void;
  /** Called when an agent has ended by itself and is started again, as a service manager would. */
  readonly onRestart: (name: string) => void;
  readonly guard: Guard;
}

/** A coordinator and its agents, all on this machine. */
export interface DevCluster {
  /** Base address of the API. */
  readonly url: string;
  readonly opsUrl: string;
  /** Ids of the nodes and addresses of their agents' own service. */
  readonly agents: readonly {
    readonly name: string;
    readonly zone: string;
    readonly address: string;
  }[];
  /** Which container runtime the agents use, or why none. */
  readonly containers: Containers;
  /** Rejects when the coordinator ends by itself, or an agent cannot be started again. */
  readonly failed: Promise<never>;
  /** Stops workloads, agents and the coordinator, in this order. */
  stop(): Promise<void>;
}

/** `runtime`: as `containerd 1.6.20 at /run/containerd/containerd.sock`. */
export type Containers = { readonly runtime: string } | { readonly why: string };

const PORTS_PER_AGENT = 1_000;
/**
 * Workloads are stopped first, with their grace, and containers are removed with their networks and
 * mounts.
 */
const AGENT_GRACE_MS = 60_000;
const COORDINATOR_GRACE_MS = 10_000;
const ZONES = ['a', 'b', 'c'];
const COORDINATOR = 'coordinator';

/**
 * Starts one coordinator and its agents, one zone after the other.
 * @param signal - Aborts the start: processes that were started are stopped.
 * @throws {@link StoppedError} when `signal` is aborted before the cluster is up.
 */
export async function startDevCluster(
  options: DevClusterOptions,
  signal: AbortSignal,
): Promise<DevCluster> {
  const children = new Map<string, Child>();
  let stopping = false;
  let fail: (reason: Error) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => undefined);
  const start = async (
    name: string,
    program: 'coordinator' | 'agent',
    args: readonly string[],
  ): Promise<ReadyFields> => {
    if (stopping) throw new StoppedError();
    const child = Child.start({
      name,
      program,
      args: [...args, '--data-dir', join(options.dataDir, name), '--log-format', 'json'],
      logFile: join(options.dataDir, `${name}.log`),
      readyMessage: `${program} ready`,
      onLine: (line) => options.onLine(name, line),
      graceMs: program === 'agent' ? AGENT_GRACE_MS : COORDINATOR_GRACE_MS,
      guard: options.guard,
    });
    children.set(name, child);
    const ready = await child.ready.catch((reason: unknown) => {
      // A program names its own flags; people gave ours.
      throw new CloudlessError(
        'unavailable',
        errorMessageOf(reason).replaceAll('--listen', '--agent-port'),
        { cause: reason },
      );
    });
    void child.exited.then(() => {
      if (stopping) return;
      if (program === 'coordinator')
        return fail(
          new Error(`${name} has ended; its log is ${join(options.dataDir, `${name}.log`)}`),
        );
      options.onRestart(name);
      start(name, program, args).catch(fail);
    });
    return ready;
  };
  const stop = async (): Promise<void> => {
    stopping = true;
    const agents = [...children].filter(([name]) => name !== COORDINATOR);
    await Promise.all(agents.map(([, agent]) => agent.stop()));
    await children.get(COORDINATOR)?.stop();
  };
  const startAll = async (): Promise<DevCluster> => {
    await makeDirectory(options.dataDir, 0o700);
    const { url, opsUrl } = await start(COORDINATOR, 'coordinator', [
      '--port',
      String(options.port),
      '--ops-port',
      String(options.opsPort),
    ]);
    const agents = await Promise.all(
      Array.from({ length: options.agents }, async (_, index) => {
        const name = `agent-${index + 1}`;
        const zone = `zone-${ZONES[index % ZONES.length] ?? 'a'}`;
        const firstPort = options.workloadPort + index * PORTS_PER_AGENT;
        const ready = await start(name, 'agent', [
          ...['--name', name, '--coordinator', String(url), '--region', 'local', '--zone', zone],
          ...['--listen', `127.0.0.1:${options.agentPort === 0 ? 0 : options.agentPort + index}`],
          ...['--port-range', `${firstPort}-${firstPort + PORTS_PER_AGENT - 1}`],
          ...[
            '--runtime',
            options.runtime,
            ...(options.criSocket === undefined ? [] : ['--cri-socket', options.criSocket]),
          ],
          '--stop-workloads-on-exit',
        ]);
        return {
          name,
          zone,
          address: String(ready['address'] ?? ''),
          containers: containersOf(ready),
        };
      }),
    );
    const [{ containers } = { containers: { why: 'there is no agent' } }] = agents;
    return { url: String(url), opsUrl: String(opsUrl), agents, containers, failed, stop };
  };
  try {
    return await Promise.race([startAll(), untilAborted(signal)]);
  } catch (reason) {
    await stop();
    throw reason;
  }
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(new StoppedError());
    signal.addEventListener('abort', () => reject(new StoppedError()), { once: true });
  });
}

function containersOf({ containerRuntime, containers }: ReadyFields): Containers {
  return typeof containerRuntime === 'string'
    ? { runtime: containerRuntime }
    : { why: String(containers ?? 'not known') };
}
