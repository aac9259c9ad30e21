import { create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase, WorkloadSpecSchema, withDefaults } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { canonicalVersion } from '@cloudless/cluster-state';
import {
  advanceRollout,
  layOut,
  textOfMs,
  type LaidOutStep,
  type RolloutAdvance,
  type RolloutObserved,
  type RolloutState,
  type WaitReason,
} from '@cloudless/rollout';
import type { NodeDirectory } from './node-directory.js';
import { decideAny, decideBound, decideWhole, type PlacementDecision } from './placement-decision.js';
import { toRolloutInput } from './rollout-input.js';
import { keepRolloutState, toRolloutState, toSettings } from './rollout-state.js';
import { toPlacementRequest } from './scheduler-input.js';
import { stillWanted } from './workload-pass.js';
import type { WorldAhead } from './world-ahead.js';

/** One move, with what it leaves. */
export interface MoveAhead {
  readonly description: string;
  readonly ready: number;
  readonly live: number;
}

/** The moves of one workload, up to where nothing moves by itself any more. */
export interface MovesAhead {
  readonly steps: readonly MoveAhead[];
  readonly placements: readonly { readonly nodeId: string; readonly score: number }[];
  /** New replicas that find no node, and why. */
  readonly unplaced: number;
  readonly unplacedReason: string;
  /** New replicas whose places were not worked out. */
  readonly unknown: number;
  readonly lowestReady: number;
  readonly highestLive: number;
  readonly minAvailable: number;
  /** Why it does not come to its end by itself; undefined when it does. */
  readonly stuck: string | undefined;
}

/** What the moves of a world are worked out from. */
export interface MovesAheadDeps {
  readonly nodes: NodeDirectory;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** A rollout has at most 32 canary steps, each with its wait; beyond so many turns something moves without end. */
const MAX_TURNS = 200;

/**
 * Takes a workload of the world to where it comes to rest, with the same functions that the controllers use, as if nothing failed:
 * what is made becomes ready, stops are confirmed, what is waited for by time passes, and somebody promotes what waits for that.
 */
export function takeMoves(world: WorldAhead, deps: MovesAheadDeps, workload: WorkloadRecord): MovesAhead {
  return new Course(world, deps, workload).run();
}

/** One workload on its way. */
class Course {
  private readonly steps: MoveAhead[] = [];
  private readonly placements: { nodeId: string; score: number }[] = [];
  /** There or made, and without a node so far. */
  private homeless: readonly ReplicaRecord[] = [];
  private unplacedReason = '';
  private unknown = 0;
  private versions: ReadonlyMap<string, number> = new Map();
  private state: RolloutState;
  private nowMs: number;
  private stuck: string | undefined;

  constructor(
    private readonly world: WorldAhead,
    private readonly deps: MovesAheadDeps,
    private readonly workload: WorkloadRecord,
  ) {
    this.state = toRolloutState(world.controlOf(workload.uid));
    this.nowMs = deps.clock.wallTime();
  }

  run(): MovesAhead {
    const { uid } = this.workload;
    const waiting = this.world
      .replicasOf(uid)
      .filter(({ desiredRunning, nodeId, phase }) => desiredRunning && nodeId === '' && phase === Phase.PENDING);
    this.unplacedReason = shortReason(waiting[0]?.reason ?? '');
    const { observed } = this.advance();
    this.world.put(uid, [...this.place(waiting, observed), ...this.homeless]);
    let turns = 0;
    while (turns < MAX_TURNS && this.turn()) turns += 1;
    if (turns === MAX_TURNS) this.stuck = 'more would follow than a plan works out';
    this.keepState();
    const untouched = layOut(observed);
    const [first] = this.steps;
    return {
      steps: this.steps,
      placements: this.placements,
      unplaced: this.homeless.length,
      unplacedReason: this.homeless.length === 0 ? '' : this.unplacedReason,
      unknown: this.unknown,
      lowestReady: this.steps.reduce((lowest, { ready }) => Math.min(lowest, ready), first?.ready ?? untouched.lowestReady),
      highestLive: this.steps.reduce((highest, { live }) => Math.max(highest, live), first?.live ?? untouched.highestLive),
      minAvailable: observed.minAvailable,
      stuck: this.stuck,
    };
  }

  /** @returns Whether there may be more. */
  private turn(): boolean {
    const { observed, state, decision } = this.advance();
    const laid = layOut(observed).steps;
    // With some that have no node the layout, where everything becomes ready, holds for what is decided now only.
    const now = decision.kind === 'steps' ? laid.filter((step) => step.decision === 0) : [];
    const taken = this.take(this.homeless.length === 0 ? laid : now, observed);
    if (taken > 0) {
      this.state = state;
      return true;
    }
    return this.rest(this.advance());
  }

