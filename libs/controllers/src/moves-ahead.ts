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

/** One predicted step, with the counts after it. */
export interface MoveAhead {
  readonly description: string;
  readonly ready: number;
  readonly live: number;
}

/** The predicted steps of one workload, up to the point where nothing more happens by itself. */
export interface MovesAhead {
  readonly steps: readonly MoveAhead[];
  readonly placements: readonly { readonly nodeId: string; readonly score: number }[];
  /** Number of new replicas that no node fits. The reason is in {@link unplacedReason}. */
  readonly unplaced: number;
  readonly unplacedReason: string;
  /** Number of new replicas whose placement was not predicted. */
  readonly unknown: number;
  readonly lowestReady: number;
  readonly highestLive: number;
  readonly minAvailable: number;
  /** Why the workload does not reach its wanted state by itself; undefined when it does. */
  readonly stuck: string | undefined;
}

export interface MovesAheadDeps {
  readonly nodes: NodeDirectory;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/**
 * Most rounds of a dry run. A rollout has at most 32 canary steps, each with a wait; more rounds
 * mean that it never ends.
 */
const MAX_TURNS = 200;

/**
 * Predicts the changes of a workload until nothing more happens by itself. Uses the functions of
 * the controllers and assumes that nothing fails: new replicas become ready, stops are confirmed,
 * waits pass, and every promotion is granted.
 */
export function takeMoves(
  world: WorldAhead,
  deps: MovesAheadDeps,
  workload: WorkloadRecord,
): MovesAhead {
  return new Course(world, deps, workload).run();
}

/** The dry run of one workload. */
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
    if (turns === MAX_TURNS) this.stuck = 'the rollout needs more rounds than a dry run predicts';
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

  /**
   * Predicts the steps of one round.
   * @returns Whether more may follow.
   */
  private turn(): boolean {
    const { observed, state, decision } = this.advance();
    const laid = layOut(observed).steps;
    // While replicas have no node, only the steps of the first decision are valid: the prediction
    // assumes that every new replica becomes ready.
    const now = decision.kind === 'steps' ? laid.filter((step) => step.decision === 0) : [];
    const taken = this.take(this.places.homeless.length === 0 ? laid : now, observed);
    if (taken > 0) {
      this.state = state;
      return true;
    }
    return this.rest(this.advance());
  }

  /**
   * Handles a round without steps: a switch, a promotion, or a wait.
   * @returns Whether more may follow.
   */
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

  /**
   * Tells whether the wait ends by time alone, and adds it as a step. The full time is shown even
   * when a part has passed already.
   */
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
   * Applies predicted steps up to a switch, or up to a decision that leaves replicas without a
   * node.
   * @returns The number of applied steps.
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
      // Later decisions assume that all of these become ready.
      if (this.places.homeless.length > 0) break;
    }
    this.world.settle(this.workload.uid, stopped, [...placed, ...this.places.homeless]);
    return taken;
  }

  /**
   * Applies the steps of one decision. New replicas are placed before resources are released, as
   * stops take time; those that found no node are tried again after the release.
   */
  private takeDecision(
    steps: readonly LaidOutStep[],
    stopped: Set<string>,
    observed: RolloutObserved,
  ): readonly ReplicaRecord[] {
    const wanted = [...this.places.homeless];
    const freed: string[] = [];
    for (const laid of steps) {
      const { step } = laid;
      const counts = { ready: laid.ready, live: laid.live };
      if (step.kind === 'createReplica') {
        const where = step.nodeId === undefined ? '' : ` on ${step.nodeId}`;
        this.steps.push({
          description: `create 1 of version ${this.shown(step.version)}${where}`,
          ...counts,
        });
        wanted.push(this.world.makeReplica(this.workload, step.version, step.nodeId ?? ''));
      } else if (step.kind === 'stopReplica') {
        this.steps.push({
          description: `stop 1 of version ${this.versionOf(step.replicaId)}`,
          ...counts,
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

  /** Stores the predicted rollout state in the simulated cluster. */
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
   * The version number to show. The planner uses the oldest version with the same template; users
   * know the wanted version by its newest number.
   */
  private shown(version: number): number {
    return this.canonical(this.workload.version) === version ? this.workload.version : version;
  }

  private versionOf(replicaId: string): number {
    return this.present.get(replicaId)?.version ?? this.workload.version;
  }
}

/**
 * The index after the last step of a decision, or of a switch in it. The steps after a switch
 * follow from the state that the switch leaves.
 */
function endOfDecision(steps: readonly LaidOutStep[], from: number): number {
  const decision = steps[from]?.decision;
  const isMove = (next: LaidOutStep): boolean =>
    next.decision === decision && next.step.kind !== 'switchVersion';
  let end = from;
  for (let next = steps[end]; next !== undefined && isMove(next); next = steps[end]) end += 1;
  return end;
}
