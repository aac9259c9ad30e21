import { clone, create, equals } from '@bufbuild/protobuf';
import {
  Rollout_Strategy as Strategy,
  WorkloadPlanSchema,
  WorkloadPlan_Action as Action,
  WorkloadSpecSchema,
  diffSpecs,
  toTemplate,
  type WorkloadPlan,
  type WorkloadSpec,
  isRolledOut,
} from '@cloudless/api';
import {
  WorkloadRecordSchema,
  type ControlRecord,
  type NodeRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import {
  createVersionRecord,
  toEffectiveNode,
  type ClusterState,
  type PlanSubject,
} from '@cloudless/cluster-state';
import type { NodeDirectory } from '../node/node-directory.js';
import { simulateRollout, type DryRunResult } from './simulate-rollout.js';
import { DryRunCluster, type DryRunClusterDeps } from './dry-run-cluster.js';

export interface DryRunPlannerDeps extends DryRunClusterDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly clock: Clock;
}

/**
 * Predicts changes one after the other, each on the predicted state after the changes before.
 * Commits nothing.
 */
export class DryRunPlanner {
  private readonly cluster: DryRunCluster;

  constructor(private readonly deps: DryRunPlannerDeps) {
    this.cluster = new DryRunCluster(deps);
  }

  /**
   * Predicts a change of one workload: the difference of the specs, the steps in order with the
   * counts of ready and live replicas after each step, the nodes of new replicas, and warnings.
   */
  planChange(subject: PlanSubject): WorkloadPlan {
    const { current } = subject;
    const before = current?.spec ?? create(WorkloadSpecSchema);
    const changes = diffSpecs(before, subject.spec);
    const newVersion =
      current === undefined ||
      !equals(WorkloadSpecSchema, toTemplate(before), toTemplate(subject.spec));
    const control = current === undefined ? undefined : this.cluster.copyControl(current.uid);
    const predicted = this.putPredictedWorkload(subject, newVersion, changes.length > 0);
    const result = simulateRollout(this.cluster, this.deps, predicted);
    return create(WorkloadPlanSchema, {
      ...this.toPlanFields(predicted, result),
      action:
        current === undefined ? Action.CREATE : changes.length > 0 ? Action.UPDATE : Action.NOTHING,
      changes: changes.map((change) => ({
        path: change.path,
        before: toJson(change.before),
        after: toJson(change.after),
      })),
      newVersion,
      generation: current?.generation ?? 0n,
      warnings: [
        ...(newVersion ? warnSuperseded(control, predicted.version) : []),
        ...(changes.length > 0 ? warnMinAvailable(subject.spec) : []),
        ...createEndWarnings(result, `${formatReplicaCount(result.unplaced)} would find no node`),
      ],
    });
  }

  /**
   * Predicts a drain: the steps of each workload with replicas on the node, sorted by name.
   * @param node - The node record as the drain would leave it.
   */
  planDrain(node: NodeRecord): readonly WorkloadPlan[] {
    this.cluster.putNode(node);
    const compareNames = (a: WorkloadRecord, b: WorkloadRecord): number =>
      formatName(a) < formatName(b) ? -1 : 1;
    return this.cluster
      .workloadIdsOn(node.id)
      .flatMap((uid) => this.cluster.view.workload(uid)?.value ?? [])
      .filter((workload) => workload.deletionRequestedAt === undefined)
      .sort(compareNames)
      .map((workload) => this.planMove(workload, node));
  }

  private planMove(workload: WorkloadRecord, { id, drain }: NodeRecord): WorkloadPlan {
    const result = simulateRollout(this.cluster, this.deps, workload);
    const { minAvailable, lowestReady } = result;
    const subject = `the drain of ${id} would not finish`;
    const belowMinAvailable =
      drain?.force === true && lowestReady < minAvailable
        ? [
            `the drain is forced: as few as ${lowestReady} would be ready, and min_available is ${minAvailable}`,
          ]
        : [];
    return create(WorkloadPlanSchema, {
      ...this.toPlanFields(workload, result),
      action: Action.MOVE,
      generation: workload.generation,
      warnings: [
        ...belowMinAvailable,
        ...createEndWarnings(
          result,
          `${subject}: ${formatReplicaCount(result.unplaced)} would find no node`,
        ),
      ],
    });
  }

