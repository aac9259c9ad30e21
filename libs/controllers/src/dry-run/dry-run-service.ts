import { create } from '@bufbuild/protobuf';
import {
  StoppedError,
  definedFields,
  runAtOnce,
  runInSlices,
  sleep,
  type Clock,
  type NodeId,
  type StopSignal,
} from '@cloudless/base';
import {
  ExplainWorkloadResponseSchema,
  NodeVerdictSchema,
  ScoreTermsSchema,
  WorkloadSpecSchema,
  toTemplate,
  withDefaults,
  type ExplainWorkloadResponse,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { findImpossibleLimits } from '@cloudless/rollout';
import {
  describeReasons,
  describeSuggestion,
  type Cluster,
  type PlacementRequest,
} from '@cloudless/scheduler';
import { toEffectiveNode, type ClusterState } from '@cloudless/cluster-state';
import type { NodeDirectory } from '../node/node-directory.js';
import { toPlacementRequest } from '../placement/scheduler-input.js';
import { isGlobal, findGlobalTargets, findOccupiedTargets } from '../rollout/global-targets.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';
import type { WorkloadPresenter } from '../workload/workload-presenter.js';
import { toApiReason } from '../placement/api-reason.js';
import { countRemovedNodes } from '../placement/filter-funnel.js';
import { describePreemption } from '../preemption/describe-preemption.js';
import { ExpectedNodes } from './expected-nodes.js';
import { DryRunPlanner } from './dry-run-planner.js';
import { FrozenSource } from './frozen-source.js';

export interface DryRunServiceDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly readiness: Pick<ReadinessTracker, 'freeze' | 'readyForMs'>;
  /** The scheduler's model of the records. */
  readonly cluster: Cluster;
  readonly clock: Clock;
  readonly presenter: WorkloadPresenter;
}

/** Predicts changes with a planner. Yields whenever other work should run. */
export type Prediction<Result> = (planner: DryRunPlanner) => Generator<void, Result>;

/** Predicts changes, and explains placements. Commits nothing. */
export class DryRunService {
  /** Resolves when the predictions so far have ended. */
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly deps: DryRunServiceDeps) {}

  /**
   * Predicts changes of the state of one moment, in slices between which other work runs.
   * Predictions run one at a time, in the order of the calls, because each has a copy of the
   * scheduler's model.
   * @param predict - Called once, when the prediction begins. What it reads until it yields for the
   *   first time is of the moment that the planner predicts from.
   * @throws the error of `predict`; StoppedError when the signal is aborted.
   */
  predict<Result>(predict: Prediction<Result>, signal?: StopSignal): Promise<Result> {
    const turn = this.last.then(async () => {
      if (signal?.aborted === true) throw new StoppedError(signal.reason);
      const source = new FrozenSource(this.deps);
      try {
        const steps = predict(new DryRunPlanner(source));
        return await runInSlices(steps, () => sleep(this.deps.clock, 0, signal));
      } finally {
        source.close();
      }
    });
    this.last = turn.catch(() => undefined);
    return turn;
  }

  /**
   * Predicts changes of the current state without a pause, for a decision that is committed on this
   * state. A workload with very many replicas keeps the event loop for up to a second.
   * @throws the error of `predict`.
   */
  predictAtOnce<Result>(predict: Prediction<Result>): Result {
    const source = new FrozenSource(this.deps);
    try {
      return runAtOnce(predict(new DryRunPlanner(source)));
    } finally {
      source.close();
    }
  }

  /**
   * Explains for each node whether the node could run one more replica of the workload. In mode
   * GLOBAL, a node that already runs its replica counts as fitting.
   */
  explain(record: WorkloadRecord): ExplainWorkloadResponse {
    const { presenter, state } = this.deps;
    const template = toTemplate(record.spec ?? create(WorkloadSpecSchema));
    const view = state.view();
    const expected = new ExpectedNodes({ ...this.deps, view });
    const cluster = expected.putIntoCopyOf(this.deps.cluster);
    // In mode REPLICATED, the verdicts depend on no replica, of which there may be very many.
    const replicas = isGlobal(record.spec)
      ? Array.from(view.replicasOf(record.uid), ({ value }) => value)
      : [];
    const targets = findGlobalTargets({ ...this.deps, view, cluster }, record, replicas);
    const occupiedTargets = targets && findOccupiedTargets(targets, replicas);
    const request = toPlacementRequest(record, template);
    const verdicts = cluster
      .explain(request)
      .map((verdict) =>
        occupiedTargets?.has(verdict.nodeId) === true
          ? { ...verdict, fits: true as const }
          : verdict,
      );
    const presented = presenter.present(record, true);
    const fitting = verdicts.filter(({ fits }) => fits).length;
    const status = presented.status;
    const verdictText =
      occupiedTargets === undefined ? 'would take one more' : 'run their replica or would take it';
    return create(ExplainWorkloadResponseSchema, {
      namespace: record.namespace,
      name: record.name,
      summary:
        `${status?.readyReplicas ?? 0} of ${status?.desiredReplicas ?? 0} replicas are ready; ` +
        `${fitting} of ${verdicts.length} nodes ${verdictText}` +
        (status?.reason ? `; ${status.reason}` : ''),
      nodes: verdicts.map((verdict) => {
        const node = view.node(verdict.nodeId)?.value;
        const zone = node === undefined ? '' : toEffectiveNode(node).zone;
        const { nodeId, fits, score, terms } = verdict;
        return create(NodeVerdictSchema, {
          nodeId,
          zone,
          fits,
          reason: verdict.fits ? '' : verdict.reasons.map(({ text }) => text).join('; '),
          reasons: verdict.fits ? [] : verdict.reasons.map(toApiReason),
          score,
          terms: create(ScoreTermsSchema, terms),
        });
      }),
      replicas: status?.replicas ?? [],
      omittedReplicas: status?.omittedReplicas ?? 0,
      funnel: [...countRemovedNodes(verdicts)],
      preemption: describePreemption({ ...this.deps, view, cluster }, record),
      ...(fitting === 0
        ? explainRefusal(cluster, request)
        : explainBoundReplica(cluster, request, { replicas, verdicts })),
    });
  }
}

