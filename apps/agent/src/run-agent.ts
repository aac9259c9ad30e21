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
import { startLeaseThread } from './lease/lease-thread.js';
import { isMachineShuttingDown } from './machine/machine-shutdown.js';
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
 * @throws an error whose message names a remedy; everything that was opened is closed before.
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
  const cleanup: (() => Promise<void>)[] = [];
  try {
    const data = await lockDataDirectory(config.dataDir);
    cleanup.push(() => data.release());
    deps.onDataDirectory?.();
    const runtimes = await openRuntimes(config, deps);
    let started: Agent | undefined; // undefined until the start has succeeded: a failed start stops no workload
    cleanup.push(() => runtimes.close(config.stopWorkloadsOnExit && started !== undefined));
    const { capacity, nodeReader } = await openMachine(config.dataDir);
    const metrics = createMetrics({ process: true });
    const lagMeter = startLoopLagMeter(systemClock, metrics);
    cleanup.push(async () => lagMeter.close());
    const leaseThread = startLeaseThread(log.child({ component: 'lease' }));
    cleanup.push(() => leaseThread.close());
    // Listens first, so that the first Hello can contain the address.
    let server: RpcServer | undefined;
    if (config.listen !== undefined) {
      server = await serveAgentService(config.listen, () => started?.containers, {
        clock: systemClock,
        log: log.child({ component: 'server' }),
        meter: metrics,
        tracing,
      });
      cleanup.push(server.close.bind(server, 0));
    }
    const options: AgentOptions = {
      nodeId: config.name,
      bootId: readBootId(),
      coordinators: config.coordinator,
      transport: createCoordinatorTransport({ interceptors: [tracing.clientInterceptor] }),
      leaseKeeper: leaseThread,
      meter: metrics,
      runtime: runtimes.runtime,
      onClusterKnown: (clusterId) => runtimes.setCluster(clusterId),
      store: new FileAgentStore(config.dataDir),
      nodeReader,
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
    cleanup.push(async () =>
      agent.stop({
        stopWorkloads: config.stopWorkloadsOnExit,
        machineStops: await isMachineShuttingDown(),
      }),
    );
    const ops =
      config.opsListen === undefined
        ? undefined
        : await serveOps(config.opsListen, agent, metrics, log);
    cleanup.push(async () => ops?.close());
    return {
      agent,
      runtimes,
      url: server?.url,
      opsUrl: ops?.url,
      close: () => unwind(cleanup, log),
    };
  } catch (reason) {
    await unwind(cleanup, log);
    throw reason;
  }
}

/** Serves health and readiness. An agent without a session is healthy but not ready. */
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

/** Calls the cleanup functions in reverse order. Logs a failure and continues with the others. */
async function unwind(cleanup: (() => Promise<void>)[], log: Log): Promise<void> {
  for (const step of cleanup.splice(0).reverse()) {
    try {
      await step();
    } catch (reason) {
      log.warn('cleanup step failed', errorFields(reason));
    }
  }
}
