import type { UserClient } from '@cloudless/api';
import type { Files } from '../io/io.js';
import type { CurrentIdentity, RenewalIo } from './current-identity.js';
import { createPendingKey, issueIdentity } from './issue-identity.js';
import type { PendingKey } from './issue-identity.js';
import { readIdentity, writeIdentity } from './stored-identity.js';

/** Time limit of the call. */
const CALL_TIMEOUT_MS = 10_000;
/** Age of a lock file from which on its process has died: several times the limit of the call. */
const STALE_LOCK_MS = 60_000;

/**
 * Renews an identity over the connection of `client` and stores the result. One process renews at a
 * time. The key is stored before the call, so that an attempt after a lost reply asks for the same
 * key and the coordinator keeps the certificate that this machine has.
 * @returns True when there is a newer identity, of this or of another process.
 */
export async function renewIdentity(
  io: RenewalIo,
  current: CurrentIdentity,
  client: UserClient,
): Promise<boolean> {
  const { directory } = current;
  const unlock = await io.files.lock(`${directory}/renewal.lock`, STALE_LOCK_MS);
  // Another process renews now; a later attempt finds its result.
  if (unlock === undefined) return false;
  try {
    if (await current.reload()) return true;
    const { server, principal, credentialId } = current.stored;
    const key = await readOrCreateKey(io.files, directory);
    const renewed = await issueIdentity(client, server, key, '', {
      signal: io.signal,
      timeoutMs: CALL_TIMEOUT_MS,
    });
    // A login of another user in another process must not be replaced.
    if (renewed.principal !== principal || renewed.credentialId !== credentialId) return false;
    // A process that was stopped for longer than the lock counts may be overtaken.
    if ((await readIdentity(io.files, directory))?.credentialId !== credentialId) return false;
    if (await current.reload()) return true;
    await writeIdentity(io.files, directory, renewed);
    current.replace(renewed);
    await io.files.remove(getPendingPath(directory));
    return true;
  } finally {
    await unlock();
  }
}

const getPendingPath = (directory: string): string => `${directory}/pending-key.json`;

/** Returns the key of an earlier attempt, or creates and stores a key. */
async function readOrCreateKey(files: Files, directory: string): Promise<PendingKey> {
  const path = getPendingPath(directory);
  const stored = await files.readSecret(path).then(
    (bytes) => parsePendingKey(new TextDecoder().decode(bytes)),
    () => undefined,
  );
  if (stored !== undefined) return stored;
  const key = await createPendingKey();
  const csr = Buffer.from(key.csr).toString('base64');
  await files.replaceSecret(path, `${JSON.stringify({ keyPem: key.keyPem, csr })}\n`);
  return key;
}

function parsePendingKey(text: string): PendingKey | undefined {
  try {
    const { keyPem, csr } = JSON.parse(text) as Record<string, unknown>;
    return typeof keyPem === 'string' && typeof csr === 'string'
      ? { keyPem, csr: new Uint8Array(Buffer.from(csr, 'base64')) }
      : undefined;
  } catch {
    return undefined;
  }
}
