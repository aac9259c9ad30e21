import { errorFields, type Log } from '@cloudless/base';
import { Agent, type AgentOptions } from '@cloudless/agent-core';
import { startOpsServer, type OpsServer, type RpcServer } from '@cloudless/rpc-node/server';
import { systemClock, systemRandom, VERSION } from '@cloudless/app-kit';
import {
  createMetrics,
  noTracing,
  startLoopLagMeter,
  type Metrics,
  type Tracing,
} from '@cloudless/observability';
import { createCoordinatorTransport } from '@cloudless/rpc-node/client';
import { serveAgentService } from './agent-service.js';
import type { AgentConfig } from './config.js';
import { lockDataDirectory } from './data/data-directory.js';
import { FileAgentStore } from './data/file-agent-store.js';
import { openMachine, readBootId } from './machine/machine.js';
import { checkGrpc } from './probes/check-grpc.js';
import { checkHttp } from './probes/check-http.js';
import { openRuntimes, type AgentRuntimes } from './runtimes/agent-runtimes.js';
import { openStatsReader } from './machine/stats-reader.js';
import { connectTcp } from './machine/connect-tcp.js';
import { dialTcp } from './machine/dial-tcp.js';

/** A running agent process. */
export interface RunningAgent {
  readonly agent: Agent;
  readonly runtimes: Pick<AgentRuntimes, 'names' | 'containerRuntime' | 'noContainersReason'>;
  /** Base address of AgentService; undefined: not served. */
  readonly url: string | undefined;
  /** Base address of /health, /ready and /metrics; undefined: not served. */
  readonly opsUrl: string | undefined;
  /** Stops the agent gracefully. Workloads keep running unless the configuration says otherwise. */
  close(): Promise<void>;
}

/**
 * Creates an agent with its runtimes, servers and store, and starts it.
 * @param signal - Aborts a start that waits for a runtime.
 * @throws An error with a remedy in its message; everything that was opened is closed.
 */
export async function runAgent(
  config: AgentConfig,
  deps: {
    readonly log: Log;
    readonly supervisorCommand: readonly string[];
    readonly tracing?: Tracing;
    /**
     * Called once the data directory is locked: from then on, a stop must release resources of the
     * agent.
     */
    readonly onDataDirectory?: () => void;
  },
  signal?: AbortSignal,
): Promise<RunningAgent> {
  const { log, tracing = noTracing } = deps;
  const undo: (() => Promise<void>)[] = [];
  try {
    const data = await lockDataDirectory(config.dataDir);
    undo.push(() => data.release());
    deps.onDataDirectory?.();
    const runtimes = await openRuntimes(config, deps);
    let started: Agent | undefined; // an agent that fails to start stops no workload
    undo.push(() => runtimes.close(config.stopWorkloadsOnExit && started !== undefined));
    const { capacity, probe } = await openMachine(config.dataDir);
    const metrics = createMetrics({ process: true });
    const lag = startLoopLagMeter(systemClock, metrics);
    undo.push(async () => lag.close());
    // Listens first, so that the first Hello can contain the address.
    let server: RpcServer | undefined;
    if (config.listen !== undefined) {
      server = await serveAgentService(config.listen, () => started?.containers, {
        clock: systemClock,
        log: log.child({ component: 'server' }),
        meter: metrics,
        tracing,
      });
      undo.push(server.close.bind(server, 0));
    }
    const options: AgentOptions = {
      nodeId: config.name,
      bootId: readBootId(),
      coordinators: config.coordinator,
      transport: createCoordinatorTransport([tracing.clientInterceptor]),
      meter: metrics,
      runtime: runtimes.runtime,
      onClusterKnown: (clusterId) => runtimes.setCluster(clusterId),
      store: new FileAgentStore(config.dataDir),
      nodeReader: probe,
      node: () => ({
        region: config.region,
        zone: config.zone,
        labels: config.label,
        taints: config.taint,
        capacity,
        reserved: { cpuMillis: config.reserveCpu, memoryBytes: config.reserveMemory },
        maxReplicas: config.maxReplicas,
        agentVersion: VERSION,
        architecture: process.arch,
        operatingSystem: process.platform,
        agentAddress: server === undefined ? '' : `${server.address.host}:${server.address.port}`,
      }),
      connect: connectTcp,
      dial: dialTcp,
      probeClients: { http: checkHttp, grpc: checkGrpc },
      // Statistics need the files of the Linux kernel.
      ...(process.platform === 'linux' ? { stats: openStatsReader(systemClock) } : {}),
      clock: systemClock,
      random: systemRandom,
      log,
      startConcurrency: config.startConcurrency,
      resetCommand: `cloudless-agent reset --data-dir ${config.dataDir}`,
    };
    const agent = (started = await Agent.start(options, signal));
    undo.push(() => agent.stop({ stopWorkloads: config.stopWorkloadsOnExit }));
    const ops =
      config.opsListen === undefined
        ? undefined
        : await serveOps(config.opsListen, agent, metrics, log);
    undo.push(async () => ops?.close());
    return { agent, runtimes, url: server?.url, opsUrl: ops?.url, close: () => unwind(undo, log) };
  } catch (reason) {
    await unwind(undo, log);
    throw reason;
  }
}

/** Without a session the agent is healthy but not ready: it gets no new replicas. */
function serveOps(
  listen: NonNullable<AgentConfig['opsListen']>,
  agent: Agent,
  metrics: Metrics,
  log: Log,
): Promise<OpsServer> {
  return startOpsServer({
    ...listen,
    portOption: '--ops-listen',
    clock: systemClock,
    log: log.child({ component: 'ops' }),
    checkHealth: () =>
      agent.connected
        ? { ok: true }
        : { ok: true, degraded: ['no session with a coordinator; replicas keep running'] },
    checkReadiness: () =>
      agent.connected ? { ok: true } : { ok: false, reasons: ['no session with a coordinator'] },
    renderMetrics: () => metrics.expose(),
  });
}

/** Closes everything in reverse order; a failure does not stop the rest. */
async function unwind(undo: (() => Promise<void>)[], log: Log): Promise<void> {
  for (const step of undo.splice(0).reverse()) {
    try {
      await step();
    } catch (reason) {
      log.warn('cleanup step failed', errorFields(reason));
    }
  }
}
