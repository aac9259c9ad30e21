import { timestampMs } from '@bufbuild/protobuf/wkt';
import { NodeStatus_Phase as NodePhase, isRolledOut, type WorkloadSpec } from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { definedFields, type Clock } from '@cloudless/base';
import { isLive, toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';
import {
  STABLE_PREFIX,
  compileGate,
  type CompiledGate,
  type GateFigure,
  type GateResult,
} from '@cloudless/policy';
import type { GateObservation } from '@cloudless/rollout';
import type { NodeDirectory } from '../../node/node-directory.js';
import { TrafficWindow } from './traffic-window.js';
import { computeFigures } from './version-figures.js';

/** Compiled gates that are kept; one is in use for each workload at a gated step. */
const MAX_COMPILED = 1_000;

export interface RolloutGatesDeps {
  readonly view: () => Pick<
    ClusterView,
    'control' | 'nodes' | 'replica' | 'replicasOf' | 'version' | 'workload'
  >;
  readonly nodes: Pick<NodeDirectory, 'getReplicaUsage' | 'isAlive' | 'status'>;
  readonly clock: Clock;
}

/** A figure that a gate uses; the value is absent when the figure is missing. */
export interface SeenFigure {
  readonly name: string;
  readonly value?: number;
}

/** The newest evaluation of a gate by this coordinator. */
export interface GateEvaluation {
  readonly expression: string;
  readonly result: GateResult;
  readonly figures: readonly SeenFigure[];
}

/** Evaluates the gates of canary steps on the figures that proxies and agents report. */
export class RolloutGates {
  /** Traffic of the replicas of workloads with a rollout that has gates. */
  readonly traffic: TrafficWindow;
  private readonly compiled = new Map<string, CompiledGate | Error>();
  private readonly evaluations = new Map<string, GateEvaluation>();
  private readonly listeners = new Set<(uid: string) => void>();

  constructor(private readonly deps: RolloutGatesDeps) {
    this.traffic = new TrafficWindow({
      clock: deps.clock,
      findWatched: (replicaId) => this.findWatched(replicaId),
      listProxyNodes: () => this.listProxyNodes(),
    });
  }

  /** Calls the listener with the uid of each workload whose gate was evaluated. */
  onEvaluated(listener: (uid: string) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Returns the newest evaluation of the gate of a workload; undefined when there is none. */
  find(uid: string): GateEvaluation | undefined {
    return this.evaluations.get(uid);
  }

  /** Forgets a workload. */
  forget(uid: string): void {
    this.evaluations.delete(uid);
  }

  /**
   * Evaluates the gate of the current canary step of a workload.
   * @param replicas - All replicas of the workload.
   * @returns Undefined when the step has no gate, or its replicas have not been ready yet.
   */
  evaluate(
    workload: WorkloadRecord,
    control: ControlRecord,
    replicas: readonly ReplicaRecord[],
  ): GateObservation | undefined {
    const { uid, version, spec } = workload;
    const { rollout } = control;
    const expression = spec?.rollout?.steps[rollout?.stepsDone ?? 0]?.gate ?? '';
    const isOpen = rollout?.version === version && !isRolledOut(control.rolloutPhase);
    if (expression === '' || !isOpen) {
      if (this.evaluations.delete(uid)) this.notify(uid);
      return undefined;
    }
    const evaluation = this.evaluateNow(workload, control, replicas, expression);
    this.evaluations.set(uid, evaluation);
    this.notify(uid);
    const { result, figures } = evaluation;
    return {
      expression,
      verdict: result.kind,
      text: result.kind === 'noData' ? result.reason : formatFigures(figures),
    };
  }

  private evaluateNow(
    { uid, version }: WorkloadRecord,
    { activeVersion }: ControlRecord,
    replicas: readonly ReplicaRecord[],
    expression: string,
  ): GateEvaluation {
    const gate = this.compile(expression);
    if (gate instanceof Error)
      return { expression, result: { kind: 'noData', reason: gate.message }, figures: [] };
    const view = this.deps.view();
    const staying = replicas.filter((replica) => isLive(replica) && replica.desiredRunning);
    const sources = { traffic: this.traffic, usage: this.deps.nodes };
    const computeFor = (wanted: number) => {
      const canonical = toCanonicalVersion(view, uid, wanted);
      return computeFigures(
        sources,
        staying.filter((replica) => toCanonicalVersion(view, uid, replica.version) === canonical),
      );
    };
    const own = computeFor(version);
    const stable = computeFor(activeVersion);
    const values = new Map(
      gate.figures.map((name) => [
        name,
        name.startsWith(STABLE_PREFIX)
          ? stable(name.slice(STABLE_PREFIX.length) as GateFigure)
          : own(name as GateFigure),
      ]),
    );
    const result = gate.evaluate((name) => values.get(name));
    const missing = result.kind === 'noData' ? this.traffic.explainMissing() : undefined;
    return {
      expression,
      result:
        result.kind === 'noData' && missing !== undefined && gate.figures.some(isTraffic)
          ? { kind: 'noData', reason: `${result.reason}: ${missing}` }
          : result,
      figures: [...values].map(([name, value]) => ({ name, ...definedFields({ value }) })),
    };
  }

  private compile(expression: string): CompiledGate | Error {
    let gate = this.compiled.get(expression);
    if (gate === undefined) {
      try {
        gate = compileGate(expression);
      } catch (reason) {
        gate = reason instanceof Error ? reason : new Error(String(reason));
      }
      this.compiled.set(expression, gate);
      if (this.compiled.size > MAX_COMPILED)
        this.compiled.delete([...this.compiled.keys()][0] ?? '');
    }
    return gate;
  }

  /** Returns the creation of a replica of a workload whose rollout has gates and has not ended. */
  private findWatched(replicaId: string): number | undefined {
    const view = this.deps.view();
    const replica = view.replica(replicaId)?.value;
    const workload = replica && view.workload(replica.uid)?.value;
    if (replica === undefined || !hasGates(workload?.spec)) return undefined;
    const control = view.control(replica.uid)?.value;
    const hasEnded =
      control?.rollout?.version === workload?.version && isRolledOut(control?.rolloutPhase ?? 0);
    if (hasEnded) return undefined;
    return replica.createdAt === undefined ? 0 : timestampMs(replica.createdAt);
  }

  private *listProxyNodes(): Iterable<string> {
    const { nodes, view } = this.deps;
    for (const { value } of view().nodes())
      if (value.hello?.network !== undefined && nodes.status(value.id).phase === NodePhase.READY)
        yield value.id;
  }

  private notify(uid: string): void {
    for (const listener of this.listeners) listener(uid);
  }
}

/** Returns true when a spec has a canary step with a gate. */
export function hasGates(spec: WorkloadSpec | undefined): boolean {
  return spec?.rollout?.steps.some(({ gate }) => gate !== '') ?? false;
}

/** Formats figures for people: `errors_per_s = 4.2, p99_ms = 130`. */
export function formatFigures(figures: readonly SeenFigure[]): string {
  return figures
    .map(({ name, value }) => `${name} = ${value === undefined ? 'missing' : formatNumber(value)}`)
    .join(', ');
}

function formatNumber(value: number): string {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}

function isTraffic(name: string): boolean {
  return !/(^|\.)(cpu_millis|memory_bytes|restarts)$/.test(name);
}
