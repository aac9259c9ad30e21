import { create } from '@bufbuild/protobuf';
import { CoordinatorMessageSchema, type CoordinatorMessage } from '@cloudless/api';
import { needsRenewal, type ClusterView } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import { presentTrustBundle } from './node-certificate.js';

/** The part of the session of an agent that {@link RenewalRequests} needs. */
export interface RenewingSession {
  readonly nodeId: string;
  /** Serial number of the newest certificate of the connection. Undefined: not known. */
  readonly serial: string | undefined;
  requestRenewal(message: CoordinatorMessage): void;
}

/**
 * Agents that one call of `send` asks. The limit spreads the renewals of a rotation, which cost
 * CPU, in a cluster of thousands of nodes, and leaves room for everything else.
 */
const MAX_PER_TURN = 50;
/** Time after which an agent that has not renewed is asked again, milliseconds. */
const ASK_AGAIN_MS = 10_000;

/**
 * Asks connected agents to renew their certificates when the trust bundle or the issuing generation
 * has changed, and asks again until they have renewed.
 */
export class RenewalRequests {
  /** Time of the last request on the monotonic clock. */
  private readonly askedAt = new WeakMap<RenewingSession, number>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'identity'>) {}

  /** Asks the next agents. Must be called every second with all sessions. */
  send(sessions: Iterable<RenewingSession>): void {
    const { identity, state, clock } = this.deps;
    if (identity === undefined) return;
    const view = state.view();
    const now = clock.now();
    let left = MAX_PER_TURN;
    for (const session of sessions) {
      if (left === 0) return;
      const askedAtMs = this.askedAt.get(session) ?? Number.NEGATIVE_INFINITY;
      if (now - askedAtMs < ASK_AGAIN_MS || !mustRenew(view, session)) continue;
      left -= 1;
      this.askedAt.set(session, now);
      const trustBundle = presentTrustBundle(identity);
      session.requestRenewal(
        create(CoordinatorMessageSchema, {
          message: { case: 'renewCertificate', value: { trustBundle } },
        }),
      );
    }
  }
}

function mustRenew(view: ClusterView, { nodeId, serial }: RenewingSession): boolean {
  const authority = view.certificateAuthority()?.value;
  const identity = view.node(nodeId)?.value.identity;
  if (authority === undefined || identity === undefined) return false;
  if (needsRenewal(authority, identity)) return true;
  // The reply with the new certificate was lost, and the agent has come back with the one before.
  const { previous } = identity;
  return (
    previous !== undefined &&
    previous.serial === serial &&
    previous.generation < authority.issuingGeneration
  );
}
