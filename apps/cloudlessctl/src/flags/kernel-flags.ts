import type { JsonValue } from '@bufbuild/protobuf';
import { createUsageFailure } from '../call/failure.js';
import { parseQuantity } from '../quantity.js';
import {
  isNone,
  parseNumericId,
  createPairParser,
  parseText,
  createUnitParser,
} from './flag-values.js';
import type { SpecFlag } from './flag-values.js';

/**
 * Flags for shared memory, process limits, kernel parameters, devices, groups and platform. The
 * value `none` of a list flag sets an empty list.
 */
export const KERNEL_FLAGS: readonly SpecFlag[] = [
  {
    flag: '--shm-size',
    value: 'bytes',
    description: 'size of /dev/shm, such as 128Mi',
    path: 'shm_size_bytes',
    parse: createUnitParser('--shm-size', parseQuantity, String),
  },
  {
    flag: '--ulimit',
    value: 'name=soft[:hard]',
    path: 'ulimits',
    repeatable: true,
    parse: parseUlimits,
    description: 'limit of each process, such as nofile=1024:4096; none removes all limits',
  },
  {
    flag: '--sysctl',
    value: 'name=value',
    path: 'sysctls',
    repeatable: true,
    addsToCurrent: true,
    parse: createPairParser('--sysctl'),
    description: 'kernel parameter of the network or IPC namespace of the container',
  },
  {
    flag: '--device',
    value: 'path[:path[:rwm]]',
    path: 'devices',
    repeatable: true,
    parse: parseDevices,
    description: 'device of the node that its agent allows; none removes all devices',
  },
  {
    flag: '--group-add',
    value: 'id',
    path: 'security.supplemental_groups',
    repeatable: true,
    parse: parseGroupIds,
    description: 'additional numeric group id; none removes all groups',
  },
  {
    flag: '--fs-group',
    value: 'id',
    path: 'security.fs_group',
    parse: (texts) => parseNumericId('--fs-group', texts.at(-1)),
    description: 'group id that owns the empty directories',
  },
  {
    flag: '--platform',
    value: 'platform',
    values: ['linux/amd64', 'linux/arm64'],
    path: 'image_pull.platform',
    parse: parseText,
    description: 'platform of the image and of the node, such as linux/arm64',
  },
];

function parseGroupIds(texts: readonly string[]): JsonValue {
  return isNone(texts) ? [] : texts.map((text) => parseNumericId('--group-add', text));
}

/** Parses `name=soft` and `name=soft:hard`. */
function parseUlimits(texts: readonly string[]): JsonValue {
  if (isNone(texts)) return [];
  return texts.map((text) => {
    const match = /^([a-z]+)=(-1|unlimited|\d{1,18})(?::(-1|unlimited|\d{1,18}))?$/.exec(text);
    if (match === null) {
      throw createUsageFailure(
        `--ulimit: expected NAME=SOFT or NAME=SOFT:HARD, each a number or unlimited, got ${JSON.stringify(text)}`,
      );
    }
    const [, name = '', soft = '', hard = soft] = match;
    return { name, soft: parseLimit(soft), hard: parseLimit(hard) };
  });
}

/** Converts a limit to protobuf JSON, where -1 means unlimited. */
function parseLimit(text: string): string {
  return text === 'unlimited' ? '-1' : text;
}

/** Parses `/HOST/PATH`, `/HOST/PATH:/PATH` and `/HOST/PATH:/PATH:rwm`. */
function parseDevices(texts: readonly string[]): JsonValue {
  if (isNone(texts)) return [];
  return texts.map((text) => {
    const match = /^(\/[^:]*)(?::(\/[^:]*)(?::(r?w?m?))?)?$/.exec(text);
    if (match === null) {
      throw createUsageFailure(
        `--device: expected /HOST/PATH[:/PATH[:rwm]], got ${JSON.stringify(text)}`,
      );
    }
    const [, hostPath = '', containerPath = '', permissions = ''] = match;
    return { hostPath, containerPath, permissions };
  });
}
