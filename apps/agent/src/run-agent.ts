import { definedFields, errorFields, StoppedError, type Log } from '@cloudless/base';
import { Agent, type AgentOptions, type NodeDescription } from '@cloudless/agent-core';
import { BUILD, systemClock, systemRandom } from '@cloudless/app-kit';
import type { HostCapacity } from '@cloudless/cgroup-reader';
import { createKeyAndCsr } from '@cloudless/identity/csr';
import { createMetrics, startLoopLagMeter, type Tracing } from '@cloudless/observability';
import { AgentServers } from './agent-servers.js';
import type { AgentConfig } from './agent-config.js';
import { DiskReserve } from './data/disk-reserve.js';
import { FileAgentStore } from './data/file-agent-store.js';
import { openClusterAccess } from './identity/cluster-access.js';
import { startLeaseThread } from './lease/lease-thread.js';
import { isMachineShuttingDown } from './machine/machine-shutdown.js';
import { openMachine, readBootId } from './machine/machine.js';
import { checkGrpc } from './probes/check-grpc.js';
import { checkHttp } from './probes/check-http.js';
import { listReportedAddresses } from './network/host-addresses.js';
import type { NodeNetwork } from './network/node-network.js';
import { abandonProxy } from './network/early-proxy.js';
import { mayStopProxy, openNodeNetwork, reportEnded } from './network/open-node-network.js';
import { openReplicaFiles, type ReplicaFilesPlace } from './replica-files/open-replica-files.js';
import { openRuntimes, type AgentRuntimes } from './runtimes/agent-runtimes.js';
import { openWorkloadIdentities } from './workload-identity/open-workload-identities.js';
import type { BegunAgent } from './start-agent.js';
import { openStatsReader } from './machine/stats-reader.js';
import { connectTcp } from './machine/connect-tcp.js';
import { dialTcp } from './machine/dial-tcp.js';
import { watchStop } from './stop-watch.js';
import { WorkloadStop } from './workload-stop.js';

/** A running agent process. */
export interface RunningAgent {
  readonly agent: Agent;
  readonly runtimes: Pick<AgentRuntimes, 'names' | 'containerRuntime' | 'noContainersReason'>;
  /** Base address of AgentService; undefined: not served, or not before the machine has joined. */
  readonly url: string | undefined;
  /** Base address of /health, /ready and /metrics; undefined as `url`. */
  readonly opsUrl: string | undefined;
  /** True when this node has a network proxy. */
  readonly hasNetwork: boolean;
  /** Resolves when the agent cannot work and must be closed: its join token is refused. */
  readonly failed: Promise<Error>;
  /**
   * Stops the agent gracefully. Workloads keep running unless the configuration says otherwise.
   * @throws the reason why workloads run on that should have been stopped, after everything was
   *   closed.
   */
  close(): Promise<void>;
}

/**
 * Creates an agent with its runtimes, servers and store, and starts it.
 * @param begun - The locked data directory and the network proxy. `signal` aborts a start that waits
 *   for a runtime.
 * @throws an error whose message names a remedy; everything that was opened is closed before, also
 *   the data directory and the proxy, unless replicas or clients of the ingress may use the proxy.
 */
