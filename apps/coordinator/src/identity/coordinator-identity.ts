import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { makeDirectory } from '@cloudless/app-kit';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import type { ClusterState, ClusterView } from '@cloudless/cluster-state';
import {
  ClusterIdentities,
  ServerCertificate,
  describeUntrustedKeys,
  type AuthorityKeys,
} from '@cloudless/controllers';
import {
  createAuthority,
  listGenerations,
  loadAuthority,
  loadTokenSecret,
  makePrivateDirectory,
  readAuthorityPems,
  removeAuthoritiesBefore,
  restoreTokenSecret,
  storeAuthority,
} from '@cloudless/identity/files';
import type { CoordinatorConfig } from '../config.js';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import { AuthorityKeySync } from './authority-key-sync.js';
import { createServerNames, type ServerNames } from './server-names.js';

/** The identities of a coordinator with TLS. Close them after the servers. */
export interface CoordinatorIdentity {
  readonly identities: ClusterIdentities;
  readonly server: ServerCertificate;
  readonly names: ServerNames;
  /** The identity directory. */
  readonly directory: string;
  /** True when a new token secret made every token of an existing cluster invalid. */
  readonly hasVoidTokens: boolean;
  /** Returns why the next start would not find the keys and the token secret of this one. */
  findFileProblem(): Promise<string | undefined>;
  close(): Promise<void>;
}

/** Returns the directory of the keys of a coordinator. */
export function getIdentityDirectory({ identityDir, dataDir }: CoordinatorConfig): string {
  return identityDir ?? join(dataDir, 'identity');
}

/**
 * Opens the identity directory, which is created at the first start, the certificate authority and
 * the server certificate.
 * @throws kind `precondition` when a file is missing, damaged, of another cluster, or readable by
 *   others.
 */
export async function openCoordinatorIdentity(
  config: CoordinatorConfig,
  machine: CoordinatorMachine,
  state: ClusterState,
): Promise<CoordinatorIdentity> {
  const { clock, random, hostname } = machine;
  const { trustDomain } = config;
  const log = machine.log.child({ component: 'identity' });
  const directory = getIdentityDirectory(config);
  await makeDirectory(directory, 0o700);
  await makePrivateDirectory(directory);
  const secret = await loadTokenSecret(directory, machine.tokenSecret);
  let isRunning = false;
  const files = createAuthorityKeys(join(directory, 'ca'), state.clusterId, () => ({
    trustDomain,
    nowMs: clock.wallTime(),
  }));
  const identities = await ClusterIdentities.open({
    state,
    clock,
    log,
    keys: {
      ...files,
      create: async (generation) => {
        // A rotation is the way out when the directory was lost while the coordinator runs.
        if (isRunning) await makeDirectory(directory, 0o700);
        if (isRunning && secret.source !== 'environment')
          await restoreTokenSecret(directory, secret.bytes);
        return files.create(generation);
      },
    },
    trustDomain,
    coordinatorName: config.name,
    tokenSecret: secret.bytes,
    lifetimes: {
      nodeMs: config.nodeCertificateLifetimeMs,
      userMs: config.userCertificateLifetimeMs,
      workloadMs: config.workloadCertificateLifetimeMs,
    },
  });
  const hasVoidTokens = secret.source === 'created' && hasTokens(state.view());
  if (hasVoidTokens && config.state === 'etcd' && !config.newAdminCredential) {
    identities.close();
    throw new CloudlessError(
      'precondition',
      `the token secret ${join(directory, 'token-secret')} is missing, and this coordinator would refuse every token of the cluster; copy the file from another coordinator, or, when none has it, start one coordinator with --new-admin-credential, which makes every token invalid, and copy its file to the others`,
    );
  }
  const names = createServerNames({
    host: config.host,
    advertise: config.advertise,
    hostname,
    addresses: Object.values(networkInterfaces()).flatMap((list) =>
      (list ?? []).filter(({ scopeid }) => (scopeid ?? 0) === 0).map(({ address }) => address),
    ),
  });
  try {
    // Only now, so that a start without the keys of the certificate authority leaves no new secret.
    await secret.save();
    isRunning = true;
    if (hasVoidTokens)
      log.warn('a new token secret was created: all earlier tokens are refused', { directory });
    const server = await ServerCertificate.open({
      ...{ identities, clock, random, log, lifetimeMs: config.serverCertificateLifetimeMs },
      dnsNames: names.dnsNames,
      ipAddresses: names.ipAddresses,
    });
    const keySync = new AuthorityKeySync({ state, clock, random, log, identities, server });
    const close = async (): Promise<void> => {
      await keySync.close();
      await server.close();
      identities.close();
    };
    const findFileProblem = async (): Promise<string | undefined> => {
      try {
        if (secret.source !== 'environment') await requireTokenSecret(directory, secret.bytes);
        const { missing } = await identities.listGenerations();
        for (const generation of missing) {
          await files.load(generation).catch((reason: unknown) => {
            // Unless a rotation has retired the generation in the meantime.
            if (listGenerationsInUse(state).includes(generation)) throw reason;
          });
        }
        // Files that can be loaded, and yet do not count.
        const untrusted = (await identities.listGenerations()).missing[0];
        return untrusted === undefined ? undefined : describeUntrustedKeys(untrusted);
      } catch (reason) {
        return errorMessageOf(reason);
      }
    };
    return { identities, server, names, directory, hasVoidTokens, findFileProblem, close };
  } catch (reason) {
    identities.close();
    throw reason;
  }
}

/** @throws kind `precondition` when the file of the token secret is missing or has changed. */
async function requireTokenSecret(directory: string, bytes: Uint8Array): Promise<void> {
  const found = await loadTokenSecret(directory, undefined);
  const file = join(directory, 'token-secret');
  if (found.source === 'created')
    throw new CloudlessError('precondition', `${file} is missing, so every token becomes invalid`);
  if (Buffer.compare(found.bytes, bytes) !== 0)
    throw new CloudlessError('precondition', `${file} has changed, so every token becomes invalid`);
}

function listGenerationsInUse(state: ClusterState): readonly number[] {
  const { roots = [] } = state.view().certificateAuthority()?.value ?? {};
  return roots.map(({ generation }) => generation);
}

function hasTokens(view: ClusterView): boolean {
  return [view.users(), view.joinTokens()].some((records) => [...records].length > 0);
}

function createAuthorityKeys(
  directory: string,
  clusterId: string,
  getOptions: () => { readonly trustDomain: string; readonly nowMs: number },
): AuthorityKeys {
  return {
    list: () => listGenerations(directory),
    load: (generation) => loadAuthority(directory, generation, getOptions()),
    create: (generation) => createAuthority(directory, generation, { ...getOptions(), clusterId }),
    read: (generation) => readAuthorityPems(directory, generation),
    store: (generation, pems) =>
      storeAuthority(directory, generation, pems, { ...getOptions(), clusterId }),
    removeBefore: (generation) => removeAuthoritiesBefore(directory, generation),
  };
}
