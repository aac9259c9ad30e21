import { readFile } from 'node:fs/promises';
import { CloudlessError, definedFields, errorMessageOf } from '@cloudless/base';
import { readSecretFile } from '@cloudless/identity/files';
import type { EtcdStateStoreOptions } from '../store/etcd-state-store.js';
import type { EtcdSettings } from './etcd-settings.js';

/**
 * Reads the files that settings name: certificates, key and password.
 * @throws kind `precondition` for a file that cannot be read, or a secret that others can read.
 */
export async function readEtcdOptions(
  config: EtcdSettings,
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
