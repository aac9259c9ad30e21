import {
  definedFields,
  backoffDelayMs,
  CloudlessError,
  errorFields,
  sleep,
  StoppedError,
  type BackoffPolicy,
} from '@cloudless/base';
import { listAvailable, type AvailableContainers, type ContainerKind } from '@cloudless/runtime';
import type { AgentOptions } from './agent-options.js';
import type { StoredReplica } from './store/agent-store.js';
import { CoordinatorContact } from './session/coordinator-contact.js';
import type { CertificateClient } from './identity/certificate-client.js';
import { createCertificateClient } from './identity/create-certificate-client.js';
import { ReplicaEgress } from './egress/replica-egress.js';
import { createReplicaFiles, listFileSpecs } from './files/agent-files.js';
import type { ReplicaFiles } from './files/replica-files.js';
import { IdentityKeeper } from './store/identity-keeper.js';
import { loadIdentity } from './store/load-identity.js';
import { instrumentTransport, registerAgentMetrics } from './metrics/agent-metrics.js';
import { instrumentProbes } from './metrics/instrument-probes.js';
import { instrumentRuntime } from './metrics/instrument-runtime.js';
import { NodeMonitor } from './node/node-monitor.js';
import { createRunningOnError } from './node/running-on-error.js';
import { NodeReplicas } from './replica/node-replicas.js';
import { RuntimeHealthMonitor } from './node/runtime-health-monitor.js';
import { ContainerService } from './serving/container-service.js';
import { TunnelServer } from './serving/tunnel-server.js';
import type { IdentityCalls } from './session/coordinator-transport.js';
import { SessionClient } from './session/session-client.js';
import { createSampler } from './stats/create-sampler.js';
import type { StatsSampler } from './stats/stats-sampler.js';
import { toReplicaUsages } from './stats/to-replica-usage.js';
import {
  createWorkloadIdentities,
  listCapabilities,
  listIdentitySpecs,
} from './workload-identity/agent-workload-identities.js';
import type { WorkloadIdentities } from './workload-identity/workload-identities.js';

/** Delay between attempts to reach a runtime that does not answer. */
const RUNTIME_BACKOFF: BackoffPolicy = { firstMs: 50, maxMs: 5_000, jitter: 0.2 };

/**
 * The agent of one node: runs replicas as ordered, with or without a connection to a coordinator.
 *
 * @example
 * ```ts
 * const agent = await Agent.start({ nodeId: 'node-1', coordinators: ['http://127.0.0.1:8080'],
 * ...ports }); // replicas of an earlier agent run on; a session with a coordinator is being opened
 * await agent.stop(); // ends the session, leaves the containers running
 * ```
 */
export class Agent {
  /** Serves logs, commands and states of this node's containers. */
  readonly containers: ContainerService;
  private readonly tunnels: TunnelServer;
  private readonly sampler: StatsSampler | undefined;
  private readonly session: SessionClient;
  private readonly certificates: CertificateClient | undefined;
  private readonly nodeMonitor: NodeMonitor;
  private readonly runtimeHealthMonitor: RuntimeHealthMonitor;
  private readonly stopping = new AbortController();
  private readonly removeMetrics: () => void = () => undefined;
  private readonly loops: Promise<unknown>[] = [];

