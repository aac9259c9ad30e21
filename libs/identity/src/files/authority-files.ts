import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import { CertificateAuthority } from '../x509/certificate-authority.js';
import type { AuthorityPems } from '../x509/certificate-authority.js';
import { toFileError, refuse } from './file-errors.js';
import {
  createSyncedFile,
  makePrivateDirectory,
  readSecretFile,
  syncDirectory,
} from './secret-file.js';

/** The cluster of a certificate authority, and the current time. */
export interface AuthorityOptions {
  readonly trustDomain: string;
  /** See {@link CertificateAuthority.create}. */
  readonly clusterId?: string;
  readonly nowMs: number;
}

/** Files of one generation. The certificates are no secrets, but no other user needs the files. */
const FILES: Readonly<Record<keyof AuthorityPems, string>> = {
  rootPem: 'root.crt',
  rootKeyPem: 'root.key',
  issuingPem: 'issuing.crt',
  issuingKeyPem: 'issuing.key',
};
const GENERATION = /^[1-9]\d{0,8}$/;
/**
 * Part of the name of a directory that was set aside; the time in wall-clock milliseconds follows.
 */
const SET_ASIDE = '.set-aside-';
/** End of the name of a generation that is being removed. */
const REMOVED = '.removed';

/**
 * Returns the generations of the certificate authority in a directory, in ascending order. Empty
 * when the directory does not exist.
 */
export async function listGenerations(directory: string): Promise<number[]> {
  return (await readNames(directory))
    .filter((name) => GENERATION.test(name))
    .map(Number)
    .sort((left, right) => left - right);
}

async function readNames(directory: string): Promise<string[]> {
  return readdir(directory).catch((reason: unknown) => {
    if (errorCodeOf(reason) === 'ENOENT') return [];
    throw toFileError(reason, `the directory ${directory} cannot be read`);
  });
}

/**
 * Reads the files of one generation from `<directory>/<generation>/`. Secret.
 * @throws {@link CloudlessError} of kind `precondition` when a file is missing or accessible by
 *   others.
 */
export async function readAuthorityPems(
  directory: string,
  generation: number,
): Promise<AuthorityPems> {
  const path = join(directory, String(generation));
  const exists = await stat(path).then(
    () => true,
    () => false,
  );
  if (!exists) {
    throw refuse(
      `the certificate authority has no directory ${path}; restore the directory from the backup, or copy it from another coordinator of the cluster`,
    );
  }
  await makePrivateDirectory(directory);
  await makePrivateDirectory(path);
  const readPem = async (name: string): Promise<string> => {
    try {
      return Buffer.from(await readSecretFile(join(path, name))).toString('utf8');
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind !== 'notFound') throw reason;
      throw refuse(
        `the certificate authority is incomplete: ${join(path, name)} is missing; restore the directory ${path} from the backup`,
      );
    }
  };
  return {
    rootPem: await readPem(FILES.rootPem),
    rootKeyPem: await readPem(FILES.rootKeyPem),
    issuingPem: await readPem(FILES.issuingPem),
    issuingKeyPem: await readPem(FILES.issuingKeyPem),
  };
}

/**
 * Loads one generation from `<directory>/<generation>/`.
 * @throws {@link CloudlessError} of kind `precondition` when a file is missing, accessible by others
 *   or damaged, or the parts do not belong together. The files are never changed.
 */
export async function loadAuthority(
  directory: string,
  generation: number,
  options: AuthorityOptions,
): Promise<CertificateAuthority> {
  const pems = await readAuthorityPems(directory, generation);
  try {
    return await CertificateAuthority.load(pems, { ...options, generation });
  } catch (reason) {
    if (!(reason instanceof CloudlessError)) throw reason;
    throw new CloudlessError(
      reason.reason,
      `${join(directory, String(generation))}: ${reason.message}`,
    );
  }
}

/**
 * Creates a generation in `<directory>/<generation>/`. The directory appears complete or not at all,
 * also after a power failure; what an earlier attempt left behind is removed.
 * @param directory - Created when missing; the parent must exist.
 * @throws {@link CloudlessError} of kind `exists` when the generation exists, which is never
 *   overwritten.
 */
export async function createAuthority(
  directory: string,
  generation: number,
  options: AuthorityOptions,
): Promise<CertificateAuthority> {
  await makePrivateDirectory(directory);
  const { authority, ...pems } = await CertificateAuthority.create({ ...options, generation });
  await writeGeneration(directory, generation, pems);
  return authority;
}

/**
 * Stores the keys of a generation that another coordinator has created, as {@link createAuthority}
 * does with new ones. Returns the same keys when they are there already. Other or damaged files of
 * the generation are renamed to `<generation>.set-aside-<time>`, and never deleted.
 * @throws {@link CloudlessError} of kind `precondition` when the parts are damaged or do not belong
 *   together.
 */
export async function storeAuthority(
  directory: string,
  generation: number,
  pems: AuthorityPems,
  options: AuthorityOptions,
): Promise<CertificateAuthority> {
  const authority = await CertificateAuthority.load(pems, { ...options, generation });
  await makePrivateDirectory(directory);
  const existing = await loadAuthority(directory, generation, options).catch(() => undefined);
  if (existing?.rootSha256 === authority.rootSha256) return existing;
  await writeGeneration(directory, generation, pems, `${SET_ASIDE}${options.nowMs}`);
  return authority;
}

/** @param setAside - End of the new name of files that are there. Default: they are an error. */
async function writeGeneration(
  directory: string,
  generation: number,
  pems: AuthorityPems,
  setAside?: string,
): Promise<void> {
  const path = join(directory, String(generation));
  const draft = join(directory, `${generation}.new`);
  try {
    await rm(draft, { recursive: true, force: true });
    await mkdir(draft, { mode: 0o700 });
    for (const [key, name] of Object.entries(FILES))
      await createSyncedFile(join(draft, name), pems[key as keyof AuthorityPems]);
    await syncDirectory(draft);
    if (setAside !== undefined)
      await rename(path, `${path}${setAside}`).catch((reason: unknown) => {
        if (errorCodeOf(reason) !== 'ENOENT') throw reason;
      });
    await rename(draft, path); // fails when `path` is a directory with content
    await syncDirectory(directory);
  } catch (reason) {
    await rm(draft, { recursive: true, force: true }).catch(() => undefined);
    if (['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(errorCodeOf(reason) ?? '')) {
      throw new CloudlessError(
        'exists',
        `the certificate authority already has ${path}, which is never overwritten`,
      );
    }
    throw toFileError(reason, `the certificate authority cannot be written to ${path}`);
  }
}

/**
 * Removes the keys and certificates of every generation below `generation`, at the end of a rotation,
 * also what an earlier removal that was interrupted has left. The blocks of the deleted files are not
 * overwritten: file systems and disks do not promise where a block is.
 * @returns The generations that were removed.
 */
export async function removeAuthoritiesBefore(
  directory: string,
  generation: number,
): Promise<number[]> {
  const retired = (await listGenerations(directory)).filter((each) => each < generation);
  try {
    for (const each of retired) {
      const path = join(directory, String(each));
      await rm(`${path}${REMOVED}`, { recursive: true, force: true });
      // After a crash the generation is either complete or no longer listed.
      await rename(path, `${path}${REMOVED}`);
    }
    const rest = (await readNames(directory)).filter((name) => name.endsWith(REMOVED));
    for (const name of rest) await rm(join(directory, name), { recursive: true, force: true });
    if (rest.length > 0) await syncDirectory(directory);
    return retired;
  } catch (reason) {
    throw toFileError(reason, `retired generations in ${directory} cannot be removed`);
  }
}
