import { randomUUID } from 'node:crypto';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  GetMasterKeyInfoResponseSchema,
  RotateMasterKeyResponseSchema,
  type GetMasterKeyInfoResponse,
  type RotateMasterKeyResponse,
} from '@cloudless/api';
import { sleep } from '@cloudless/base';
import { toMessageJson, type CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { Deadline, withReconnect } from '../../call/reconnect.js';
import type { Invocation } from '../../command-tree.js';
import { formatSpan } from '../../output/human.js';
import {
  countVersions,
  describeRotation,
  explainRotation,
  formatMasterKeys,
} from '../../views/master-key-view.js';
import { RotationProgress } from '../../wait/rotation-progress.js';
import { WAIT_TIMEOUT_MS } from '../../wait/wait-workload.js';
import { askUser, canAsk } from '../ask-user.js';
import { hasFlag, refuseNames } from '../options.js';

/** Interval between two reads of the progress. */
const POLL_MS = 1_000;
/** Time limit of one read of the progress. */
const READ_TIMEOUT_MS = 30_000;

/** Shows the master keys. Exit code 4: the coordinator that leads cannot decrypt them. */
export async function showMasterKeys({ session }: Invocation): Promise<void> {
  const info = await readMasterKeys(session);
  if (session.isStructured)
    await session.printValue(toMessageJson(GetMasterKeyInfoResponseSchema, info));
  else if (info.keys.length > 0)
    await session.print(formatMasterKeys(info, session.nowMs, session.style));
  else await session.printNotice('no master keys: the first secret creates one');
  requireAvailable(info);
}

/**
 * Rotates the master key, after a question, and waits until the rotation has ended.
 * @throws {@link CliFailure} with exit code 4 when the coordinator cannot decrypt the master keys, 6
 *   when the time expires, 9 when the rotation is not confirmed.
 */
export async function rotateMasterKey(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  refuseNames(session);
  const reEncryptAll = !hasFlag(invocation, 'keepOldKeys');
  const before = await readMasterKeys(session);
  requireAvailable(before);
  await confirmRotation(invocation, before, reEncryptAll);
  const response = await waitForRotation(session, reEncryptAll, before);
  await session.printStatus(describeRotation(response));
  if (session.isStructured)
    await session.printValue(toMessageJson(RotateMasterKeyResponseSchema, response));
}

function readMasterKeys(session: CliSession): Promise<GetMasterKeyInfoResponse> {
  return session.secrets.getMasterKeyInfo({}, session.getCallOptions());
}

function requireAvailable({ available, problem }: GetMasterKeyInfoResponse): void {
  if (!available)
    throw new CliFailure(
      ExitCode.conflict,
      `the coordinator that leads cannot decrypt the master keys, so no secret can be read or changed: ${problem}`,
    );
}

async function confirmRotation(
  invocation: Invocation,
  before: GetMasterKeyInfoResponse,
  reEncryptAll: boolean,
): Promise<void> {
  const { io } = invocation.session;
  if (hasFlag(invocation, 'yes')) return;
  const effect = explainRotation(before, reEncryptAll);
  if (!canAsk(io))
    throw new CliFailure(
      ExitCode.notConfirmed,
      `the rotation is not confirmed: ${effect} Confirm with --yes`,
    );
  const question = before.rotating ? 'Wait for its end?' : 'Rotate the master key?';
  if (await askUser(io, `${effect} ${question}`)) return;
  throw new CliFailure(ExitCode.notConfirmed, 'not confirmed; nothing was changed');
}

/** Calls until a coordinator has ended the rotation, and shows the progress. */
async function waitForRotation(
  session: CliSession,
  reEncryptAll: boolean,
  before: GetMasterKeyInfoResponse,
): Promise<RotateMasterKeyResponse> {
  const { clock, signal } = session.io;
  const timeoutMs = session.settings.timeoutMs ?? WAIT_TIMEOUT_MS;
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new RotationProgress(session, countVersions(before));
  // With the same id, a call after the loss of the connection begins no second rotation.
  const request = { reEncryptAll, requestId: session.getRequestId() || randomUUID() };
  try {
    const states = withReconnect(() => followRotation(session, request, deadline.signal), {
      clock,
      signal: deadline.signal,
      endless: false,
      hasAnswered: true,
      // The time limit of this wait is no deadline of the call, so that of a server between is not
      // the end of the wait.
      isRetriable: (reason) =>
        reason instanceof ConnectError && reason.code === Code.DeadlineExceeded,
      onLost: (notice) => session.printNotice(notice),
    });
    for await (const state of states) {
      if (state.kind === 'running') await progress.show(state.info);
      else {
        await progress.finish();
        return state.response;
      }
    }
    throw new CliFailure(ExitCode.error, 'the coordinator ended the call without an answer');
  } catch (reason) {
    if (!deadline.hasExpired || reason instanceof CliFailure) throw reason;
    throw new CliFailure(
      ExitCode.timeout,
      `the rotation has not ended within ${formatSpan(timeoutMs)} and continues by itself; show its progress with: cloudlessctl secret key-info, or wait longer with --timeout`,
      { cause: reason },
    );
  } finally {
    deadline.cancel();
    progress.end();
  }
}

/** The state of a rotation for whose end a call waits. */
type RotationState =
  | { readonly kind: 'running'; readonly info: GetMasterKeyInfoResponse }
  | { readonly kind: 'ended'; readonly response: RotateMasterKeyResponse };

/**
 * Calls RotateMasterKey, and yields the progress until the call has ended.
 * @throws the error of the call.
 */
async function* followRotation(
  session: CliSession,
  request: { readonly reEncryptAll: boolean; readonly requestId: string },
  signal: AbortSignal,
): AsyncGenerator<RotationState> {
  const { clock } = session.io;
  const done = new AbortController();
  const stop = AbortSignal.any([signal, done.signal]);
  const call = session.secrets
    .rotateMasterKey(request, session.getStreamOptions(signal))
    .then((response): RotationState => ({ kind: 'ended', response }));
  try {
    for (;;) {
      const progress = sleep(clock, POLL_MS, stop).then(() => readProgress(session, stop));
      // The loser of the race is not awaited again.
      progress.catch(() => undefined);
      const state = await Promise.race([call, progress]);
      if (state === undefined) continue;
      yield state;
      if (state.kind === 'ended') return;
    }
  } finally {
    done.abort();
  }
}

/** Returns the progress; undefined when the read fails, because the call itself shows the reason. */
async function readProgress(
  session: CliSession,
  signal: AbortSignal,
): Promise<RotationState | undefined> {
  try {
    const options = { ...session.getStreamOptions(signal), timeoutMs: READ_TIMEOUT_MS };
    return { kind: 'running', info: await session.secrets.getMasterKeyInfo({}, options) };
  } catch {
    return undefined;
  }
}