  private constructor(
    private readonly options: AgentOptions,
    private readonly identity: IdentityKeeper,
    /** Replicas of this node; read by tests and by AgentService. */
    readonly replicas: NodeReplicas,
    contact: CoordinatorContact,
    private readonly workloadIdentities: WorkloadIdentities | undefined,
    private readonly files: ReplicaFiles | undefined,
    private readonly egress: ReplicaEgress,
  ) {
    const { transport, runtime, nodeId, bootId, clock, random, log, node, resetCommand } = options;
    const { dial } = options;
    this.sampler = createSampler(options, replicas);
    this.containers = new ContainerService({
      nodeId,
      runtime,
      replicas,
      clock,
      ...definedFields({ dial, stats: this.sampler }),
    });
    this.tunnels = new TunnelServer({
      transport,
      service: this.containers,
      nodeId,
      network: options.network,
      clock,
      log: log.child({ component: 'tunnel' }),
    });
    const healthMonitor = (this.runtimeHealthMonitor = new RuntimeHealthMonitor({
      runtime,
      replicas,
      clock,
      log,
    }));
    this.nodeMonitor = new NodeMonitor({
      reader: options.nodeReader,
      clock,
      log,
      containerRuntimeCondition: () => healthMonitor.condition,
      processRuntimeCondition: () => healthMonitor.processCondition,
      networkProxyCondition: () => {
        const reason = options.network?.findProblem() ?? '';
        return { status: reason !== '', reason };
      },
    });
    this.certificates = createCertificateClient(options.nodeIdentity, {
      transport,
      identity,
      clock,
      random,
      log,
      meter: options.meter,
      prepareRenewal: async () => this.workloadIdentities?.renewAll(),
    });
    this.session = new SessionClient({
      transport,
      certificates: this.certificates,
      addresses: options.coordinators,
      identity,
      replicas,
      contact,
      nodeMonitor: this.nodeMonitor,
      replicaUsage: () => toReplicaUsages(this.sampler?.newestStatistics ?? []),
      node,
      bootId,
      capabilities: () => listCapabilities(options),
      clock,
      random,
      log: log.child({ component: 'session' }),
      resetCommand,
      leaseKeeper: options.leaseKeeper,
      onEnrolled: (clusterId) => this.handleEnrollment(clusterId),
      onAdmitted: (calls) => this.files?.useCalls(calls),
      onFilesChanged: (replicaIds) => this.files?.refresh(replicaIds),
      openTunnel: (request, address) => this.tunnels.accept(request, address),
    });
    contact.subscribe(() => void replicas.renewLeases());
    const { meter } = options;
    if (meter !== undefined)
      this.removeMetrics = registerAgentMetrics(meter, {
        connected: () => this.connected,
        tunnels: () => this.tunnels.size,
        replicas,
      });
  }

  /**
   * Loads the state of the previous agent, adopts running containers and starts the control loops.
   * Resolves when the containers of the runtime have been listed and the replicas restored; does
   * not wait for a coordinator.
   * @param signal - Aborts the start while it waits for a runtime that does not answer.
   * @throws kind `invalid` when `coordinators` is empty, `precondition` when the store belongs to
   *   another node, `internal` when the stored data is damaged; `StoppedError` when `signal`
   *   aborts.
   */
  static async start(unmeteredOptions: AgentOptions, signal?: AbortSignal): Promise<Agent> {
    const options = withMetrics(unmeteredOptions);
    if (options.coordinators.length === 0)
      throw new CloudlessError('invalid', 'coordinators: must name at least one address');
    const stored = await options.store.load();
    const identity = new IdentityKeeper(options.store, await loadIdentity(options, stored));
    const contact = new CoordinatorContact(options.clock);
    const workloadIdentities = createWorkloadIdentities(options, () => agent.identityCalls);
    const files = createReplicaFiles(options, () => agent.replicas);
    const egress = new ReplicaEgress({
      ...options,
      replicas: () => agent.replicas,
      log: options.log.child({ component: 'egress' }),
    });
    const replicas = new NodeReplicas({
      ...options,
      identity,
      contact,
      workloadIdentities,
      files,
      egress,
      log: options.log.child({ component: 'replicas' }),
    });
    const agent: Agent = new Agent(
      options,
      identity,
      replicas,
      contact,
      workloadIdentities,
      files,
      egress,
    );
    await agent.restoreAndRun(stored.replicas, signal);
    return agent;
  }

  /** Cluster id; empty until the node has been enrolled. */
  get clusterId(): string {
    return this.identity.clusterId;
  }

