import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { ImagePull_PolicySchema } from '@cloudless/api';
import { createUsageFailure } from '../call/failure.js';
import { parseQuantity } from '../quantity.js';
import {
  isNone,
  parseList,
  listEnumNames,
  listEnumWords,
  parseNumericId,
  parseText,
  createUnitParser,
  createWholeNumberParser,
  createEnumParser,
} from './flag-values.js';
import type { SpecFlag, SpecSwitch } from './flag-values.js';
import { KERNEL_FLAGS } from './kernel-flags.js';

/**
 * Flags of the container settings: image pull policy, security context, volumes, network. Security
 * profiles can only be set in a manifest.
 */
export const CONTAINER_FLAGS: readonly SpecFlag[] = [
  {
    flag: '--pull',
    value: 'policy',
    description: 'image pull policy',
    path: 'image_pull.policy',
    values: listEnumWords(ImagePull_PolicySchema),
    parse: createEnumParser('--pull', listEnumNames(ImagePull_PolicySchema)),
  },
  {
    flag: '--volume',
    value: 'volume',
    path: 'volumes',
    repeatable: true,
    parse: parseVolumes,
    description:
      'NAME:/PATH (kept on the node), /HOST/PATH:/PATH, /PATH (empty directory) or /PATH:memory=64Mi; append :ro for read-only; none removes all volumes',
  },
  {
    flag: '--user',
    value: 'id',
    description: 'numeric user id to run as',
    path: 'security.run_as_user',
    parse: createIdParser('--user'),
  },
  {
    flag: '--user-name',
    value: 'name',
    description: 'user name of the image to run as',
    path: 'security.user',
    parse: parseText,
  },
  {
    flag: '--group',
    value: 'id',
    description: 'numeric group id to run as, with --user',
    path: 'security.run_as_group',
    parse: createIdParser('--group'),
  },
  createCapabilityFlag(
    '--cap-add',
    'Linux capability to add, such as NET_ADMIN; none removes all',
    'security.capabilities_add',
  ),
  createCapabilityFlag(
    '--cap-drop',
    'Linux capability to drop, or ALL; none removes all',
    'security.capabilities_drop',
  ),
  {
    flag: '--runtime-class',
    value: 'name',
    path: 'security.runtime_class',
    parse: parseText,
    description: 'runtime class of the node, such as runsc',
  },
  {
    flag: '--hostname',
    value: 'name',
    description: 'host name of the container',
    path: 'network.hostname',
    parse: parseText,
  },
  {
    flag: '--dns',
    value: 'address',
    description: 'DNS server',
    path: 'network.dns_servers',
    repeatable: true,
    parse: parseList,
  },
  {
    flag: '--extra-host',
    value: 'name:address',
    path: 'network.extra_hosts',
    repeatable: true,
    parse: parseExtraHosts,
    description: 'entry for /etc/hosts of the container; none removes all entries',
  },
  {
    flag: '--pids-limit',
    value: 'number',
    path: 'resources.limits.pids',
    parse: createWholeNumberParser('--pids-limit'),
    description: 'limit of processes and threads',
  },
  ...KERNEL_FLAGS,
];

/** Flags without a value. The flag `--NAME` sets the field to true, `--no-NAME` to false. */
export const CONTAINER_SWITCHES: readonly SpecSwitch[] = [
  { flag: '--non-root', description: 'refuse to start as root', path: 'security.run_as_non_root' },
  {
    flag: '--init',
    description: 'run an init process that reaps orphaned processes (default: --init)',
    path: 'init',
  },
  {
    flag: '--read-only',
    description: 'mount the root file system read-only; only volumes are writable',
    path: 'security.read_only_root_filesystem',
  },
  {
    flag: '--privileged',
    description: 'run the container with all privileges of the node',
    path: 'security.privileged',
  },
  {
    flag: '--host-network',
    description: 'use the network of the node',
    path: 'network.host_network',
  },
  {
    flag: '--identity',
    description: 'give each replica a certificate and key of the workload',
    path: 'identity',
    isMessage: true,
  },
];

/**
 * Parses `NAME:ADDRESS` or `NAME=ADDRESS`. The name ends at the first colon or equals sign; the
 * address may contain colons. The value `none` sets an empty list.
 */
function parseExtraHosts(texts: readonly string[]): JsonValue {
  if (isNone(texts)) return [];
  return texts.map((text) => {
    const [, name, ip] = /^([^:=]+)[:=](.+)$/.exec(text) ?? [];
    if (name !== undefined && ip !== undefined) return { ip, hostnames: [name] };
    throw createUsageFailure(
      `--extra-host: expected NAME:ADDRESS, for example db:10.0.0.5, got ${JSON.stringify(text)}`,
    );
  });
}

/** Creates a repeatable flag for a list of capabilities. The value `none` sets an empty list. */
function createCapabilityFlag(flag: string, description: string, path: string): SpecFlag {
  const parse = (texts: readonly string[]): JsonValue => (isNone(texts) ? [] : parseList(texts));
  return { flag, value: 'capability', description, path, repeatable: true, parse };
}

/** Creates a parser for the numeric id of a user or group. */
function createIdParser(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const text = texts.at(-1) ?? '';
    const hint = text.includes(':')
      ? '; use --group for the group'
      : '; use --user-name for a name';
    return parseNumericId(flag, text, flag === '--user' ? hint : '');
  };
}

function parseVolumes(texts: readonly string[]): JsonValue {
  return isNone(texts) ? [] : texts.map(parseVolume);
}

/**
 * Parses `NAME:/PATH`, `/HOST/PATH:/PATH` and `/PATH`, each optionally with `:ro` or `:rw`, and
 * `/PATH:memory=64Mi`.
 */
function parseVolume(text: string): JsonValue {
  const [, memoryPath, size] = /^(\/[^:]*):memory(?:=([^:]+))?$/.exec(text) ?? [];
  if (memoryPath !== undefined)
    return {
      name: deriveVolumeName(memoryPath),
      mountPath: memoryPath,
      emptyDir: { medium: 'MEMORY', ...parseSizeLimit(size) },
    };
  const match = /^(?:([^:]+):)?(\/[^:]*)(?::(ro|rw))?$/.exec(text);
  const [, source, mountPath = '', mode] = match ?? [];
  const isName = source !== undefined && /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(source);
  if (match === null || (source !== undefined && !isName && !source.startsWith('/'))) {
    throw createUsageFailure(
      `--volume: expected NAME:/PATH, /HOST/PATH:/PATH or /PATH, each optionally with :ro, or /PATH:memory=64Mi, for example data:/var/lib/data, got ${JSON.stringify(text)}`,
    );
  }
  return {
    name: isName ? source : deriveVolumeName(mountPath),
    mountPath,
    ...(mode === 'ro' ? { readOnly: true } : {}),
    ...(source === undefined
      ? { emptyDir: {} }
      : isName
        ? { named: { name: source } }
        : { hostPath: { path: source } }),
  };
}

function parseSizeLimit(size: string | undefined): JsonObject {
  return size === undefined
    ? {}
    : { sizeLimitBytes: createUnitParser('--volume', parseQuantity, String)([size]) };
}

/** Maximum length of the name of a volume, which is a DNS label. */
const MAX_NAME_LENGTH = 63;

/**
 * Derives the name of a volume from its mount path: `/var/log/nginx` becomes `var-log-nginx`. The
 * path `/` becomes `root`.
 */
function deriveVolumeName(mountPath: string): string {
  const name = mountPath.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  return name.replaceAll(/^-+/g, '').slice(0, MAX_NAME_LENGTH).replaceAll(/-+$/g, '') || 'root';
}