  /**
   * Adds the workload to the simulated cluster as the change would leave it.
   * @param newVersion - True when the change makes a new version.
   * @param changed - True when the spec changes.
   */
  private putPredictedWorkload(
    { namespace, name, current, spec }: PlanSubject,
    newVersion: boolean,
    changed: boolean,
  ): WorkloadRecord {
    const predicted =
      current === undefined
        ? create(WorkloadRecordSchema, { uid: `planned/${namespace}/${name}`, namespace, name })
        : clone(WorkloadRecordSchema, current);
    predicted.spec = spec;
    if (changed || newVersion) predicted.generation += 1n;
    if (newVersion) predicted.version += 1;
    const { uid, version } = predicted;
    const nowMs = this.deps.clock.wallTime();
    const earlier = this.deps.state.view().versions(uid);
    this.cluster.putWorkload(
      predicted,
      newVersion ? createVersionRecord(spec, { version, nowMs, earlier }) : undefined,
    );
    return predicted;
  }

  private toPlanFields({ namespace, name }: WorkloadRecord, result: DryRunResult) {
    const { steps, placements, unplaced, unplacedReason, lowestReady, highestLive, minAvailable } =
      result;
    return {
      namespace,
      name,
      placements: placements.map(({ nodeId, score }) => ({
        nodeId,
        zone: this.getZone(nodeId),
        score,
      })),
      totalPlacements: placements.length,
      unplaced,
      unplacedReason,
      steps: steps.map((step) => ({ ...step })),
      totalSteps: steps.length,
      lowestReady,
      highestLive,
      minAvailable,
    };
  }

  private getZone(nodeId: string): string {
    const node = this.cluster.view.node(nodeId)?.value;
    return node === undefined ? '' : toEffectiveNode(node).zone;
  }
}

/** Returns the warning about placements that were not predicted. */
function warnNotPredicted({ notPredicted }: DryRunResult): readonly string[] {
  return notPredicted === 0
    ? []
    : [
        `the placement of ${formatReplicaCount(notPredicted)} more was not predicted: the plan is too large`,
      ];
}

/**
 * Returns the warnings about a change that would not complete by itself. Replicas without a node
 * block all later steps, so no further reason is needed beside them.
 * @param unplacedText - Warning about the replicas without a node, without the reason.
 */
function createEndWarnings(result: DryRunResult, unplacedText: string): readonly string[] {
  const { unplaced, unplacedReason, stuckReason } = result;
  if (unplaced > 0) return [...warnNotPredicted(result), `${unplacedText}: ${unplacedReason}`];
  return [...warnNotPredicted(result), ...(stuckReason === undefined ? [] : [stuckReason])];
}

/** Returns the warning that the change supersedes a rollout that is not complete. */
function warnSuperseded(control: ControlRecord | undefined, version: number): readonly string[] {
  const currentVersion = control?.rollout?.version ?? 0;
  const isSettled = isRolledOut(control?.rolloutPhase);
  if (currentVersion === 0 || isSettled) return [];
  return [
    `the rollout of version ${currentVersion} is not done; version ${version} takes its place`,
  ];
}

function warnMinAvailable({ rollout }: WorkloadSpec): readonly string[] {
  const minAvailable = rollout?.minAvailable ?? 0;
  if (rollout?.strategy !== Strategy.RECREATE || minAvailable === 0) return [];
  return [`min_available ${minAvailable} cannot be kept: RECREATE stops all replicas first`];
}

function toJson(value: unknown): string {
  return value === undefined ? '' : JSON.stringify(value);
}

function formatReplicaCount(replicas: number): string {
  return `${replicas} ${replicas === 1 ? 'replica' : 'replicas'}`;
}

function formatName({ namespace, name }: WorkloadRecord): string {
  return `${namespace}/${name}`;
}
