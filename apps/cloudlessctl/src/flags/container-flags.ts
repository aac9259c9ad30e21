import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { ImagePull_PolicySchema } from '@cloudless/api';
import { usageFailure } from '../failure.js';
import { parseQuantity } from '../quantity.js';
import { isNone, list, names, numericId, text, unit, wholeNumber, word } from './flag-values.js';
import type { SpecFlag, SpecSwitch } from './flag-values.js';
import { KERNEL_FLAGS } from './kernel-flags.js';

/**
 * What only containers have: where the image comes from, what it may do, and what it sees of its
 * node. Profiles need a manifest.
 */
export const CONTAINER_FLAGS: readonly SpecFlag[] = [
  {
    ...{
      flag: '--pull',
      value: 'policy',
      description: 'IF_NOT_PRESENT, ALWAYS or NEVER',
      path: 'image_pull.policy',
    },
    parse: word('--pull', names(ImagePull_PolicySchema)),
  },
  {
    ...{ flag: '--volume', value: 'volume', path: 'volumes', repeatable: true, parse: volumes },
    description:
      'NAME:/PATH (kept on the node), /HOST/PATH:/PATH, /PATH (empty) or /PATH:memory=64Mi; :ro at the end; none: no volumes',
  },
  {
    flag: '--user',
    value: 'id',
    description: 'numeric user it runs as',
    path: 'security.run_as_user',
    parse: id('--user'),
  },
  {
    flag: '--user-name',
    value: 'name',
    description: 'user that the image knows by name',
    path: 'security.user',
    parse: text,
  },
  {
    flag: '--group',
    value: 'id',
    description: 'numeric group, with --user',
    path: 'security.run_as_group',
    parse: id('--group'),
  },
  capabilities(
    '--cap-add',
    'Linux capability to give it, such as NET_ADMIN',
    'security.capabilities_add',
  ),
  capabilities(
    '--cap-drop',
    'Linux capability to take from it, or ALL',
    'security.capabilities_drop',
  ),
  {
    ...{ flag: '--runtime-class', value: 'name', path: 'security.runtime_class', parse: text },
    description: 'another runtime of the node, such as runsc',
  },
  {
    flag: '--hostname',
    value: 'name',
    description: 'name of its host',
    path: 'network.hostname',
    parse: text,
  },
  {
    flag: '--dns',
    value: 'address',
    description: 'DNS server',
    path: 'network.dns_servers',
    repeatable: true,
    parse: list,
  },
  {
    ...{
      flag: '--extra-host',
      value: 'name:address',
      path: 'network.extra_hosts',
      repeatable: true,
      parse: extraHosts,
    },
    description: 'name that the container resolves by its /etc/hosts; none: no such names',
  },
  {
    ...{
      flag: '--pids-limit',
      value: 'number',
      path: 'resources.limits.pids',
      parse: wholeNumber('--pids-limit'),
    },
    description: 'processes and threads never to exceed',
  },
  ...KERNEL_FLAGS,
];

/** Those that are on or off. */
export const CONTAINER_SWITCHES: readonly SpecSwitch[] = [
  { flag: '--non-root', description: 'refuse to start as root', path: 'security.run_as_non_root' },
  {
    flag: '--init',
    description: 'an init process reaps orphans, the default; --no-init: none does',
    path: 'init',
  },
  {
    flag: '--read-only',
    description: 'only volumes can be written to',
    path: 'security.read_only_root_filesystem',
  },
  { flag: '--privileged', description: 'all privileges of the node', path: 'security.privileged' },
  { flag: '--host-network', description: 'the network of the node', path: 'network.host_network' },
];

/**
 * Reads `NAME:ADDRESS`, as container engines take it; the name ends at the first colon, the address
 * may have more.
 */
function extraHosts(texts: readonly string[]): JsonValue {
  if (isNone(texts)) return [];
  return texts.map((given) => {
    const [, name, ip] = /^([^:=]+)[:=](.+)$/.exec(given) ?? [];
    if (name !== undefined && ip !== undefined) return { ip, hostnames: [name] };
    throw usageFailure(
      `--extra-host: expected NAME:ADDRESS, as in db:10.0.0.5, got ${JSON.stringify(given)}`,
    );
  });
}

/** `none` gives the empty list. */
function capabilities(flag: string, description: string, path: string): SpecFlag {
  const parse = (texts: readonly string[]): JsonValue => (isNone(texts) ? [] : list(texts));
  return { flag, value: 'capability', description, path, repeatable: true, parse };
}

function id(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const given = texts.at(-1) ?? '';
    const hint = given.includes(':')
      ? '; the group is given by --group'
      : '; a name is given by --user-name';
    return numericId(flag, given, flag === '--user' ? hint : '');
  };
}

function volumes(texts: readonly string[]): JsonValue {
  return isNone(texts) ? [] : texts.map(volume);
}

/**
 * Reads `NAME:/PATH`, `/HOST/PATH:/PATH` and `/PATH`, each with `:ro` or `:rw` behind it, and
 * `/PATH:memory=64Mi`.
 */
function volume(given: string): JsonValue {
  const [, place, size] = /^(\/[^:]*):memory(?:=([^:]+))?$/.exec(given) ?? [];
  if (place !== undefined)
    return {
      name: nameOf(place),
      mountPath: place,
      emptyDir: { medium: 'MEMORY', ...sizeOf(size) },
    };
  const match = /^(?:([^:]+):)?(\/[^:]*)(?::(ro|rw))?$/.exec(given);
  const [, source, mountPath = '', mode] = match ?? [];
  const isName = source !== undefined && /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(source);
  if (match === null || (source !== undefined && !isName && !source.startsWith('/'))) {
    throw usageFailure(
      `--volume: expected NAME:/PATH, /HOST/PATH:/PATH or /PATH, each with :ro or not, or /PATH:memory=64Mi, as in data:/var/lib/data, got ${JSON.stringify(given)}`,
    );
  }
  return {
    name: isName ? source : nameOf(mountPath),
    mountPath,
    ...(mode === 'ro' ? { readOnly: true } : {}),
    ...(source === undefined
      ? { emptyDir: {} }
      : isName
        ? { named: { name: source } }
        : { hostPath: { path: source } }),
  };
}

function sizeOf(size: string | undefined): JsonObject {
  return size === undefined
    ? {}
    : { sizeLimitBytes: unit('--volume', parseQuantity, String)([size]) };
}

/** Longest DNS label. */
const MAX_NAME = 63;

/** A volume without a name is called by its place: `/var/log/nginx` is `var-log-nginx`. */
function nameOf(mountPath: string): string {
  const name = mountPath.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  return name.replaceAll(/^-+/g, '').slice(0, MAX_NAME).replaceAll(/-+$/g, '') || 'root';
}
