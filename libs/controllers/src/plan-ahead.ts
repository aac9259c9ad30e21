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
import { versionRecordOf, type ClusterState } from '@cloudless/cluster-state';
import { effectiveNode } from './effective-node.js';
import { takeMoves, type MovesAhead } from './moves-ahead.js';
import type { NodeDirectory } from './node-directory.js';
import { WorldAhead, type WorldAheadDeps } from './world-ahead.js';

export interface PlanAheadDeps extends WorldAheadDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly clock: Clock;
}

/**
 * The subject of a plan: the current workload (undefined when the change creates it) and the new
 * spec.
 */
export interface PlanSubject {
  readonly namespace: string;
  readonly name: string;
  readonly current: WorkloadRecord | undefined;
  readonly spec: WorkloadSpec;
}

/**
 * Predicts changes one after the other, each on the result of the previous ones. Commits nothing.
 */
export class PlanAhead {
  private readonly world: WorldAhead;

  constructor(private readonly deps: PlanAheadDeps) {
    this.world = new WorldAhead(deps);
  }

  /**
   * Predicts a change of one workload: the difference of the specs, the steps in order with the
   * ready count after each, the nodes of new replicas, and warnings.
   */
  change(subject: PlanSubject): WorkloadPlan {
    const { current } = subject;
    const before = current?.spec ?? create(WorkloadSpecSchema);
    const changes = diffSpecs(before, subject.spec);
    const newVersion =
      current === undefined ||
      !equals(WorkloadSpecSchema, toTemplate(before), toTemplate(subject.spec));
    const control = current === undefined ? undefined : this.world.controlOf(current.uid);
    const planned = this.enter(subject, newVersion, changes.length > 0);
    const moves = takeMoves(this.world, this.deps, planned);
    return create(WorkloadPlanSchema, {
      ...this.describe(planned, moves),
      action:
        current === undefined ? Action.CREATE : changes.length > 0 ? Action.UPDATE : Action.NOTHING,
      changes: changes.map(({ path, before: was, after: is }) => ({
        path,
        before: jsonOf(was),
        after: jsonOf(is),
      })),
      newVersion,
      generation: current?.generation ?? 0n,
      warnings: [
        ...(newVersion ? supersedes(control, planned.version) : []),
        ...(changes.length > 0 ? cannotBeKept(subject.spec) : []),
        ...restWarnings(moves, `${counted(moves.unplaced)} would find no node`),
      ],
    });
  }

  /**
   * Predicts a drain: the steps of each workload with replicas on the node, sorted by name.
   * @param node - The node record as the drain would leave it.
   */
  drain(node: NodeRecord): readonly WorkloadPlan[] {
    this.world.putNode(node);
    const byName = (a: WorkloadRecord, b: WorkloadRecord): number =>
      nameOf(a) < nameOf(b) ? -1 : 1;
    return this.world
      .workloadsOn(node.id)
      .flatMap((uid) => this.world.view.workload(uid)?.value ?? [])
      .filter((workload) => workload.deletionRequestedAt === undefined)
      .sort(byName)
      .map((workload) => this.move(workload, node));
  }

  private move(workload: WorkloadRecord, { id, drain }: NodeRecord): WorkloadPlan {
    const moves = takeMoves(this.world, this.deps, workload);
    const { minAvailable, lowestReady } = moves;
    const why = `the drain of ${id} would not finish`;
    const below =
      drain?.force === true && lowestReady < minAvailable
        ? [
            `the drain is forced: as few as ${lowestReady} would be ready, and min_available is ${minAvailable}`,
          ]
        : [];
    return create(WorkloadPlanSchema, {
      ...this.describe(workload, moves),
      action: Action.MOVE,
      generation: workload.generation,
      warnings: [
        ...below,
        ...restWarnings(moves, `${why}: ${counted(moves.unplaced)} would find no node`),
      ],
    });
  }

  /** Adds the workload to the simulated cluster as the change would leave it. */
  private enter(
    { namespace, name, current, spec }: PlanSubject,
    newVersion: boolean,
    changed: boolean,
  ): WorkloadRecord {
    const planned =
      current === undefined
        ? create(WorkloadRecordSchema, { uid: `planned/${namespace}/${name}`, namespace, name })
        : clone(WorkloadRecordSchema, current);
    planned.spec = spec;
    if (changed || newVersion) planned.generation += 1n;
    if (newVersion) planned.version += 1;
    const { uid, version } = planned;
    const nowMs = this.deps.clock.wallTime();
    const earlier = this.deps.state.view().versions(uid);
    this.world.putWorkload(
      planned,
      newVersion ? versionRecordOf(spec, { version, nowMs, earlier }) : undefined,
    );
    return planned;
  }

  private describe({ namespace, name }: WorkloadRecord, moves: MovesAhead) {
    const { steps, placements, unplaced, unplacedReason, lowestReady, highestLive, minAvailable } =
      moves;
    return {
      namespace,
      name,
      placements: placements.map(({ nodeId, score }) => ({
        nodeId,
        zone: this.zoneOf(nodeId),
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

  private zoneOf(nodeId: string): string {
    const node = this.world.view.node(nodeId)?.value;
    return node === undefined ? '' : effectiveNode(node).zone;
  }
}

/** A warning about placements that were not predicted. */
function notWorkedOut({ unknown }: MovesAhead): readonly string[] {
  return unknown === 0
    ? []
    : [`the placement of ${counted(unknown)} more was not predicted: the plan is too large`];
}

/**
 * Warnings about why the change would not complete by itself. Replicas without a node block
 * everything after them, so one reason is enough.
 */
function restWarnings(moves: MovesAhead, noNode: string): readonly string[] {
  const { unplaced, unplacedReason, stuck } = moves;
  if (unplaced > 0) return [...notWorkedOut(moves), `${noNode}: ${unplacedReason}`];
  return [...notWorkedOut(moves), ...(stuck === undefined ? [] : [stuck])];
}

/** A warning that the change supersedes a rollout that is not complete. */
function supersedes(control: ControlRecord | undefined, version: number): readonly string[] {
  const under = control?.rollout?.version ?? 0;
  const settled = isRolledOut(control?.rolloutPhase);
  if (under === 0 || settled) return [];
  return [`the rollout of version ${under} is not done; version ${version} takes its place`];
}

function cannotBeKept({ rollout }: WorkloadSpec): readonly string[] {
  const minAvailable = rollout?.minAvailable ?? 0;
  if (rollout?.strategy !== Strategy.RECREATE || minAvailable === 0) return [];
  return [`min_available ${minAvailable} cannot be kept: RECREATE stops all replicas first`];
}

function jsonOf(value: unknown): string {
  return value === undefined ? '' : JSON.stringify(value);
}

function counted(replicas: number): string {
  return `${replicas} ${replicas === 1 ? 'replica' : 'replicas'}`;
}

function nameOf({ namespace, name }: WorkloadRecord): string {
  return `${namespace}/${name}`;
}
