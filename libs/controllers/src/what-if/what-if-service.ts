import type {
  ProposeMovesRequest,
  ProposeMovesResponse,
  SimulateClusterResponse,
} from '@cloudless/api';
import { CloudlessError, runInSlices, sleep, type Clock, type StopSignal } from '@cloudless/base';
import type { ClusterState, ClusterView, SimulatedChanges } from '@cloudless/cluster-state';
import type { ScoreWeights } from '@cloudless/scheduler';
import { FrozenSource, type LiveSource } from '../dry-run/frozen-source.js';
import type { SimulationSource } from '../dry-run/simulation-source.js';
import { simulateCluster } from './cluster-simulation.js';
import { encodeSnapshot } from './cluster-snapshot.js';
import { proposeMoves } from './move-proposal.js';
import { createRecordSource } from './record-source.js';

export interface WhatIfServiceDeps extends Omit<LiveSource, 'state' | 'clock'> {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly weights?: ScoreWeights | undefined;
}

/** A state of the cluster, opened for one simulation. Close it after use. */
export interface OpenedState {
  /** The records, for the validation of the changes before the next turn of the event loop. */
  readonly view: ClusterView;
  /**
   * Predicts the effect of changes. Runs in slices, between which other work runs. Call it in the
   * same turn of the event loop in which the state was opened.
   * @throws StoppedError when the signal is aborted.
   */
  simulate(changes: SimulatedChanges, signal: StopSignal): Promise<SimulateClusterResponse>;
  close(): void;
}

/**
 * Most replicas of a state that is read from the history: all of its records are read and decoded,
 * which takes about 2 s of CPU and 600 MB of memory for so many.
 */
const MAX_HISTORIC_REPLICAS = 100_000;

/** Predicts the effect of changes on the whole cluster. Commits nothing. */
export class WhatIfService {
  constructor(private readonly deps: WhatIfServiceDeps) {}

  /** Opens the current state. */
  openCurrent(): OpenedState {
    const source = new FrozenSource(this.deps);
    return this.open(source, this.deps.state.view(), () => source.close());
  }

  /**
   * Opens an older state.
   * @throws kind `compacted` when the history no longer contains the revision, `exhausted` for a
   *   cluster with more than 100 000 replicas.
   */
  async openRevision(revision: bigint): Promise<OpenedState> {
    const { state, clock, weights } = this.deps;
    await state.checkRevision(revision);
    this.checkSize(state.view());
    const pause = (): Promise<void> => sleep(clock, 0);
    const nodes = await state.recordsAt('node', revision, pause);
    const workloads = await state.recordsAt('workload', revision, pause);
    const versions = await state.recordsAt('version', revision, pause);
    const controls = await state.recordsAt('control', revision, pause);
    const replicas = await state.recordsAt('replica', revision, pause);
    const source = createRecordSource(
      {
        revision,
        nodes: nodes.values(),
        workloads: workloads.values(),
        versions: [...versions].map(([id, record]) => [id.split('/')[0] ?? '', record] as const),
        controls: controls.values(),
        replicas: replicas.values(),
      },
      { clock, weights },
    );
    return this.open(source, source.view, () => undefined);
  }

  /**
   * Proposes moves of replicas that spread workloads more evenly. Runs in slices.
   * @throws StoppedError when the signal is aborted.
   */
  async proposeMoves(
    request: ProposeMovesRequest,
    signal: StopSignal,
  ): Promise<ProposeMovesResponse> {
    const source = new FrozenSource(this.deps);
    try {
      return await this.runInSlices(proposeMoves(source, request), signal);
    } finally {
      source.close();
    }
  }

  /** Encodes the current state as a snapshot for simulations outside the cluster, in chunks. */
  *encodeSnapshot(): Generator<Uint8Array> {
    const source = new FrozenSource(this.deps);
    try {
      yield* encodeSnapshot(source, this.deps.state.clusterId);
    } finally {
      source.close();
    }
  }

  private open(source: SimulationSource, view: ClusterView, close: () => void): OpenedState {
    return {
      view,
      close,
      simulate: (changes, signal) => this.runInSlices(simulateCluster(source, changes), signal),
    };
  }

  private runInSlices<Result>(steps: Generator<void, Result>, signal: StopSignal): Promise<Result> {
    return runInSlices(steps, () => sleep(this.deps.clock, 0, signal));
  }

  private checkSize(view: ClusterView): void {
    let count = 0;
    for (const _replica of view.replicas()) {
      count += 1;
      if (count > MAX_HISTORIC_REPLICAS)
        throw new CloudlessError(
          'exhausted',
          `the cluster has more than ${MAX_HISTORIC_REPLICAS} replicas, too many to read an older revision; save a snapshot with "cloudlessctl admin snapshot" and simulate with --snapshot`,
        );
    }
  }
}