  /** Nothing moves until something is allowed, or time has passed. */
  private rest({ state, decision, observed }: RolloutAdvance): boolean {
    const before = this.state;
    this.state = state;
    if (decision.kind === 'steps') {
      const isSwitch = decision.steps.some(({ kind }) => kind === 'switchVersion');
      if (isSwitch) this.note(`switch to version ${this.shown(observed.version)}`, observed, this.canonical(state.activeVersion));
      return isSwitch;
    }
    if (decision.kind === 'converged') return before.stagesDone !== state.stagesDone;
    if (state.waitsForPromotion && !state.promoted) {
      this.note('wait until promoted', observed);
      this.state = { ...state, promoted: true };
      return true;
    }
    if (state.untilMs !== undefined && this.passes(state, decision.reason.kind, observed)) {
      this.nowMs = Math.max(this.nowMs, state.untilMs);
      return true;
    }
    this.stuck = state.phase === 'failed' ? `its rollout has failed: ${state.reason}` : decision.reason.text;
    return false;
  }

  /** Whether time is all that is waited for. Said in full, also when a part has passed already. */
  private passes(state: RolloutState, why: WaitReason['kind'], observed: RolloutObserved): boolean {
    const { stages, pauseMs } = toSettings(this.workload.spec ?? create(WorkloadSpecSchema));
    const stage = stages[state.stagesDone];
    if (state.stageReachedAtMs !== undefined && stage !== undefined && stage.wait !== 'promotion') {
      if (stage.wait.ms > 0) this.note(`wait ${textOfMs(stage.wait.ms)}`, observed);
      return true;
    }
    if (why === 'kept') this.note(`keep version ${state.fromVersion} for ${textOfMs(pauseMs)}`, observed);
    return why === 'kept';
  }

  private advance(): RolloutAdvance {
    const { world, workload } = this;
    const { uid, version } = workload;
    const spec = workload.spec ?? create(WorkloadSpecSchema);
    const control = world.controlOf(uid);
    const replicas = world.replicasOf(uid);
    const desired = stillWanted(world.view, workload, replicas, withDefaults(spec).replicas ?? 0);
    const clock = { wallTime: () => this.nowMs };
    const sources = { view: world.view, nodes: this.deps.nodes, readiness: world.readiness, cluster: world.cluster, clock };
    const { observed } = toRolloutInput(sources, workload, replicas, desired);
    return advanceRollout(this.state, {
      settings: toSettings(spec),
      version,
      canonical: (number) => this.canonical(number),
      observed,
      pausedByUser: control.pausedVersion === version,
      failures: this.state.version === version ? (control.rollout?.failedNew ?? 0) : 0,
      changed: true,
      nowMs: this.nowMs,
    });
  }

  /** Takes laid-out steps as far as they go: up to a switch, and no further than what found no node. @returns How many. */
  private take(steps: readonly LaidOutStep[], observed: RolloutObserved): number {
    const stopped = new Set<string>();
    const placed: ReplicaRecord[] = [];
    this.versions = new Map(this.world.replicasOf(this.workload.uid).map(({ id, version }) => [id, version]));
    let taken = 0;
    while (taken < steps.length) {
      const end = endOfDecision(steps, taken);
      if (end === taken) break;
      placed.push(...this.takeDecision(steps.slice(taken, end), stopped, observed));
      taken = end;
      // What comes after it counts on all of these being ready.
      if (this.homeless.length > 0) break;
    }
    this.world.settle(this.workload.uid, stopped, [...placed, ...this.homeless]);
    return taken;
  }

  /** Room is taken before any is freed, as stops take their time; what found none tries again after that. */
  private takeDecision(steps: readonly LaidOutStep[], stopped: Set<string>, observed: RolloutObserved): readonly ReplicaRecord[] {
    const wanted = [...this.homeless];
    const freed: string[] = [];
    for (const { step, ready, live } of steps) {
      if (step.kind === 'createReplica') {
        const where = step.nodeId === undefined ? '' : ` on ${step.nodeId}`;
        this.steps.push({ description: `create 1 of version ${this.shown(step.version)}${where}`, ready, live });
        wanted.push(this.world.makeReplica(this.workload, step.version, step.nodeId ?? ''));
      } else if (step.kind === 'stopReplica') {
        this.steps.push({ description: `stop 1 of version ${this.versionOf(step.replicaId)}`, ready, live });
        stopped.add(step.replicaId);
        freed.push(step.replicaId);
      }
    }
    const staying = wanted.filter(({ id }) => !stopped.has(id));
    const placed = this.place(staying, observed);
    for (const replicaId of freed) this.world.release(replicaId);
    return freed.length > 0 ? [...placed, ...this.place(this.homeless, observed)] : placed;
  }

