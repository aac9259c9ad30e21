import type { JsonValue } from '@bufbuild/protobuf';
import { definedFields } from '@cloudless/base';
import { RestartPolicy_PolicySchema, WorkloadSpec_ModeSchema } from '@cloudless/api';
import { createUsageFailure } from '../call/failure.js';
import { MAX_REPLICAS, parseCpu, parseQuantity } from '../quantity.js';
import {
  createDurationParser,
  isNone,
  parseList,
  parsePortNumber,
  listEnumNames,
  listEnumWords,
  createPairParser,
  parseText,
  createUnitParser,
  createWholeNumberParser,
  createEnumParser,
} from './flag-values.js';
import type { SpecFlag } from './flag-values.js';

/** Parses `[name=]port`, or `none` for no port. */
function parseExposedPorts(texts: readonly string[]): JsonValue {
  if (isNone(texts)) return [];
  return texts.map((text) => {
    const match = /^(?:([a-z0-9-]+)=)?(\d+)$/.exec(text);
    if (match === null) {
      throw createUsageFailure(
        `--expose: expected 80 or http=80, the name of a declared port first, got ${JSON.stringify(text)}`,
      );
    }
    return { ...definedFields({ name: match[1] }), port: parsePortNumber('--expose', match[2]) };
  });
}

/** Parses `[name=][hostPort:]containerPort[/tcp|/udp]`. */
function parsePorts(texts: readonly string[]): JsonValue {
  return texts.map((text) => {
    const match = /^(?:([a-z0-9-]+)=)?(?:(\d{1,5}):)?(\d{1,5})(?:\/(tcp|udp))?$/i.exec(text);
    if (match === null) {
      throw createUsageFailure(
        `--port: expected 8080, http=8080, dns=53/udp or, with a host port, 80:8080, got ${JSON.stringify(text)}`,
      );
    }
    const [, name, hostPort, number, protocol] = match;
    return {
      ...definedFields({ name }),
      ...(hostPort === undefined ? {} : { hostPort: Number(hostPort) }),
      containerPort: Number(number),
      ...(protocol === undefined ? {} : { protocol: protocol.toUpperCase() }),
    };
  });
}

/**
 * Creates a parser for `http:PORT/PATH`, `tcp:PORT`, `grpc:PORT/SERVICE` and `exec:COMMAND`.
 * Periods and thresholds can only be set in a manifest.
 */
function createProbeParser(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const text = texts.at(-1) ?? '';
    const [, kind, port = '', path = ''] = /^(http|tcp|grpc):([^/\s]+)(\/\S*)?$/.exec(text) ?? [];
    const words =
      /^exec:(.*)$/s
        .exec(text)?.[1]
        ?.split(/\s+/)
        .filter((word) => word !== '') ?? [];
    if (words.length > 0) return { exec: { command: words } };
    if (kind === 'http') return { http: path === '' ? { port } : { port, path } };
    if (kind === 'grpc') return { grpc: path === '' ? { port } : { port, service: path.slice(1) } };
    if (kind === 'tcp' && path === '') return { tcp: { port } };
    throw createUsageFailure(
      `${flag}: expected http:8080/path, tcp:8080, grpc:8080/service or exec:command, got ${JSON.stringify(text)}`,
    );
  };
}

const PROBE_DESCRIPTIONS = {
  liveness: 'liveness probe, restarts the container when it fails',
  readiness: 'readiness probe, decides whether the replica is an endpoint',
  startup: 'startup probe, delays the other probes until it passes',
} as const;

