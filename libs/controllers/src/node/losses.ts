import type { LossCause } from '@cloudless/membership';
import { formatSeconds } from './departures.js';

export interface LossLimits {
  /** Milliseconds within which an agent that left could have returned. */
  readonly graceMs: number;
  /** Milliseconds for which the main loop of an agent may stand still. */
  readonly hungAfterMs: number;
  /**
   * Milliseconds for which this coordinator has led, for a node whose agent has not connected to
   * this coordinator; undefined for other nodes.
   */
  readonly neverConnectedForMs?: number | undefined;
  /** True when an operator confirmed the loss and thereby ended the grace. */
  readonly confirmed: boolean;
}

/** Explains to users why a node is lost, as a clause about the node. */
export function explainLoss(
  cause: LossCause,
  { graceMs, hungAfterMs, neverConnectedForMs, confirmed }: LossLimits,
): string {
  switch (cause) {
    case 'silence':
    case 'reset':
      return neverConnectedForMs === undefined
        ? 'its lease ended: no message from its agent'
        : `its agent has not connected to this coordinator, which has led for ${formatSeconds(neverConnectedForMs)}`;
    case 'departure':
      return confirmed
        ? 'its agent left, and an operator confirmed the loss'
        : `its agent left and did not return within ${formatSeconds(graceMs)}`;
    case 'hung':
      return `the main loop of its agent did not turn for ${formatSeconds(hungAfterMs)}`;
  }
}
