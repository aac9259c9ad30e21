import type { Command } from 'commander';
import type { EtcdStateStoreOptions } from '@cloudless/state-store-etcd';
import type { LocalInvocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { getTextOption, hasFlag } from '../options.js';
import { withExitCode } from './with-exit-code.js';

/** Adds the flags of a store on etcd, which are those of the coordinator. */
export function addEtcdFlags(command: Command): Command {
  return command
    .option('--etcd-endpoints <urls>', 'members of etcd, such as https://10.0.0.1:2379')
    .option('--etcd-ca <path>', 'certificates of the CA of etcd')
    .option('--etcd-cert <path>', 'client certificate for etcd')
    .option('--etcd-key <path>', 'key of the client certificate, mode 0600')
    .option('--etcd-user <name>', 'user of etcd')
    .option('--etcd-password-file <path>', 'file with the password of the user, mode 0600')
    .option('--etcd-prefix <prefix>', 'prefix of all keys in etcd (default /cloudless)')
    .option(
      '--etcd-insecure',
      'accept http:// endpoints of etcd on other machines: only on a network that is encrypted itself or has only these machines',
    );
}

/** Options with which a store on etcd is opened. */
export type EtcdOptions = Pick<EtcdStateStoreOptions, 'endpoints' | 'tls' | 'user'> & {
  readonly prefix: string;
};

/** Reads the flags of {@link addEtcdFlags}, and the files that they name. */
export async function readEtcdFlags(invocation: LocalInvocation): Promise<EtcdOptions> {
  const { DEFAULT_ETCD_PREFIX, checkEtcdSettings, parseEtcdEndpoints, readEtcdOptions } =
    await import('@cloudless/state-store-etcd/settings');
  const endpoints = getTextOption(invocation, 'etcdEndpoints');
  const parsed = endpoints === undefined ? { value: [] } : parseEtcdEndpoints(endpoints);
  if ('problem' in parsed) throw createUsageFailure(`--etcd-endpoints: ${parsed.problem}`);
  const settings = {
    state: 'etcd',
    etcdEndpoints: parsed.value,
    etcdCa: getTextOption(invocation, 'etcdCa'),
    etcdCert: getTextOption(invocation, 'etcdCert'),
    etcdKey: getTextOption(invocation, 'etcdKey'),
    etcdUser: getTextOption(invocation, 'etcdUser'),
    etcdPasswordFile: getTextOption(invocation, 'etcdPasswordFile'),
    etcdPrefix: getTextOption(invocation, 'etcdPrefix') ?? DEFAULT_ETCD_PREFIX,
    etcdInsecure: hasFlag(invocation, 'etcdInsecure'),
  };
  return withExitCode(async () => {
    checkEtcdSettings(settings);
    return { ...(await readEtcdOptions(settings)), prefix: settings.etcdPrefix };
  });
}
