import { ConnectError } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import { readErrorDetails } from './error-details.js';

/** What a coordinator that does not lead knows about the leader. */
export interface LeaderHint {
  /** Base address at which agents, clients and coordinators reach the leader. */
  readonly address?: string;
  /** Id of the leader in its SPIFFE ID `/controller/<id>`. */
  readonly id?: string;
  /** Number of its leadership, decimal. */
  readonly epoch?: string;
}

/** Keys of the metadata of an error with the reason LEADERSHIP_LOST. */
const KEYS = { address: 'leader_address', id: 'leader_id', epoch: 'leader_epoch' } as const;

/**
 * Returns the metadata that names the leader in an error with the reason LEADERSHIP_LOST; empty when
 * no leader is known.
 */
export function toLeaderMetadata(leader: {
  readonly address?: string | undefined;
  readonly id?: string | undefined;
  readonly epoch?: bigint | undefined;
}): Readonly<Record<string, string>> {
  const { address, id, epoch } = leader;
  const metadata: Record<string, string> = {};
  if (address !== undefined && address !== '') metadata[KEYS.address] = address;
  if (id !== undefined && id !== '') metadata[KEYS.id] = id;
  if (epoch !== undefined) metadata[KEYS.epoch] = String(epoch);
  return metadata;
}

/**
 * Returns what an error says about the leader; undefined when the error is not the refusal of a
 * coordinator that does not lead. The result is empty when that coordinator knows no leader.
 * @param reason - Any thrown value: a `CloudlessError`, or the error of a call.
 */
export function readLeaderHint(reason: unknown): LeaderHint | undefined {
  const details = readReasonAndMetadata(reason);
  if (details?.reason !== 'LEADERSHIP_LOST') return undefined;
  const { metadata = {} } = details;
  const hint: { address?: string; id?: string; epoch?: string } = {};
  for (const part of ['address', 'id', 'epoch'] as const) {
    const value = metadata[KEYS[part]];
    if (value !== undefined && value !== '') hint[part] = value;
  }
  return hint;
}

function readReasonAndMetadata(
  reason: unknown,
): { readonly reason?: string; readonly metadata?: Readonly<Record<string, string>> } | undefined {
  if (reason instanceof CloudlessError) return reason;
  return reason instanceof ConnectError ? readErrorDetails(reason) : undefined;
}
