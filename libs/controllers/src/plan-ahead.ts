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

/** What {@link PlanAhead} works with. */
export interface PlanAheadDeps extends WorldAheadDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly clock: Clock;
}

/**
 * What a plan is about: the workload as it is (absent when it would be created) and the spec it
 * would have.
 */
export interface PlanSubject {
  readonly namespace: string;
  readonly name: string;
  readonly current: WorkloadRecord | undefined;
  readonly spec: WorkloadSpec;
}

/**
 * Plans changes one after the other: each in the world that those before it would have left.
 * Changes nothing.
 */
export class PlanAhead {
  private readonly world: WorldAhead;

  constructor(private readonly deps: PlanAheadDeps) {
    this.world = new WorldAhead(deps);
  }

  /**
   * The difference, the moves in order with the ready count each leaves, where new replicas would
   * go, and what would not fit.
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
   * What becomes of each workload with replicas on a node, by name.
   * @param node - As the drain would leave its record.
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

  /** Enters the workload as the change would leave it. */
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

/** What is missing in the plan itself. */
function notWorkedOut({ unknown }: MovesAhead): readonly string[] {
  return unknown === 0
    ? []
    : [`where ${counted(unknown)} more would go was not worked out: the plan is too large`];
}

/**
 * Why it would not come to its end by itself. What finds no node holds the rest up, so that one
 * reason is enough.
 */
function restWarnings(moves: MovesAhead, noNode: string): readonly string[] {
  const { unplaced, unplacedReason, stuck } = moves;
  if (unplaced > 0) return [...notWorkedOut(moves), `${noNode}: ${unplacedReason}`];
  return [...notWorkedOut(moves), ...(stuck === undefined ? [] : [stuck])];
}

/** A rollout that has not come to its end is given up for the next one. */
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
