import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { Command } from 'commander';
import {
  CertificateAuthorityRotation_Phase as Phase,
  CertificateAuthoritySchema,
} from '@cloudless/api';
import type { CertificateAuthority } from '@cloudless/api';
import { sleep } from '@cloudless/base';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { isTransient } from '../../call/call-failure.js';
import { formatCount, formatSpan } from '../../output/human.js';
import { TOKEN_ADVICE, formatAuthority, formatRotationLine } from '../../views/authority-view.js';
import { askUser, canAsk } from '../ask-user.js';
import { hasFlag } from '../options.js';

/** Interval between two reads of the progress. A rotation takes seconds to days. */
const POLL_MS = 1_000;
/** Time limit of one read while `--wait` waits; `--timeout` then limits the whole wait. */
const CALL_TIMEOUT_MS = 30_000;

/**
 * Time after a rotation within which `rotate-ca` begins another one only with `--again`: a command
 * that is repeated, for example because its connection broke, must not void the tokens of the
 * cluster once more.
 */
const REPEAT_MS = 24 * 3_600_000;

/** Adds `admin ca` and `admin rotate-ca`. */
export function addAuthorityCommands(tree: CommandTree, parent: Command): void {
  tree
    .addCommand(
      parent,
      'ca',
      'show the certificate authority and the progress of its rotation',
      showAuthority,
    )
    .option('--pem', 'print the trusted root certificates in PEM');
  tree
    .addCommand(
      parent,
      'rotate-ca',
      'replace the certificate authority in phases; no workload is restarted',
      rotateAuthority,
    )
    .option('--wait', 'show the progress until the rotation is complete; no limit but --timeout')
    .option('--again', 'begin another rotation although the last one ended within 24 hours')
    .option(
      '--skip-wait',
      'end the current phase without the nodes and users that have not completed it',
    )
    .option('-y, --yes', 'do not ask before --skip-wait');
}

async function showAuthority(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const authority = await readAuthority(session);
  if (hasFlag(invocation, 'pem')) return session.print(authority.trustBundle);
  await printAuthority(session, authority);
}

async function rotateAuthority(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const started = hasFlag(invocation, 'skipWait')
    ? await skipWait(invocation)
    : await rotate(invocation);
  if (!hasFlag(invocation, 'wait')) {
    await printAuthority(session, started);
    return;
  }
  await printAuthority(session, await waitUntilRotated(session, started), { isWaited: true });
}

/** Begins a rotation unless one runs or has just ended, and says what follows for the user. */
async function rotate(invocation: Invocation): Promise<CertificateAuthority> {
  const { session } = invocation;
  const authority = await session.identities.rotateCertificateAuthority(
    hasFlag(invocation, 'again') ? {} : { unlessCompletedWithin: durationFromMs(REPEAT_MS) },
    session.getCallOptions(),
  );
  await session.printNotice(
    authority.rotation?.phase === Phase.COMPLETED
      ? 'the last rotation ended within 24 hours, so no other one has begun; to begin another one: cloudlessctl admin rotate-ca --again'
      : TOKEN_ADVICE,
  );
  return authority;
}

/**
 * Ends the current phase, after a question on a terminal.
 * @throws {@link CliFailure} with exit code 9 when the user declines, or there is no terminal to ask.
 */
async function skipWait(invocation: Invocation): Promise<CertificateAuthority> {
  const { session } = invocation;
  if (!hasFlag(invocation, 'yes')) {
    const { rotation } = await readAuthority(session);
    const nodes = formatCount(rotation?.waitingNodeCount ?? 0, 'node');
    const users = formatCount(rotation?.waitingUsers.length ?? 0, 'user');
    const effect = `${nodes} and ${users} have not completed the phase. After the last phase, such a node must join again and such a user log in again.`;
    if (!canAsk(session.io))
      throw new CliFailure(
        ExitCode.notConfirmed,
        `--skip-wait is not confirmed: ${effect} Confirm with --yes`,
      );
    if (!(await askUser(session.io, `${effect} End the phase?`)))
      throw new CliFailure(ExitCode.notConfirmed, 'not confirmed; the rotation waits as before');
  }
  return session.identities.skipCertificateAuthorityWait({}, session.getCallOptions());
}

/** Reads the progress until the rotation is complete, and prints each change as a line. */
async function waitUntilRotated(
  session: CliSession,
  started: CertificateAuthority,
): Promise<CertificateAuthority> {
  const { clock, signal } = session.io;
  const { timeoutMs } = session.settings;
  const startedAtMs = clock.now();
  let authority = started;
  let line = '';
  for (;;) {
    const next = formatRotationLine(authority.rotation);
    if (next !== line) await session.printNotice(next);
    line = next;
    if (authority.rotation === undefined || authority.rotation.phase === Phase.COMPLETED)
      return authority;
    if (timeoutMs !== undefined && clock.now() - startedAtMs >= timeoutMs)
      throw new CliFailure(
        ExitCode.timeout,
        `the rotation is not complete after ${formatSpan(timeoutMs)} (--timeout) and goes on: ${next}`,
      );
    await sleep(clock, POLL_MS, signal);
    signal.throwIfAborted();
    try {
      authority = await session.identities.getCertificateAuthority(
        {},
        session.getCallOptions(CALL_TIMEOUT_MS),
      );
    } catch (reason) {
      if (signal.aborted || !isTransient(reason)) throw reason;
    }
  }
}

function readAuthority(session: CliSession): Promise<CertificateAuthority> {
  return session.identities.getCertificateAuthority({}, session.getCallOptions());
}

async function printAuthority(
  session: CliSession,
  authority: CertificateAuthority,
  { isWaited = false }: { readonly isWaited?: boolean } = {},
): Promise<void> {
  if (session.isStructured)
    return session.printValue(toMessageJson(CertificateAuthoritySchema, authority));
  await session.print(formatAuthority(authority, session.nowMs, session.style));
  const isRunning =
    authority.rotation !== undefined && authority.rotation.phase !== Phase.COMPLETED;
  if (isRunning && !isWaited)
    await session.printNotice('show the progress again with: cloudlessctl admin ca');
}