  /** True while a coordinator has accepted the session of this agent. */
  get connected(): boolean {
    return this.session.connected;
  }

  /**
   * Calls that need the identity of this node, over the connection of its session; undefined without
   * a session or an identity.
   */
  get identityCalls(): IdentityCalls | undefined {
    return this.certificates?.calls;
  }

  /**
   * Closes the session and stops the control loops. Containers keep running, and the next agent
   * adopts them.
   * @param stopWorkloads - Also stops every container, each with its own grace period.
   * @param machineStops - The machine is shutting down, which ends the containers: the coordinator
   *   need not wait for the return of the agent before it replaces them.
   * @throws kind `unavailable`, after everything else was stopped, when `stopWorkloads` is true and
   *   a runtime does not answer, so that its containers run on; not when the machine shuts down.
   */
  async stop({ stopWorkloads = false, machineStops = false } = {}): Promise<void> {
    let silentKinds = stopWorkloads ? await this.runtimeHealthMonitor.findSilentKinds() : [];
    if (silentKinds.length > 0 && !machineStops)
      this.session.setDeparture({
        reason: 'the agent stops its workloads, except those whose runtime does not answer',
        replicasContinue: true,
      });
    else if (stopWorkloads)
      this.session.setDeparture({
        reason: 'the agent stops its workloads',
        replicasContinue: false,
      });
    else if (machineStops)
      this.session.setDeparture({ reason: 'the machine shuts down', replicasContinue: false });
    this.stopping.abort();
    this.removeMetrics();
    await Promise.all([...this.loops, this.tunnels.close()]);
    this.workloadIdentities?.close();
    this.files?.close();
    this.egress.close();
    if (!stopWorkloads) return this.replicas.close();
    const areStopped = await this.replicas.stopAll(silentKinds);
    if (!areStopped)
      silentKinds = [...silentKinds, ...(await this.runtimeHealthMonitor.findSilentKinds())];
    if (silentKinds.length > 0 && !machineStops)
      throw createRunningOnError(silentKinds, this.options.runtime.health?.().supervisorPid);
    if (!areStopped && !machineStops) {
      this.options.log.warn(
        'identities and files of replicas stay: a container that could not be stopped needs them',
      );
      return;
    }
    await this.workloadIdentities?.removeAll();
    await this.files?.removeAll();
  }