/** Explains why no node fits a request, and the smallest change after which one does. */
function explainRefusal(
  cluster: Pick<Cluster, 'place' | 'suggest'>,
  request: PlacementRequest,
): { readonly refusal: string; readonly suggestion: string } {
  const [placement] = cluster.place(request, 1);
  const suggestion = cluster.suggest(request);
  return {
    refusal:
      placement?.placed === false ? `no node fits: ${describeReasons(placement.reasons)}` : '',
    suggestion: suggestion === undefined ? '' : describeSuggestion(suggestion),
  };
}

/**
 * Explains why the one node that a waiting replica may run on does not fit, and the smallest change
 * after which the node fits. Empty when no replica waits for a node of its own.
 */
function explainBoundReplica(
  cluster: Cluster,
  request: PlacementRequest,
  sources: {
    readonly replicas: readonly ReplicaRecord[];
    readonly verdicts: readonly { readonly nodeId: NodeId }[];
  },
): { readonly refusal?: string; readonly suggestion?: string } {
  const waiting = sources.replicas.find(
    ({ nodeId, onlyNodeId, desiredRunning, reason }) =>
      nodeId === '' && onlyNodeId !== '' && desiredRunning && reason !== '',
  );
  if (waiting === undefined) return {};
  // The change of another node would not help this replica.
  const withOneNode = cluster.clone();
  for (const { nodeId } of sources.verdicts)
    if (nodeId !== waiting.onlyNodeId) withOneNode.removeNode(nodeId);
  const suggestion = withOneNode.suggest(request);
  return {
    refusal: waiting.reason,
    suggestion: suggestion === undefined ? '' : describeSuggestion(suggestion),
  };
}

/**
 * Returns the reason why the rollout limits of a spec allow no step of an update; undefined when
 * they allow one.
 */
export function explainImpossibleLimits(spec: WorkloadSpec): string | undefined {
  const { rollout, replicas } = withDefaults(spec);
  return findImpossibleLimits({
    // The number of targets of a GLOBAL workload may change at any time: only limits that allow no
    // step for any number are refused.
    desired: isGlobal(spec) ? Number.MAX_SAFE_INTEGER : (replicas ?? 0),
    ...definedFields({
      maxSurge: rollout?.maxSurge,
      maxUnavailable: rollout?.maxUnavailable,
      minAvailable: rollout?.minAvailable,
    }),
  });
}
