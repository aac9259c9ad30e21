import { join } from 'node:path';
import { errorFields, type Log } from '@cloudless/base';
import { Agent } from '@cloudless/agent-core';
import { startOpsServer, type OpsServer, type RpcServer } from '@cloudless/rpc-server';
import { openProcessRuntime, type ProcessRuntime } from '@cloudless/runtime-process';
import { systemClock, systemRandom } from '@cloudless/system';
import { serveAgent } from './agent-service.js';
import type { AgentConfig } from './config.js';
import { createMetrics, noTracing, startLoopLagMeter, type Metrics, type Tracing } from '@cloudless/observability';
import { createCoordinatorTransport } from '@cloudless/rpc-client';
import { takeDataDirectory } from './data-directory.js';
import { FileAgentStore } from './file-agent-store.js';
import { openMachine, readBootId } from './machine.js';
import { grpcCheck } from './probes/grpc-check.js';
import { httpCheck } from './probes/http-check.js';
import { tcpConnect } from './tcp-connect.js';
import { tcpDial } from './tcp-dial.js';
import { VERSION } from './version.js';

/** Below the data directory: the runtime's own. */
export const RUNTIME_FOLDER = 'runtime';

/** An agent that runs. */
export interface RunningAgent {
  readonly agent: Agent;
  /** Base address of AgentService; undefined when it is not served. */
  readonly url: string | undefined;
  /** Base address of /health, /ready and /metrics; undefined when they are not served. */
  readonly opsUrl: string | undefined;
  /** Ends in good order; what runs goes on unless the configuration says otherwise. */
  close(): Promise<void>;
}

/** Puts an agent together and starts it. @throws A failure whose message says what to do, with everything let go of. */
export async function runAgent(
  config: AgentConfig,
  deps: { readonly log: Log; readonly supervisorCommand: readonly string[]; readonly tracing?: Tracing },
): Promise<RunningAgent> {
  const { log, tracing = noTracing } = deps;
  const undo: (() => Promise<void>)[] = [];
  try {
    const data = await takeDataDirectory(config.dataDir);
    undo.push(() => data.release());
    const runtime = await openRuntime(config, deps);
    let started: Agent | undefined; // an agent that cannot start ends no work
    undo.push(async () => {
      const endsWork = config.stopWorkloadsOnExit && started !== undefined;
      // A supervisor that holds nothing would only outlive us for nothing.
      return endsWork || (await runtime.list()).length === 0 ? runtime.shutdown() : runtime.close();
    });
    const { capacity, probe } = await openMachine(config.dataDir);
    const metrics = createMetrics({ process: true });
    const lag = startLoopLagMeter(systemClock, metrics);
    undo.push(async () => lag.close());
    // Listens first, so that the first Hello can tell where.
    let server: RpcServer | undefined;
    if (config.listen !== undefined) {
      server = await serveAgent(config.listen, () => started?.containers, {
        clock: systemClock,
        log: log.child({ component: 'server' }),
        meter: metrics,
        tracing,
      });
      undo.push(server.close.bind(server, 0));
    }
    const agent = (started = await Agent.start({
      nodeId: config.name,
      bootId: readBootId(),
      coordinators: config.coordinator,
      transport: createCoordinatorTransport([tracing.clientInterceptor]),
      meter: metrics,
      runtime,
      store: new FileAgentStore(config.dataDir),
      probe,
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
      connect: tcpConnect,
      dial: tcpDial,
      probeClients: { http: httpCheck, grpc: grpcCheck },
      clock: systemClock,
      random: systemRandom,
      log,
      startConcurrency: config.startConcurrency,
      resetCommand: `cloudless-agent reset --data-dir ${config.dataDir}`,
    }));
    undo.push(() => agent.stop({ stopWorkloads: config.stopWorkloadsOnExit }));
    const ops = config.opsListen === undefined ? undefined : await serveOps(config.opsListen, agent, metrics, log);
    undo.push(async () => ops?.close());
    return { agent, url: server?.url, opsUrl: ops?.url, close: () => unwind(undo, log) };
  } catch (reason) {
    await unwind(undo, log);
    throw reason;
  }
}

/** An agent without a coordinator works, and is not ready: nothing new comes to it. */
function serveOps(listen: NonNullable<AgentConfig['opsListen']>, agent: Agent, metrics: Metrics, log: Log): Promise<OpsServer> {
  return startOpsServer({
    ...listen,
    portOption: '--ops-listen',
    clock: systemClock,
    log: log.child({ component: 'ops' }),
    health: () => (agent.connected ? { ok: true } : { ok: true, degraded: ['no session with a coordinator; what runs goes on'] }),
    ready: () => (agent.connected ? { ok: true } : { ok: false, reasons: ['no session with a coordinator'] }),
    metrics: () => metrics.expose(),
  });
}

function openRuntime(
  config: AgentConfig,
  { log, supervisorCommand }: { readonly log: Log; readonly supervisorCommand: readonly string[] },
): Promise<ProcessRuntime> {
  return openProcessRuntime({
    directory: join(config.dataDir, RUNTIME_FOLDER),
    portRange: config.portRange,
    clock: systemClock,
    random: systemRandom,
    log: log.child({ component: 'runtime' }),
    supervisorCommand,
  });
}

/** Last opened, first closed; what fails does not keep the rest open. */
async function unwind(undo: (() => Promise<void>)[], log: Log): Promise<void> {
  for (const step of undo.splice(0).reverse()) {
    try {
      await step();
    } catch (reason) {
      log.warn('not closed in good order', errorFields(reason));
    }
  }
}