  private async restoreAndRun(
    stored: readonly StoredReplica[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const stop = (): void => this.stopping.abort();
    signal?.addEventListener('abort', stop, { once: true });
    await this.nodeMonitor.refresh();
    if (this.clusterId !== '') await this.options.onClusterKnown?.(this.clusterId);
    // Before the replicas are restored, which may start containers.
    await this.workloadIdentities?.restore(listIdentitySpecs(stored));
    await this.files?.restore(listFileSpecs(stored));
    await new Promise<void>((resolve, reject) => {
      this.loops.push(
        this.followRuntime(stored, resolve).then(() => reject(new StoppedError()), reject),
      );
    });
    signal?.removeEventListener('abort', stop);
    this.egress.start();
    this.runtimeHealthMonitor.refresh(); // the first session reports a runtime that is silent now
    this.loops.push(this.nodeMonitor.run(() => this.session.sendUsage(), this.stopping.signal));
    this.loops.push(
      this.runtimeHealthMonitor.run(() => this.session.sendUsage(), this.stopping.signal),
    );
    this.loops.push(this.session.run(this.stopping.signal));
    if (this.certificates !== undefined)
      this.loops.push(this.certificates.run(this.stopping.signal));
    if (this.sampler !== undefined) this.loops.push(this.sampler.run(this.stopping.signal));
  }

  /**
   * Adopts containers that a previous agent of this node left without orders. The coordinator
   * decides whether they keep running.
   */
  private async handleEnrollment(clusterId: string): Promise<void> {
    const { onClusterKnown, runtime, log } = this.options;
    if (onClusterKnown === undefined) return;
    await onClusterKnown(clusterId);
    try {
      this.replicas.adoptOrphans((await listAvailable(runtime)).containers);
    } catch (reason) {
      log.warn('runtime not reached', errorFields(reason));
    }
  }

  /**
   * Restores the replicas when the runtime answers for the first time. After each later
   * interruption of its events, compares the expected containers with the listed containers.
   */
  private async followRuntime(
    stored: readonly StoredReplica[],
    onRestored: () => void,
  ): Promise<void> {
    const { runtime, clock, random, log } = this.options;
    let restored = false;
    let failures = 0;
    while (!this.stopping.signal.aborted) {
      const round = new AbortController();
      const endRound = (): void => round.abort();
      this.stopping.signal.addEventListener('abort', endRound, { once: true });
      let available: AvailableContainers | undefined;
      try {
        // subscribes before the list, so that no change is missed
        const events = runtime.events(round.signal);
        const expected = this.replicas.listExpectedContainers();
        available = await listAvailable(runtime);
        if (restored) this.replicas.applyContainerList(expected, available);
        else {
          await this.replicas.restore(stored, available, round.signal);
          if (available.missing.length > 0)
            this.loops.push(this.restoreUnlisted(available.missing));
        }
        restored = true;
        failures = 0;
        onRestored();
        for await (const event of events) this.replicas.observe(event);
        if (!this.stopping.signal.aborted) log.warn('runtime events ended');
      } catch (reason) {
        // The runtime answered, so the stored orders are damaged: a retry cannot succeed.
        if (!restored && available !== undefined) throw reason;
        if (failures === 0 && !this.stopping.signal.aborted)
          log.warn('runtime not reached', errorFields(reason));
      } finally {
        this.stopping.signal.removeEventListener('abort', endRound);
        round.abort();
      }
      failures += 1;
      await sleep(
        clock,
        backoffDelayMs(RUNTIME_BACKOFF, failures, random),
        this.stopping.signal,
      ).catch(() => undefined);
    }
  }

  /**
   * Restores the replicas of the kinds that could not be listed, each kind once its runtime answers
   * for the first time. Until then the agent manages only the replicas of the other kind.
   */
  private async restoreUnlisted(missingKinds: readonly ContainerKind[]): Promise<void> {
    const { runtime, clock, random, log } = this.options;
    const { signal } = this.stopping;
    log.warn('replicas wait for a runtime that does not answer', { missingKinds });
    let unlistedKinds = missingKinds;
    for (let failures = 1; unlistedKinds.length > 0; failures += 1) {
      const delayMs = backoffDelayMs(RUNTIME_BACKOFF, failures, random);
      await sleep(clock, delayMs, signal).catch(() => undefined);
      if (signal.aborted) return;
      try {
        const available = await listAvailable(runtime);
        const isRestored = (kind: ContainerKind): boolean => !available.missing.includes(kind);
        const restoredKinds = unlistedKinds.filter(isRestored);
        if (restoredKinds.length === 0) continue;
        await this.replicas.restoreUnlisted(available, signal);
        // Events of unlisted replicas are ignored, so changes since the list are read again.
        const expected = this.replicas.listExpectedContainers();
        this.replicas.applyContainerList(expected, await listAvailable(runtime));
        unlistedKinds = unlistedKinds.filter((kind) => !isRestored(kind));
        log.info('replicas of a runtime restored', { restoredKinds });
        this.session.sendUsage();
      } catch (reason) {
        log.debug('runtime not reached', errorFields(reason));
      }
    }
  }
}

/** Wraps runtime, transport and probe clients with metrics when the options have a meter. */
function withMetrics(options: AgentOptions): AgentOptions {
  const { meter, clock, runtime, transport, probeClients } = options;
  if (meter === undefined) return options;
  return {
    ...options,
    runtime: instrumentRuntime(runtime, meter, clock),
    transport: instrumentTransport(transport, meter),
    probeClients: instrumentProbes(probeClients, meter, clock),
  };
}
