import { readFile } from 'node:fs/promises';
import {
  CloudlessError,
  definedFields,
  errorMessageOf,
  type Clock,
  type Log,
} from '@cloudless/base';
import { readSecretFile } from '@cloudless/identity/files';
import {
  openEtcdStateStore,
  type EtcdStateStore,
  type EtcdStateStoreOptions,
} from '@cloudless/state-store-etcd';
import type { EtcdConfig } from './etcd-config.js';

/** What {@link openEtcdStore} needs beside the settings of etcd. */
export interface EtcdStoreDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly historyBytes?: number;
  readonly onSpaceChange?: (hasSpace: boolean) => void;
}

/**
 * Reads the files that the settings name, and opens the store on etcd.
 * @throws kind `precondition` or `notFound` for a file that cannot be used; the errors of
 *   `openEtcdStateStore`.
 */
export async function openEtcdStore(
  config: EtcdConfig,
  deps: EtcdStoreDeps,
): Promise<EtcdStateStore> {
  return openEtcdStateStore({ ...(await readEtcdOptions(config)), ...deps });
}

/** Reads the certificates, the key and the password. */
export async function readEtcdOptions(
  config: EtcdConfig,
): Promise<Pick<EtcdStateStoreOptions, 'endpoints' | 'prefix' | 'tls' | 'user'>> {
  const { etcdEndpoints, etcdCa, etcdCert, etcdKey, etcdUser, etcdPasswordFile, etcdPrefix } =
    config;
  const tls = definedFields({
    ca: await readOptional('--etcd-ca', etcdCa, readText),
    certificate: await readOptional('--etcd-cert', etcdCert, readText),
    key: await readOptional('--etcd-key', etcdKey, readSecret),
  });
  const password = await readOptional('--etcd-password-file', etcdPasswordFile, readSecret);
  return {
    endpoints: etcdEndpoints,
    prefix: etcdPrefix,
    tls,
    ...(etcdUser === undefined || password === undefined
      ? {}
      : { user: { name: etcdUser, password: password.replace(/\r?\n$/, '') } }),
  };
}

async function readOptional(
  flag: string,
  path: string | undefined,
  read: (path: string) => Promise<string>,
): Promise<string | undefined> {
  if (path === undefined) return undefined;
  try {
    return await read(path);
  } catch (cause) {
    throw new CloudlessError('precondition', `${flag}: ${errorMessageOf(cause)}`, { cause });
  }
}

function readText(path: string): Promise<string> {
  return readFile(path, 'utf8');
}

async function readSecret(path: string): Promise<string> {
  return Buffer.from(await readSecretFile(path)).toString();
}
