import { InvalidInputError, type ParsedValue } from '@cloudless/base';
import { isLoopbackHost } from '@cloudless/identity';

/** Settings of a store on etcd, as flags of programs name them. */
export interface EtcdSettings {
  /** URLs of members, such as `https://10.0.0.1:2379`; earlier ones are preferred. */
  readonly etcdEndpoints: readonly string[];
  /** Path of the certificates of the CAs of etcd; undefined: those of the system. */
  readonly etcdCa: string | undefined;
  /** Path of the client certificate with its chain; undefined: none. */
  readonly etcdCert: string | undefined;
  /** Path of the key of the client certificate. */
  readonly etcdKey: string | undefined;
  /** User of etcd; undefined: none. */
  readonly etcdUser: string | undefined;
  /** Path of the file with the password of the user. */
  readonly etcdPasswordFile: string | undefined;
  /** Prefix of all keys in etcd. */
  readonly etcdPrefix: string;
  /** Accepts endpoints of etcd on other machines in plaintext. */
  readonly etcdInsecure: boolean;
}

/** Default of `--etcd-prefix`. */
export const DEFAULT_ETCD_PREFIX = '/cloudless';

/** Parses `https://10.0.0.1:2379,https://10.0.0.2:2379`. */
export function parseEtcdEndpoints(raw: unknown): ParsedValue<readonly string[]> {
  const list: readonly unknown[] = Array.isArray(raw)
    ? raw
    : String(raw)
        .split(',')
        .map((url) => url.trim());
  const invalid = list.find((url) => typeof url !== 'string' || !isEndpoint(url));
  if (invalid !== undefined || list.length === 0)
    return {
      problem: `"${String(invalid)}" is not an endpoint of etcd; use a form such as https://10.0.0.1:2379`,
    };
  return { value: [...new Set(list as readonly string[])] };
}

/**
 * Checks the settings of etcd against each other and against the engine.
 * @throws {@link InvalidInputError} with the first setting that contradicts another one.
 */
export function checkEtcdSettings(config: EtcdSettings & { readonly state: string }): void {
  const { etcdEndpoints, etcdCa, etcdCert, etcdKey, etcdUser, etcdPasswordFile } = config;
  const given = [
    ...(etcdEndpoints.length > 0 ? ['--etcd-endpoints'] : []),
    ...(etcdCa === undefined ? [] : ['--etcd-ca']),
    ...(etcdCert === undefined ? [] : ['--etcd-cert']),
    ...(etcdKey === undefined ? [] : ['--etcd-key']),
    ...(etcdUser === undefined ? [] : ['--etcd-user']),
    ...(etcdPasswordFile === undefined ? [] : ['--etcd-password-file']),
    ...(config.etcdInsecure ? ['--etcd-insecure'] : []),
  ];
  const [first] = given;
  if (config.state !== 'etcd') {
    if (first !== undefined)
      refuse(first, `has no effect with --state ${config.state}; add --state etcd`);
    return;
  }
  if (etcdEndpoints.length === 0)
    refuse('--etcd-endpoints', 'is missing; name members, such as https://10.0.0.1:2379');
  const plaintext = etcdEndpoints.filter((url) => url.startsWith('http:'));
  if (plaintext.length > 0 && plaintext.length < etcdEndpoints.length)
    refuse('--etcd-endpoints', 'mixes http:// and https://; use one of both for all members');
  const tlsFlag = given.find((flag) => TLS_FLAGS.includes(flag));
  if (plaintext.length > 0 && tlsFlag !== undefined)
    refuse(tlsFlag, `needs TLS, and ${plaintext[0]} is plaintext; use https:// for all endpoints`);
  const remote = listRemotePlaintext(config);
  if (remote[0] !== undefined && etcdUser !== undefined)
    refuse(
      '--etcd-user',
      `would send the password in plaintext to ${remote[0]}; use https:// for endpoints on other machines`,
    );
  if ((etcdCert === undefined) !== (etcdKey === undefined))
    refuse(
      etcdCert === undefined ? '--etcd-cert' : '--etcd-key',
      'is missing; a client certificate needs both --etcd-cert and --etcd-key',
    );
  if ((etcdUser === undefined) !== (etcdPasswordFile === undefined))
    refuse(
      etcdUser === undefined ? '--etcd-user' : '--etcd-password-file',
      'is missing; a user of etcd needs both --etcd-user and --etcd-password-file',
    );
  checkTransport(config, remote);
}

/**
 * Refuses `http://` endpoints on other machines without `--etcd-insecure`: whoever can change packets
 * on the way can change everything in the cluster. Refuses the flag when no endpoint needs it.
 */
function checkTransport({ etcdInsecure }: EtcdSettings, [remote]: readonly string[]): void {
  if (remote !== undefined && !etcdInsecure)
    refuse(
      '--etcd-endpoints',
      `${remote} is in plaintext on another machine: whoever can read or change packets on the way rules the cluster; use https:// endpoints and --etcd-ca, or --etcd-insecure on a network that is encrypted itself or has only these machines`,
    );
  if (remote === undefined && etcdInsecure)
    refuse(
      '--etcd-insecure',
      'has no effect, because no endpoint of etcd is in plaintext on another machine; leave it out',
    );
}

/**
 * Returns the endpoints that are reached in plaintext over a network. Whoever can change packets
 * there can change everything in the cluster.
 */
export function listRemotePlaintext({
  etcdEndpoints,
}: Pick<EtcdSettings, 'etcdEndpoints'>): readonly string[] {
  return etcdEndpoints.filter(
    (url) => url.startsWith('http:') && !isLoopbackHost(new URL(url).hostname),
  );
}

const TLS_FLAGS = ['--etcd-ca', '--etcd-cert', '--etcd-key'];

function isEndpoint(text: string): boolean {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return false;
  const { origin, username, pathname, search, hash } = new URL(text);
  return origin !== 'null' && username === '' && pathname === '/' && search === '' && hash === '';
}

function refuse(field: string, message: string): never {
  throw new InvalidInputError([{ field, message }]);
}
