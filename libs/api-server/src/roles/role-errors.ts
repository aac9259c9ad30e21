import { ConnectError } from '@connectrpc/connect';
import { isRefusedStream, readErrorDetails, toLeaderMetadata } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { KnownLeader } from './leader-directory.js';

/** Key of the metadata of an error: the call was refused before anything was done. */
export const NOT_STARTED = 'not_started';

/**
 * Returns the error of a coordinator that cannot serve a call because it does not lead. The
 * metadata name the leader, if one is known.
 * @param what - The subject of the message, such as `sessions of agents are`.
 */
export function createNotLeaderError(
  leader: KnownLeader | undefined,
  what = 'this call is',
): CloudlessError {
  const { address = '', coordinatorId = '', epoch } = leader ?? {};
  const named = address === '' ? coordinatorId : address;
  const message =
    leader === undefined
      ? 'no coordinator leads at the moment; retry'
      : `${what} served by the leader${named === '' ? '' : ` ${named}`}; call the leader`;
  return new CloudlessError('LEADERSHIP_LOST', message, {
    metadata: { ...toLeaderMetadata({ address, id: coordinatorId, epoch }), [NOT_STARTED]: 'true' },
    ...(leader === undefined ? { retryAfterMs: NO_LEADER_RETRY_MS } : {}),
  });
}

/** Delay after which a client repeats a call that found no leader: most of an election. */
const NO_LEADER_RETRY_MS = 1_000;

/** The error of a stream whose coordinator has become leader or follower. */
export function createRoleChangedError(leader: KnownLeader | undefined): CloudlessError {
  const { address = '', coordinatorId = '', epoch } = leader ?? {};
  return new CloudlessError(
    'LEADERSHIP_LOST',
    'the stream ended because the leadership has changed; open the stream again',
    { metadata: toLeaderMetadata({ address, id: coordinatorId, epoch }) },
  );
}

/**
 * The error of a call that may or may not have been made when the connection to the leader broke.
 */
export function createUnknownOutcomeError(rpc: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `the connection to the leader broke during ${rpc}, which may or may not have been done; read the state, or repeat the call with the same request id`,
    { cause },
  );
}

/** The error of a forwarded stream whose connection to the leader broke. */
export function createInterruptedError(rpc: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'STREAM_INTERRUPTED',
    `the connection to the leader broke during ${rpc}; open the stream again`,
    { cause },
  );
}

/** Returns true for an error of a coordinator, false for one of the connection to it. */
export function isAnswer(reason: unknown): boolean {
  return reason instanceof ConnectError && readErrorDetails(reason).reason !== undefined;
}

/** What the failure of a forwarded call means for a repetition. */
export type ForwardedFailure =
  /** The leader has answered: the client gets this error. */
  | 'answered'
  /** The other coordinator has not begun the call. */
  | 'notStarted'
  /** The connection broke, so the outcome of the call is unknown. */
  | 'unknown';

/** Classifies the failure of a call that was sent to the leader. */
export function classifyFailure(reason: unknown): ForwardedFailure {
  // Every error of a coordinator has a reason; those of the transport have none.
  if (!(reason instanceof ConnectError) || !isAnswer(reason))
    return isRefusedStream(reason) ? 'notStarted' : 'unknown';
  const { reason: errorReason, metadata } = readErrorDetails(reason);
  if (errorReason !== 'LEADERSHIP_LOST') return 'answered';
  return metadata[NOT_STARTED] === 'true' ? 'notStarted' : 'unknown';
}