  /** Gives replicas nodes as the placer does; those that find none are the homeless then. */
  private place(replicas: readonly ReplicaRecord[], observed: RolloutObserved): readonly ReplicaRecord[] {
    const placed: ReplicaRecord[] = [];
    const homeless: ReplicaRecord[] = [];
    for (const [version, group] of groupByVersion(replicas, (number) => this.canonical(number))) {
      if (!this.world.mayLook()) {
        this.unknown += group.length;
        placed.push(...group.map((replica) => this.world.placeReplica(this.workload, replica, '')));
        continue;
      }
      for (const { replica, outcome } of this.decide(version, group, observed).decided) {
        if ('reason' in outcome) {
          homeless.push(replica.value);
          this.unplacedReason = shortReason(outcome.reason);
        } else {
          this.placements.push({ nodeId: outcome.nodeId, score: outcome.score });
          placed.push(this.world.placeReplica(this.workload, replica.value, outcome.nodeId));
        }
      }
    }
    this.homeless = homeless;
    return placed;
  }

  private decide(version: number, group: readonly ReplicaRecord[], { strategy, want }: RolloutObserved): PlacementDecision {
    const { cluster, view } = this.world;
    const { uid, spec } = this.workload;
    const request = toPlacementRequest(this.workload, view.version(uid, version)?.template ?? spec ?? create(WorkloadSpecSchema));
    const replicas = group.map((value) => ({ value, revision: 0n }));
    if (group.some(({ onlyNodeId }) => onlyNodeId !== '')) return decideBound(cluster, request, replicas);
    const isNewSet = strategy?.kind === 'blueGreen' && version !== strategy.activeVersion;
    return isNewSet
      ? decideWhole(cluster, request, replicas, { size: want, missing: group.length, complete: true })
      : decideAny(cluster, request, replicas, group.length);
  }

  /** The rollout is as far as its moves have brought it. */
  private keepState(): void {
    const control = this.world.controlOf(this.workload.uid);
    keepRolloutState(control, this.state);
    control.observedGeneration = this.workload.generation;
    this.world.putControl(control);
  }

  private note(description: string, observed: RolloutObserved, active?: number): void {
    const { strategy, replicas } = observed;
    const serving = active ?? (strategy?.kind === 'blueGreen' ? strategy.activeVersion : undefined);
    const live = replicas.filter(({ lost }) => !lost);
    const ready = live.filter(
      (replica) => replica.ready && replica.desired === 'running' && (serving === undefined || replica.version === serving),
    );
    this.steps.push({ description, ready: ready.length, live: live.length });
  }

  private canonical(version: number): number {
    return canonicalVersion(this.world.view, this.workload.uid, version);
  }

  /** The planner speaks of the oldest version with the same template; the newest one names what is wanted now. */
  private shown(version: number): number {
    return this.canonical(this.workload.version) === version ? this.workload.version : version;
  }

  private versionOf(replicaId: string): number {
    return this.versions.get(replicaId) ?? this.workload.version;
  }
}

/** The reason of a replica as the plan tells it. */
function shortReason(reason: string): string {
  return reason.replace(/^no node fits: /, '');
}

/** The steps of one decision may be taken in any order. A switch ends the way for now: what is kept after it, its own state says. */
function endOfDecision(steps: readonly LaidOutStep[], from: number): number {
  const decision = steps[from]?.decision;
  const isMove = (next: LaidOutStep): boolean => next.decision === decision && next.step.kind !== 'switchVersion';
  let end = from;
  for (let next = steps[end]; next !== undefined && isMove(next); next = steps[end]) end += 1;
  return end;
}

function groupByVersion(
  replicas: readonly ReplicaRecord[],
  canonical: (version: number) => number,
): ReadonlyMap<number, readonly ReplicaRecord[]> {
  const groups = new Map<number, ReplicaRecord[]>();
  for (const replica of replicas) {
    const version = canonical(replica.version);
    const group = groups.get(version);
    if (group === undefined) groups.set(version, [replica]);
    else group.push(replica);
  }
  return groups;
}
