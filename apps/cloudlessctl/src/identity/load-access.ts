import { errorCodeOf } from '@cloudless/base';
import type { UserClient } from '@cloudless/api';
import { CliFailure, ExitCode, createUsageFailure } from '../call/failure.js';
import type { Settings } from '../config/settings.js';
import type { CliIo, ServerAccess } from '../io/io.js';
import { describeExpiry } from '../views/expiry.js';
import { CurrentIdentity } from './current-identity.js';
import { IdentityRenewal } from './renewal.js';
import { readIdentity } from './stored-identity.js';
import { parseUserToken, readTokenFile } from './token-text.js';
import type { UserToken } from './token-text.js';

/** The access of a command to a server with https. */
export interface LoadedAccess {
  readonly access: ServerAccess;
  /** Creates the renewal of an identity. Absent for a token. */
  readonly createRenewal?: (getClient: () => UserClient) => IdentityRenewal;
}

/**
 * Loads the credential of a command for a server with https.
 * @throws {@link CliFailure} with exit code 1 when the user is not logged in or the login has
 *   expired, and 2 when a file is missing or not valid.
 */
export async function loadAccess(io: CliIo, settings: Settings): Promise<LoadedAccess> {
  const { source, caFile } = settings.credentials;
  if (source === undefined) throw createLoginFailure(settings, 'not logged in');
  if (source.kind === 'identity') {
    const identity = await readIdentity(io.files, source.directory);
    if (identity === undefined) throw createLoginFailure(settings, 'not logged in');
    const nowMs = io.clock.wallTime();
    if (nowMs > identity.notAfterMs)
      throw createLoginFailure(
        settings,
        `the certificate of ${identity.principal} ${describeExpiry(identity.notAfterMs, nowMs)} by the clock of this machine`,
      );
    const bundlePem = caFile === undefined ? undefined : await readCaFile(io, caFile);
    const current = new CurrentIdentity(io, source.directory, identity, bundlePem);
    let renewal: IdentityRenewal | undefined;
    return {
      access: {
        kind: 'certificate',
        getIdentity: () => current.clientIdentity,
        countReloads: () => current.reloads,
        onRenewalRequested: () => renewal?.renewNow(),
      },
      createRenewal: (getClient) => (renewal = new IdentityRenewal(io, current, getClient)),
    };
  }
  const token =
    source.kind === 'tokenText'
      ? parseUserToken(source.text, source.origin)
      : await readTokenFile(io, source.path, source.origin);
  return { access: await toTokenAccess(io, token, caFile) };
}

/**
 * Returns the access with a token: pinned to the roots that the token names, or to the roots of a
 * file.
 */
export async function toTokenAccess(
  io: CliIo,
  { text, caSha256s }: UserToken,
  caFile: string | undefined,
): Promise<ServerAccess> {
  if (caFile === undefined) return { kind: 'token', text, caSha256s };
  return { kind: 'token', text, caSha256s: await readRootDigests(io, caFile), caFile };
}

async function readRootDigests(io: CliIo, caFile: string): Promise<readonly string[]> {
  const pem = await readCaFile(io, caFile);
  const { hashRoots } = await import('./root-digests.js');
  try {
    return hashRoots(pem);
  } catch (reason) {
    const message = reason instanceof Error ? reason.message : String(reason);
    throw createUsageFailure(`--ca-file: ${caFile}: ${message}`);
  }
}

/** Root certificates are public, so the mode of the file does not matter. */
async function readCaFile(io: CliIo, caFile: string): Promise<string> {
  try {
    return new TextDecoder().decode(await io.files.read(caFile));
  } catch (reason) {
    const isMissing = errorCodeOf(reason) === 'ENOENT';
    const message = reason instanceof Error ? reason.message : String(reason);
    throw createUsageFailure(
      `--ca-file: ${caFile}: ${isMissing ? 'no such file or directory' : message}`,
    );
  }
}

function createLoginFailure({ server, context }: Settings, problem: string): CliFailure {
  const where = context === undefined ? '' : ` (context ${context})`;
  return new CliFailure(
    ExitCode.error,
    `${problem}${where}; log in with: cloudlessctl login ${server}`,
  );
}
