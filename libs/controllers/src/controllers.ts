import type { NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import {
  definedFields,
  noMeter,
  noTracer,
  toNodeId,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type Tracer,
  TransientSet,
} from '@cloudless/base';
import { listReplicasHeldBy, type ClusterState } from '@cloudless/cluster-state';
import { createCluster, type ScoreWeights } from '@cloudless/scheduler';
import { ClusterModel } from './placement/cluster-model.js';
import { DrainReconciler } from './drain/drain-reconciler.js';
import { Janitor } from './janitor.js';
import { FileRotationReconciler } from './files/file-rotations.js';
import { RotationReconciler } from './identity/rotation-reconciler.js';
import { NetworkFeed } from './network/network-feed.js';
import { NetworkSettings, type WantedNetworkSettings } from './network/network-settings.js';
import { NodeAllocations, type NodeAllocation } from './node/node-allocations.js';
import { NodeDirectory } from './node/node-directory.js';
import { NodeReconciler } from './node/node-reconciler.js';
import { NewReplicaPlacer } from './placement/new-replicas.js';
import { PendingBatches } from './placement/pending-batches.js';
import { Placer } from './placement/placer.js';
import { PreemptionReconciler } from './preemption/preemption-reconciler.js';
import { DryRunService } from './dry-run/dry-run-service.js';
import { RolloutGates } from './rollout/gate/rollout-gates.js';
import { ReadinessTracker } from './rollout/readiness-tracker.js';
import type { RetentionLimits } from './retention.js';
import { WhatIfService } from './what-if/what-if-service.js';
import { WorkloadPresenter } from './workload/workload-presenter.js';
import { WorkloadReconciler } from './workload/workload-reconciler.js';

export interface ControllersOptions {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Milliseconds for which a node is trusted after its last message. */
  readonly leaseMs: number;
  /**
   * Milliseconds within which an agent that left in good order may return before its node is lost.
   * Default 60 000.
   */
  readonly leaveGraceMs?: number;
  /**
   * Milliseconds after the last turn of an agent's main loop at which its node is lost. Default
   * 30 000, or `leaseMs` if that is longer.
   */
  readonly hungAfterMs?: number;
  readonly weights?: ScoreWeights;
  /** Settings of the network to store. Default: none are stored. */
  readonly networkSettings?: WantedNetworkSettings;
  /** Retention of events, audit records and request results, where it differs from the default. */
  readonly retention?: Partial<RetentionLimits>;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Default: no traces. */
  readonly tracer?: Tracer;
}

/** The running controllers of the leader, and what the API server reads from them. */
export interface Controllers {
  readonly nodes: NodeDirectory;
  readonly presenter: WorkloadPresenter;
  readonly dryRun: DryRunService;
  readonly whatIf: WhatIfService;
  /** Updates for the network proxies of nodes. */
  readonly network: NetworkFeed;
  /** Placement data for the API calls about nodes. */
  readonly placements: {
    /** The resources that live replicas hold on a node, according to the records. */
    getAllocated(nodeId: string): NodeAllocation;
  };
  /**
   * The resources that the scheduler's model has reserved on a node. Equal to the sum from the
   * records, but updated incrementally, and includes the placements that are being committed.
   * Undefined for an unknown node.
   */
  getReserved(nodeId: string): NodeAllocation | undefined;
  /** True while placements are being committed, so that {@link getReserved} exceeds the records. */
  readonly isPlacing: boolean;
  /** Returns warnings for operators about settings, one sentence each. */
  listWarnings(): readonly string[];
  close(): Promise<void>;
}

/** Starts all controllers. Only the leader may run them. */
export function startControllers(options: ControllersOptions): Controllers {
  const { state, clock, random, log, meter = noMeter, tracer = noTracer } = options;
  const nodes = new NodeDirectory({
    clock,
    log: log.child({ component: 'nodes' }),
    leaseMs: options.leaseMs,
    meter,
    ...definedFields({ leaveGraceMs: options.leaveGraceMs, hungAfterMs: options.hungAfterMs }),
  });
  nodes.start(listExpectedNodes(state));
  const cluster = createCluster(options.weights === undefined ? {} : { weights: options.weights });
  const recordsBeingPlaced = new TransientSet<ReplicaRecord>();
  const model = new ClusterModel({ state, nodes, cluster, recordsBeingPlaced });
  const allocations = new NodeAllocations(state);
  const gates = new RolloutGates({ view: () => state.view(), nodes, clock });
  const network = new NetworkFeed({
    ...{ state, nodes, clock, random, meter, traffic: gates.traffic },
    log: log.child({ component: 'network' }),
  });
  const networkSettings =
    options.networkSettings &&
    new NetworkSettings(
      { state, clock, log: log.child({ component: 'network' }) },
      options.networkSettings,
    );
  const readiness = new ReadinessTracker(state, nodes, clock);
  const presenter = new WorkloadPresenter(state, nodes, { cluster, clock }, { gates });
  const dryRun = new DryRunService({ state, nodes, readiness, presenter, cluster, clock });
  const whatIf = new WhatIfService({
    ...{ state, nodes, readiness, cluster, clock },
    ...definedFields({ weights: options.weights }),
  });
  const common = { state, nodes, clock, random, meter, tracer };
  const scheduling = { ...common, cluster, log: log.child({ component: 'scheduler' }) };
  // Before the reconciler of workloads, which creates no replica ahead of a waiting one.
  const pending = new PendingBatches(() => state.view());
  const unsubscribePending = state.subscribe((changes) => pending.apply(changes));
  const newReplicas = new NewReplicaPlacer({ ...scheduling, pending, recordsBeingPlaced });
  const workloads = new WorkloadReconciler({
    ...{ ...common, readiness, gates, cluster, newReplicas },
    log: log.child({ component: 'workloads' }),
  });
  const placer = new Placer({ ...scheduling, pending, recordsBeingPlaced });
  const preemption = new PreemptionReconciler({ ...scheduling, readiness });
  const nodeReconciler = new NodeReconciler({ ...common, log: log.child({ component: 'nodes' }) });
  const janitor = new Janitor({
    ...common,
    log: log.child({ component: 'janitor' }),
    retention: options.retention ?? {},
  });
  const drains = new DrainReconciler({ ...common, log: log.child({ component: 'nodes' }) });
  const rotation = new RotationReconciler({ ...common, log: log.child({ component: 'identity' }) });
  const fileRotations = new FileRotationReconciler({
    ...common,
    log: log.child({ component: 'files' }),
  });
  return {
    nodes,
    presenter,
    dryRun,
    placements: allocations,
    whatIf,
    network,
    listWarnings: () => networkSettings?.listWarnings() ?? [],
    getReserved: (nodeId) => {
      const usage = cluster.usage(toNodeId(nodeId));
      if (usage === undefined) return undefined;
      return { ...usage.allocated, replicas: usage.replicas };
    },
    get isPlacing() {
      return placer.isPlacing || newReplicas.isPlacing;
    },
    close: async () => {
      nodes.close();
      network.close();
      await Promise.all([
        workloads.close(),
        placer.close(),
        preemption.close(),
        nodeReconciler.close(),
        drains.close(),
        rotation.close(),
        fileRotations.close(),
        janitor.close(),
        networkSettings?.close(),
      ]);
      unsubscribePending();
      model.close();
      allocations.close();
      presenter.close();
      readiness.close();
    },
  };
}

/**
 * Lists the nodes whose agents a new leader expects. A lost node whose replicas have not been
 * replaced yet gets a lease like the others: when the lease ends, the node is lost again and its
 * replicas are replaced.
 */
function listExpectedNodes(state: ClusterState): Parameters<NodeDirectory['start']>[0] {
  const isExpected = ({ id, lost }: NodeRecord): boolean =>
    !lost || listReplicasHeldBy(state.view(), id).length > 0;
  return [...state.view().nodes()]
    .map(({ value }) => value)
    .filter(isExpected)
    .map(({ id, lost, lossConfirmed, departure }) =>
      lost || lossConfirmed ? { id } : { id, departure },
    );
}
