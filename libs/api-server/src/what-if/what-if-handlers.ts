import type { HandlerContext } from '@connectrpc/connect';
import type {
  ProposeMovesRequest,
  ProposeMovesResponse,
  SimulateClusterRequest,
  SimulateClusterResponse,
} from '@cloudless/api';
import { CallLimit } from '../access/call-limit.js';
import type { ApiServerDeps } from '../ports.js';
import { resolveSimulatedChanges } from './resolve-changes.js';

/**
 * Most simulations at the same time. Each has a copy of the scheduler's model, and takes a part of
 * the event loop.
 */
const MAX_SIMULATIONS = { most: 2, mostOfUser: 1, noun: 'simulations' };

/** The part of the context of a call that a simulation needs. */
type SimulationContext = Partial<HandlerContext> & Pick<HandlerContext, 'signal'>;

/** Handlers of the simulation calls of CoordinatorService. */
export class WhatIfHandlers {
  private readonly limit: CallLimit;

  constructor(
    private readonly deps: Pick<
      ApiServerDeps,
      'whatIf' | 'explainImpossibleLimits' | 'clock' | 'getCaller'
    >,
  ) {
    this.limit = new CallLimit(deps, MAX_SIMULATIONS);
  }

  /**
   * Predicts the effect of changes on the whole cluster.
   * @throws kind `exhausted` while another simulation of the user, or two others, run; the errors of
   *   the validation.
   */
  async simulateCluster(
    { changes, revision }: SimulateClusterRequest,
    context: SimulationContext,
  ): Promise<SimulateClusterResponse> {
    return this.runLimited(context, async () => {
      const { whatIf } = this.deps;
      const state = revision === 0n ? whatIf.openCurrent() : await whatIf.openRevision(revision);
      try {
        // No await before the simulation begins: the current state must not change in between.
        return await state.simulate(
          resolveSimulatedChanges(this.deps, state.view, changes),
          context.signal,
        );
      } finally {
        state.close();
      }
    });
  }

  /**
   * Proposes moves of replicas that spread workloads more evenly.
   * @throws kind `exhausted` while another simulation of the user, or two others, run.
   */
  proposeMoves(
    request: ProposeMovesRequest,
    context: SimulationContext,
  ): Promise<ProposeMovesResponse> {
    return this.runLimited(context, () => this.deps.whatIf.proposeMoves(request, context.signal));
  }

  private async runLimited<Result>(
    context: SimulationContext,
    run: () => Promise<Result>,
  ): Promise<Result> {
    const end = this.limit.begin(context);
    try {
      return await run();
    } finally {
      end();
    }
  }
}