/** Flags of the replica template, the placement and the number of replicas. */
export const TEMPLATE_FLAGS: readonly SpecFlag[] = [
  {
    flag: '--image',
    value: 'reference',
    description: 'container image',
    path: 'image',
    parse: parseText,
  },
  {
    flag: '--arg',
    value: 'text',
    description: 'argument after the command',
    path: 'args',
    repeatable: true,
    parse: parseList,
  },
  {
    flag: '--replicas',
    value: 'number',
    description: 'number of replicas',
    path: 'replicas',
    parse: createWholeNumberParser('--replicas', MAX_REPLICAS),
  },
  {
    flag: '--port',
    value: '[name=][host:]number',
    path: 'ports',
    repeatable: true,
    parse: parsePorts,
    description: 'port of the container, optionally with a host port before it',
  },
  {
    flag: '--expose',
    value: '[name=]port',
    path: 'expose',
    repeatable: true,
    parse: parseExposedPorts,
    description: 'port of a service that is created with the workload, for example 80 or http=80',
  },
  {
    flag: '--env',
    value: 'key=value',
    description: 'environment variable',
    path: 'env',
    repeatable: true,
    addsToCurrent: true,
    parse: createPairParser('--env'),
  },
  {
    flag: '--label',
    value: 'key=value',
    description: 'label',
    path: 'labels',
    repeatable: true,
    addsToCurrent: true,
    parse: createPairParser('--label'),
  },
  {
    flag: '--annotation',
    value: 'key=value',
    description: 'annotation',
    path: 'annotations',
    repeatable: true,
    addsToCurrent: true,
    parse: createPairParser('--annotation'),
  },
  {
    flag: '--cpu',
    value: 'cores',
    description: 'CPU to reserve, such as 500m or 0.5',
    path: 'resources.requests.cpu_millis',
    parse: createUnitParser('--cpu', parseCpu, Number),
  },
  {
    flag: '--memory',
    value: 'bytes',
    description: 'memory to reserve, such as 64Mi',
    path: 'resources.requests.memory_bytes',
    parse: createUnitParser('--memory', parseQuantity, String),
  },
  {
    flag: '--cpu-limit',
    value: 'cores',
    description: 'CPU limit, such as 500m or 0.5',
    path: 'resources.limits.cpu_millis',
    parse: createUnitParser('--cpu-limit', parseCpu, Number),
  },
  {
    flag: '--memory-limit',
    value: 'bytes',
    description: 'memory limit, such as 64Mi',
    path: 'resources.limits.memory_bytes',
    parse: createUnitParser('--memory-limit', parseQuantity, String),
  },
  {
    flag: '--region',
    value: 'region',
    description: 'region to run in',
    path: 'placement.regions',
    repeatable: true,
    parse: parseList,
  },
  {
    flag: '--zone',
    value: 'zone',
    description: 'zone to run in',
    path: 'placement.zones',
    repeatable: true,
    parse: parseList,
  },
  {
    flag: '--node-selector',
    value: 'key=value',
    description: 'label that a node must have',
    path: 'placement.node_selector',
    repeatable: true,
    addsToCurrent: true,
    parse: createPairParser('--node-selector'),
  },
  {
    flag: '--priority',
    value: 'number',
    description: 'priority from 0 to 1000',
    path: 'priority',
    parse: createWholeNumberParser('--priority'),
  },
  {
    flag: '--restart',
    value: 'policy',
    description: 'restart policy',
    path: 'restart.policy',
    values: listEnumWords(RestartPolicy_PolicySchema),
    parse: createEnumParser('--restart', listEnumNames(RestartPolicy_PolicySchema)),
  },
  {
    flag: '--max-retries',
    value: 'number',
    description: 'restarts and failed starts before the replica fails',
    path: 'restart.max_retries',
    parse: createWholeNumberParser('--max-retries'),
  },
  {
    flag: '--mode',
    value: 'mode',
    description: 'Global runs one replica on each matching node',
    path: 'mode',
    values: listEnumWords(WorkloadSpec_ModeSchema),
    parse: createEnumParser('--mode', listEnumNames(WorkloadSpec_ModeSchema)),
  },
  {
    flag: '--grace-period',
    value: 'duration',
    description: 'time between SIGTERM and SIGKILL',
    path: 'termination_grace_period',
    parse: createDurationParser('--grace-period'),
  },
  ...(['liveness', 'readiness', 'startup'] as const).map((name): SpecFlag => {
    const flag = `--${name}-probe`;
    const description = `${PROBE_DESCRIPTIONS[name]}: http:PORT/PATH, tcp:PORT, grpc:PORT/SERVICE or exec:COMMAND`;
    return {
      flag,
      value: 'check',
      description,
      path: `${name}_probe`,
      parse: createProbeParser(flag),
    };
  }),
  {
    flag: '--runtime',
    value: 'runtime',
    values: ['process', 'cri'],
    description: 'runtime: process or cri',
    path: 'runtime',
    parse: parseText,
  },
  {
    flag: '--working-dir',
    value: 'directory',
    description: 'working directory',
    path: 'working_dir',
    parse: parseText,
  },
];
