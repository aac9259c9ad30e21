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
import { PlacesAhead } from './places-ahead.js';
import { toRolloutInput } from './rollout-input.js';
import { keepRolloutState, toRolloutState, toSettings } from './rollout-state.js';
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

/**
 * A rollout has at most 32 canary steps, each with its wait; beyond so many turns something moves
 * without end.
 */
const MAX_TURNS = 200;

/**
 * Takes a workload of the world to where it comes to rest, with the same functions that the
 * controllers use, as if nothing failed: what is made becomes ready, stops are confirmed, what is
 * waited for by time passes, and somebody promotes what waits for that.
 */
export function takeMoves(
  world: WorldAhead,
  deps: MovesAheadDeps,
  workload: WorkloadRecord,
): MovesAhead {
  return new Course(world, deps, workload).run();
}

/** One workload on its way. */
class Course {
  private readonly steps: MoveAhead[] = [];
  private readonly places: PlacesAhead;
  private present: ReadonlyMap<string, ReplicaRecord> = new Map();
  private state: RolloutState;
  private nowMs: number;
  private stuck: string | undefined;

  constructor(
    private readonly world: WorldAhead,
    private readonly deps: MovesAheadDeps,
    private readonly workload: WorkloadRecord,
  ) {
    this.places = new PlacesAhead(world, workload);
    this.state = toRolloutState(world.controlOf(workload.uid));
    this.nowMs = deps.clock.wallTime();
  }

  run(): MovesAhead {
    const { uid } = this.workload;
    const waiting = this.world
      .replicasOf(uid)
      .filter(
        ({ desiredRunning, nodeId, phase }) =>
          desiredRunning && nodeId === '' && phase === Phase.PENDING,
      );
    const { observed } = this.advance();
    const placed = this.places.take(waiting, observed);
    this.world.put(uid, [...placed, ...this.places.homeless]);
    let turns = 0;
    while (turns < MAX_TURNS && this.turn()) turns += 1;
    if (turns === MAX_TURNS) this.stuck = 'more would follow than a plan works out';
    this.keepState();
    const untouched = layOut(observed);
    const [first] = this.steps;
    return {
      steps: this.steps,
      placements: this.places.placements,
      unplaced: this.places.homeless.length,
      unplacedReason: this.places.homeless.length === 0 ? '' : this.places.reason,
      unknown: this.places.unknown,
      lowestReady: this.steps.reduce(
        (lowest, { ready }) => Math.min(lowest, ready),
        first?.ready ?? untouched.lowestReady,
      ),
      highestLive: this.steps.reduce(
        (highest, { live }) => Math.max(highest, live),
        first?.live ?? untouched.highestLive,
      ),
      minAvailable: observed.minAvailable,
      stuck: this.stuck,
    };
  }

  /** @returns Whether there may be more. */
  private turn(): boolean {
    const { observed, state, decision } = this.advance();
    const laid = layOut(observed).steps;
    // With some that have no node the layout, where everything becomes ready, holds for what is
    // decided now only.
    const now = decision.kind === 'steps' ? laid.filter((step) => step.decision === 0) : [];
    const taken = this.take(this.places.homeless.length === 0 ? laid : now, observed);
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
      if (isSwitch)
        this.note(
          `switch to version ${this.shown(observed.version)}`,
          observed,
          this.canonical(state.activeVersion),
        );
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
    this.stuck =
      state.phase === 'failed' ? `its rollout has failed: ${state.reason}` : decision.reason.text;
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
    if (why === 'kept')
      this.note(`keep version ${state.fromVersion} for ${textOfMs(pauseMs)}`, observed);
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
    const sources = {
      view: world.view,
      nodes: this.deps.nodes,
      readiness: world.readiness,
      cluster: world.cluster,
      clock,
    };
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

  /**
   * Takes laid-out steps as far as they go: up to a switch, and no further than what found no node.
   * @returns How many.
   */
  private take(steps: readonly LaidOutStep[], observed: RolloutObserved): number {
    const stopped = new Set<string>();
    const placed: ReplicaRecord[] = [];
    this.present = new Map(
      this.world.replicasOf(this.workload.uid).map((replica) => [replica.id, replica]),
    );
    let taken = 0;
    while (taken < steps.length) {
      const end = endOfDecision(steps, taken);
      if (end === taken) break;
      placed.push(...this.takeDecision(steps.slice(taken, end), stopped, observed));
      taken = end;
      // What comes after it counts on all of these being ready.
      if (this.places.homeless.length > 0) break;
    }
    this.world.settle(this.workload.uid, stopped, [...placed, ...this.places.homeless]);
    return taken;
  }

  /**
   * Room is taken before any is freed, as stops take their time; what found none tries again after
   * that.
   */
  private takeDecision(
    steps: readonly LaidOutStep[],
    stopped: Set<string>,
    observed: RolloutObserved,
  ): readonly ReplicaRecord[] {
    const wanted = [...this.places.homeless];
    const freed: string[] = [];
    for (const { step, ready, live } of steps) {
      if (step.kind === 'createReplica') {
        const where = step.nodeId === undefined ? '' : ` on ${step.nodeId}`;
        this.steps.push({
          description: `create 1 of version ${this.shown(step.version)}${where}`,
          ready,
          live,
        });
        wanted.push(this.world.makeReplica(this.workload, step.version, step.nodeId ?? ''));
      } else if (step.kind === 'stopReplica') {
        this.steps.push({
          description: `stop 1 of version ${this.versionOf(step.replicaId)}`,
          ready,
          live,
        });
        const leaving = this.present.get(step.replicaId);
        if (leaving !== undefined) this.world.leave(this.workload, leaving);
        stopped.add(step.replicaId);
        freed.push(step.replicaId);
      }
    }
    const staying = wanted.filter(({ id }) => !stopped.has(id));
    const placed = this.places.take(staying, observed);
    for (const replicaId of freed) this.world.release(replicaId);
    return freed.length > 0
      ? [...placed, ...this.places.take(this.places.homeless, observed)]
      : placed;
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
      (replica) =>
        replica.ready &&
        replica.desired === 'running' &&
        (serving === undefined || replica.version === serving),
    );
    this.steps.push({ description, ready: ready.length, live: live.length });
  }

  private canonical(version: number): number {
    return canonicalVersion(this.world.view, this.workload.uid, version);
  }

  /**
   * The planner speaks of the oldest version with the same template; the newest one names what is
   * wanted now.
   */
  private shown(version: number): number {
    return this.canonical(this.workload.version) === version ? this.workload.version : version;
  }

  private versionOf(replicaId: string): number {
    return this.present.get(replicaId)?.version ?? this.workload.version;
  }
}

/**
 * The steps of one decision may be taken in any order. A switch ends the way for now: what is kept
 * after it, its own state says.
 */
function endOfDecision(steps: readonly LaidOutStep[], from: number): number {
  const decision = steps[from]?.decision;
  const isMove = (next: LaidOutStep): boolean =>
    next.decision === decision && next.step.kind !== 'switchVersion';
  let end = from;
  for (let next = steps[end]; next !== undefined && isMove(next); next = steps[end]) end += 1;
  return end;
}