export async function runAgent(
  { config, data, proxy, signal }: Pick<BegunAgent, 'config' | 'data' | 'proxy' | 'signal'>,
  deps: {
    readonly log: Log;
    readonly supervisorCommand: readonly string[];
    /** Command of the network proxy. */
    readonly proxyCommand: readonly string[];
    readonly startTracing: () => Promise<Tracing>;
    /** Where the secrets of replicas are. Default: without the environment of this process. */
    readonly replicaFilesPlace?: ReplicaFilesPlace;
  },
): Promise<RunningAgent> {
  const { log } = deps;
  const cleanup: (() => Promise<void>)[] = [() => data.release()];
  try {
    let network: NodeNetwork | undefined;
    cleanup.push(async () => (network === undefined ? abandonProxy(proxy) : undefined));
    if (signal.aborted) throw new StoppedError();
    const tracing = await deps.startTracing();
    let started: Agent | undefined; // undefined until the start has succeeded: a failed start stops no workload
    const metrics = createMetrics({ process: true });
    const resetCommand = `cloudless-agent reset --data-dir ${config.dataDir}`;
    const failure = createFailure();
    const servers = new AgentServers({
      ...{ config, log, metrics, tracing },
      agent: () => started,
      renderProxyMetrics: async () => (await network?.renderMetrics()) ?? '',
    });
    const reserve = await openReserve(config.dataDir, log);
    const access = await openClusterAccess({
      ...{ config, resetCommand, reserve },
      interceptors: [tracing.clientInterceptor],
      clock: systemClock,
      log: log.child({ component: 'identity' }),
      agent: () => started,
      onJoined: () => servers.start(access.security, true).catch(failure.report),
      onRefused: failure.report,
    });
    const store = new FileAgentStore(config.dataDir, { reserve });
    const runtimes = await openRuntimes(config, deps, signal);
    const workloadStop = new WorkloadStop(config.stopWorkloadsOnExit, isMachineShuttingDown);
    cleanup.push(() => workloadStop.closeRuntimes(runtimes, started !== undefined));
    network = openNodeNetwork(config, { ...deps, proxy, store, access });
    cleanup.push(async () => {
      const stopWorkloadsOnExit = workloadStop.stopsWorkloads && started !== undefined;
      await network?.close(await mayStopProxy({ ...config, stopWorkloadsOnExit }, runtimes));
    });
    await network?.waitUntilReady(signal);
    const { capacity, nodeReader } = await openMachine(config.dataDir);
    const lagMeter = startLoopLagMeter(systemClock, metrics);
    cleanup.push(async () => lagMeter.close());
    cleanup.push(() => servers.close());
    const leaseThread = startLeaseThread(log.child({ component: 'lease' }), access.leaseIdentity);
    cleanup.push(() => leaseThread.close());
    // The servers listen first, so that the first Hello can contain the address.
    await servers.start(access.security, access.hasIdentity());
    const options: AgentOptions = {
      nodeId: config.name,
      bootId: readBootId(),
      coordinators: config.coordinator,
      transport: access.transport,
      ...definedFields({ nodeIdentity: access.nodeIdentity }),
      workloadIdentity: {
        files: openWorkloadIdentities(config.dataDir, runtimes.runtime, log),
        createKeyAndCsr,
      },
      deniesProcesses: config.denyProcesses,
      replicaFiles: openReplicaFiles(config.dataDir, deps.replicaFilesPlace, log),
      leaseKeeper: leaseThread,
      meter: metrics,
      ...{ runtime: runtimes.runtime, store },
      onClusterKnown: (clusterId) => runtimes.setCluster(clusterId),
      ...definedFields({ network }),
      nodeReader,
      node: () => describeNode(config, capacity, servers.agentAddress, network),
      connect: connectTcp,
      dial: dialTcp,
      probeClients: { http: checkHttp, grpc: checkGrpc },
      // Statistics need the files of the Linux kernel.
      ...(process.platform === 'linux' ? { stats: openStatsReader(systemClock) } : {}),
      ...{ clock: systemClock, random: systemRandom, log },
      startConcurrency: config.startConcurrency,
      resetCommand,
    };
    const agent = (started = await Agent.start(options, signal));
    if (network !== undefined) cleanup.push(reportEnded(agent, network));
    cleanup.push(() => workloadStop.stopAgent(agent));
    return {
      agent,
      runtimes,
      url: servers.url,
      opsUrl: servers.opsUrl,
      hasNetwork: network !== undefined,
      failed: failure.happened,
      close: () => closeAgent(cleanup, { workloadStop, runtime: runtimes.runtime, log }),
    };
  } catch (reason) {
    await unwind(cleanup, log);
    throw reason;
  }
}

async function openReserve(dataDir: string, log: Log): Promise<DiskReserve> {
  const reserve = new DiskReserve(dataDir, { log });
  await reserve.refill();
  await reserve.makeRoomToStart();
  return reserve;
}

/** A failure after the start that ends the agent. */
function createFailure(): {
  readonly happened: Promise<Error>;
  readonly report: (reason: unknown) => void;
} {
  let report: (reason: unknown) => void = () => undefined;
  const happened = new Promise<Error>((resolve) => {
    report = (reason) => resolve(reason instanceof Error ? reason : new Error(String(reason)));
  });
  return { happened, report };
}

/**
 * Closes an agent that has started. Logs when the supervisor of processes delays that.
 * @throws the failure of {@link WorkloadStop.throwFailure}, after everything was closed.
 */
async function closeAgent(
  cleanup: (() => Promise<void>)[],
  deps: {
    readonly workloadStop: WorkloadStop;
    readonly runtime: AgentRuntimes['runtime'];
    readonly log: Log;
  },
): Promise<void> {
  const { workloadStop, runtime, log } = deps;
  const { stopsWorkloads: stopWorkloads } = workloadStop;
  const endWatch = watchStop({ runtime, stopWorkloads, clock: systemClock, log });
  await unwind(cleanup, log);
  endWatch();
  workloadStop.throwFailure();
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

/** Describes this machine to the coordinator. */
function describeNode(
  config: AgentConfig,
  capacity: HostCapacity,
  agentAddress: string,
  network: NodeNetwork | undefined,
): NodeDescription {
  return {
    ...(network === undefined
      ? {}
      : {
          network: {
            ...network.describe(),
            ...definedFields({ machineAddresses: listReportedAddresses() }),
          },
        }),
    region: config.region,
    zone: config.zone,
    labels: config.label,
    taints: config.taint,
    capacity: { ...capacity, bandwidthBps: config.bandwidth, custom: config.customResource },
    reserved: {
      cpuMillis: config.reserveCpu,
      memoryBytes: config.reserveMemory,
      storageBytes: config.reserveStorage,
    },
    maxReplicas: config.maxReplicas,
    agentVersion: BUILD,
    architecture: process.arch,
    operatingSystem: process.platform,
    agentAddress,
  };
}
