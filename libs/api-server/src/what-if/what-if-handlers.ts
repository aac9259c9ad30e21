import type { HandlerContext } from '@connectrpc/connect';
import type {
  ProposeMovesRequest,
  ProposeMovesResponse,
  SimulateClusterRequest,
  SimulateClusterResponse,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';
import { resolveSimulatedChanges } from './resolve-changes.js';

/**
 * Most simulations at the same time. Each has a copy of the scheduler's model, and takes a part of
 * the event loop.
 */
const MAX_SIMULATIONS = 2;

/** Handlers of the simulation calls of CoordinatorService. */
export class WhatIfHandlers {
  private running = 0;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'whatIf' | 'explainImpossibleLimits' | 'clock'>,
  ) {}

  /**
   * Predicts the effect of changes on the whole cluster.
   * @throws kind `exhausted` while two other simulations run; the errors of the validation.
   */
  async simulateCluster(
    { changes, revision }: SimulateClusterRequest,
    { signal }: Pick<HandlerContext, 'signal'>,
  ): Promise<SimulateClusterResponse> {
    return this.runLimited(async () => {
      const { whatIf } = this.deps;
      const state = revision === 0n ? whatIf.openCurrent() : await whatIf.openRevision(revision);
      try {
        // No await before the simulation begins: the current state must not change in between.
        return await state.simulate(
          resolveSimulatedChanges(this.deps, state.view, changes),
          signal,
        );
      } finally {
        state.close();
      }
    });
  }

  /**
   * Proposes moves of replicas that spread workloads more evenly.
   * @throws kind `exhausted` while two other simulations run.
   */
  proposeMoves(
    request: ProposeMovesRequest,
    { signal }: Pick<HandlerContext, 'signal'>,
  ): Promise<ProposeMovesResponse> {
    return this.runLimited(() => this.deps.whatIf.proposeMoves(request, signal));
  }

  private async runLimited<Result>(run: () => Promise<Result>): Promise<Result> {
    if (this.running >= MAX_SIMULATIONS)
      throw new CloudlessError(
        'RATE_LIMITED',
        `${MAX_SIMULATIONS} simulations are running already; try again when one has ended`,
      );
    this.running += 1;
    try {
      return await run();
    } finally {
      this.running -= 1;
    }
  }
}
